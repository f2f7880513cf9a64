"""Answer one chunk of a sweep: what a worker does, whichever process or machine it runs in."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from kvtax.budgets import budget
from kvtax.errors import InputError, KvtaxError
from kvtax.sources.beforehand import make_model, standing_in
from kvtax.sources.resolve import Model
from kvtax.sweeps.job import CSV_TEXT, ID, JSON_TEXT, Chunk, Job, LineFields, read_line
from kvtax.sweeps.results import BUG, SweepResult, asked_fields, csv_line, csv_records, json_line, of_budget

_MOST_MODELS = 64
_made: dict[tuple[str, str], Model | KvtaxError] = {}
_one_at_a_time = threading.Lock()
"""Workers of a cluster may have threads; what is remembered of models is for one of them."""


class Answers(NamedTuple):
    """The results of a chunk.

    Args:
        rows: how many.
        text: as lines; '' where results were asked for.
        results: as they are; none where text was asked for.
        errors: how many there are of each exit code.
    """

    rows: int
    text: str
    results: tuple[SweepResult, ...]
    errors: Mapping[int, int]


class InternalError(KvtaxError):
    """A fault of kvtax that one deployment has brought to light (exit 70)."""

    exit_code = BUG
    default_code = "internal-error"


def answer_chunk(job: Job, chunk: Chunk) -> Answers:
    """The results of a chunk, in order: a deployment that cannot be answered gives an error, and the others are."""
    with _one_at_a_time, standing_in({name: _model(name, key, blob) for name, key, blob in chunk.models}):
        results = []
        row = chunk.first_row
        for piece in chunk.pieces:
            read = read_line(job, piece.line)
            for index in range(piece.first, piece.last):
                results.append(_answer(job, row, piece.line.number, read, index))
                row += 1
        return _in_form(job, results)


def _in_form(job: Job, results: list[SweepResult]) -> Answers:
    errors = Counter(result.exit_code for result in results if result.error is not None)
    if job.form == JSON_TEXT:
        return Answers(len(results), "".join(map(json_line, results)), (), errors)
    if job.form == CSV_TEXT:
        return Answers(len(results), csv_records([csv_line(job, result) for result in results]), (), errors)
    return Answers(len(results), "", tuple(results), errors)


def _answer(job: Job, row: int, line: int | None, read: LineFields, index: int) -> SweepResult:
    merged = {**job.base, **read.fields, **job.cell(index)}
    fields = {name: value for name, value in merged.items() if value is not None}
    problem = read.error
    if problem is None:
        try:
            return of_budget(row, line, read.kept, budget(gpus=job.gpus, **fields), full=job.full)
        except KvtaxError as error:
            problem = error
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  a fault of kvtax in one deployment stops no sweep of thousands
            problem = _fault(error)
    carried = {name: value for name, value in read.kept.items() if name != ID}
    return SweepResult(row, line, read.kept.get(ID), carried, asked_fields(fields), error=problem)


def _fault(error: Exception) -> KvtaxError:
    if isinstance(error, RecursionError):
        return InputError("is nested too deeply", code="invalid-input")
    message = f"internal error: {type(error).__name__}: {str(error)[:200]}"
    return InternalError(
        message, hint="this is a bug in kvtax: `kvtax budget --debug` with the same fields shows where"
    )


def _model(name: str, key: str, blob: bytes) -> Model | KvtaxError:
    """The Model of what the first process has read, made once for each process."""
    found = _made.get((name, key))
    if found is None:
        try:
            found = make_model(name, pickle.loads(blob))  # noqa: S301  written by the process that asks
        except KvtaxError as error:
            found = error.with_traceback(None)
        if len(_made) >= _MOST_MODELS:
            _made.clear()
        _made[name, key] = found
    return found
