"""`kvtax.sweep`: results of many deployments, one after the other as they come."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kvtax.deployment import Deployment
from kvtax.errors import InputError
from kvtax.hardware.gpu import Gpu
from kvtax.planning.grid import read_axes
from kvtax.sources.models import ModelEntry
from kvtax.sweeps.answers import Answers
from kvtax.sweeps.executors import Executor, choose_executor
from kvtax.sweeps.inputs import CSV, Source, open_source
from kvtax.sweeps.job import RESULTS, Job, cut, read_base
from kvtax.sweeps.lines import Line
from kvtax.sweeps.lookups import Lookups
from kvtax.sweeps.results import SweepResult


def sweep(
    deployments: str | os.PathLike[str] | Iterable[Mapping[str, Any] | Deployment] | None = None,
    *,
    vary: Mapping[str, Any] | Sequence[str] = (),
    keep: Sequence[str] = (),
    full: bool = False,
    workers: int = 1,
    scheduler: str | None = None,
    models: Sequence[ModelEntry] = (),
    gpus: Sequence[Gpu] = (),
    **base: Any,
) -> Iterator[SweepResult]:
    """Results of many deployments in order, each as soon as it is there; neither side is ever held whole.

    Args:
        deployments: a file (JSONL, CSV or Parquet by its name), or mappings of fields; None: the grid alone.
        vary: fields and the values each takes in turn: {"gpu": ["l4", "h200"]}, or words as on the command line; every
            deployment is crossed with all of them, the last one fastest.
        keep: keys besides `id` that are carried through to the results.
        full: put the whole budget into each result.
        workers: processes; 1 is this one. More need `if __name__ == "__main__":` in a script.
        scheduler: the address of a Dask scheduler whose workers answer instead.
        models: entries of one's own, looked at before the catalogue.
        gpus: cards of one's own.
        base: fields of Deployment that every one starts from.

    Returns:
        The results; one that could not be answered has its `error`.

    Raises:
        InputError: the file, the grid or the base cannot be understood.
        NotKnownError: a worker ended, or the cluster is not reached.

    >>> [result.verdict for result in sweep(vary={"gpu": ["rtx-3060", "h200"]}, model="llama-3-8b")]
    ['out_of_memory', 'fits']
    """
    axes = read_axes(vary)
    fields = read_base(base, axes)
    executor = choose_executor(None, scheduler, None if scheduler else workers)
    source: Source | None = None
    if isinstance(deployments, str | os.PathLike):
        source = open_source(os.fspath(deployments), None, keep)
        lines: Iterable[Line] = source.lines
    elif deployments is None:
        if not axes:
            raise InputError("neither deployments nor a grid is given", code="no-input", hint="vary={...}")
        lines = (Line(None, {}),)
    else:
        lines = _lines(deployments)
    words = source is not None and source.format == CSV
    job = Job(fields, axes, words, tuple(keep), RESULTS, (), full, tuple(gpus))
    return _results(run_job(job, lines, executor, models), source)


def run_job(
    job: Job, lines: Iterable[Line], executor: Executor, models: Sequence[ModelEntry] = (), done: int = 0
) -> Generator[Answers, None, None]:
    """Answers to every line, in order.

    Args:
        job: what is asked.
        lines: that are read as answers come.
        executor: who answers.
        models: entries of one's own.
        done: deployments at the beginning that are answered already.
    """
    return executor(job, Lookups(job, models).with_models(cut(lines, job.cells, done)))


def _lines(deployments: Iterable[Mapping[str, Any] | Deployment]) -> Iterator[Line]:
    for number, fields in enumerate(deployments, 1):
        if isinstance(fields, Deployment):
            yield Line(number, {name: value for name, value in fields._asdict().items() if value is not None})
        elif isinstance(fields, Mapping):
            yield Line(number, fields)
        else:
            yield Line(number, None, InputError(f"is no mapping of fields: {fields!r:.64}", code="invalid-input"))


def _results(answers: Generator[Answers, None, None], source: Source | None) -> Iterator[SweepResult]:
    with contextlib.nullcontext() if source is None else contextlib.closing(source):
        for chunk in answers:
            yield from chunk.results
