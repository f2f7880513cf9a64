"""One result of a sweep, and its forms: a line of JSON, a record of CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kvtax.budgets import Budget, catalogue_stamp
from kvtax.deployment import Deployment
from kvtax.errors import KvtaxError
from kvtax.safe_text import csv_text, safe
from kvtax.sweeps.job import ID, Job

SCHEMA = "kvtax.sweep/1"
BUG = 70
"""The exit code of a fault of kvtax."""
_FIGURES = (
    "verdict", "fits", "at_context", "max_concurrency", "max_concurrency_low", "max_concurrency_high", "capacity_tokens", "total_bytes",
    "limit_bytes", "weights_bytes", "model_load_bytes", "activation_bytes", "cuda_graph_bytes", "runtime_bytes", "kv_pool_bytes",
    "kv_pool_bytes_low", "kv_pool_bytes_high", "kv_demand_bytes", "unallocated_bytes", "loading_bytes", "kv_bytes_per_token",
    "kv_bytes_per_request", "state_bytes_per_request",
)  # fmt: skip
_ENDS = ("notices", "error_code", "error_message", "error_hint", "error_exit_code")
RESULT_COLUMNS = ("row", "line", ID, *_FIGURES, *_ENDS)
"""What every CSV and Parquet file of results has, beside the fields that were asked and the columns that are carried through."""


class SweepResult(NamedTuple):
    """The answer for one deployment of a sweep: the figures of its budget, or why there is none.

    Args:
        row: its number in the sweep, from 1.
        line: the line of the file that it comes from; None where no file was read.
        id: the line's own name for it.
        kept: columns that are carried through.
        asked: the fields that are not left to a default, as they were understood.
        verdict: fits | over_budget | kv_too_small | out_of_memory | refused; None where there is an error.
        per_gpu: as in the JSON of a budget [bytes].
        kv: bytes_per_token, bytes_per_request, state_bytes_per_request, capacity_tokens.
        concurrency: at_context, max, requested, fits.
        interval: the range that holds 90 % of real starts.
        notices: their codes.
        error: why there is no answer; None where there is one.
        budget: the whole budget as JSON, where it was asked for.
    """

    row: int
    line: int | None
    id: Any
    kept: Mapping[str, Any]
    asked: Mapping[str, Any]
    verdict: str | None = None
    per_gpu: Mapping[str, int] | None = None
    kv: Mapping[str, int] | None = None
    concurrency: Mapping[str, Any] | None = None
    interval: Mapping[str, Any] | None = None
    notices: tuple[str, ...] = ()
    error: KvtaxError | None = None
    budget: Mapping[str, Any] | None = None

    @property
    def fits(self) -> bool | None:
        """Whether it starts and carries what was asked for; None where there is an error."""
        return None if self.verdict is None else self.verdict == "fits"

    @property
    def max_concurrency(self) -> float | None:
        """Requests of max_model_len that the pool holds; None where there is an error."""
        return None if self.concurrency is None else self.concurrency["max"]

    @property
    def exit_code(self) -> int:
        """That of `kvtax budget` for this error; 0 where there is an answer."""
        return 0 if self.error is None else self.error.exit_code

    def to_dict(self) -> dict[str, Any]:
        """The JSON form (schema kvtax.sweep/1): the names of kvtax.budget/1, nothing rounded."""
        found: dict[str, Any] = {
            "schema": SCHEMA,
            **catalogue_stamp(),
            "row": self.row,
            "line": self.line,
            "id": self.id,
            "kept": dict(self.kept),
            "asked": {name: plain(value) for name, value in self.asked.items()},
            "verdict": self.verdict,
            "fits": self.fits,
            "per_gpu": self.per_gpu,
            "kv": self.kv,
            "concurrency": self.concurrency,
            "interval": self.interval,
            "notices": list(self.notices),
            "error": None if self.error is None else error_to_dict(self.error),
        }
        if self.budget is not None:
            found["budget"] = self.budget
        return found

    def __repr__(self) -> str:
        """One line: what was asked and what came out."""
        asked = " ".join(f"{name}={plain(value)}" for name, value in self.asked.items())
        return f"<SweepResult {self.row}: {safe(asked)}: {self.verdict or self.error}>"


def plain(value: Any) -> Any:
    """A field's value as JSON has it: of several parts as it is typed, a model that is no name as what it is."""
    if isinstance(value, Mapping):
        return "(config)"
    if hasattr(value, "architecture"):
        return value.id
    return str(value) if isinstance(value, tuple) else value


def error_to_dict(error: KvtaxError) -> dict[str, Any]:
    """An error as results have it, with the exit code of `kvtax budget` for it."""
    return {
        "code": error.code,
        "message": safe(str(error), 2000),
        "hint": safe(error.hint, 2000),
        "exit_code": error.exit_code,
    }


def of_budget(
    row: int, line: int | None, kept: Mapping[str, Any], budget: Budget, *, full: bool = False
) -> SweepResult:
    """The result of a budget.

    Args:
        row: its number.
        line: its line.
        kept: what is carried through, `id` among it.
        budget: the answer.
        full: put the whole budget in.
    """
    return SweepResult(
        row,
        line,
        kept.get(ID),
        {name: value for name, value in kept.items() if name != ID},
        budget.asked,
        budget.verdict,
        budget.per_gpu,
        {
            "bytes_per_token": budget.kv_bytes_per_token,
            "bytes_per_request": budget.kv_bytes_per_request,
            "state_bytes_per_request": budget.state_bytes_per_request,
            "capacity_tokens": budget.capacity_tokens,
        },
        {
            "at_context": budget.max_model_len,
            "max": budget.max_concurrency,
            "requested": budget.concurrency,
            "fits": budget.fits,
        },
        budget.interval,
        tuple(notice.code for notice in budget.notices),
        None,
        budget.to_dict() if full else None,
    )


def json_line(result: SweepResult) -> str:
    """One line of JSON in plain ASCII, with its end; DEL, which JSON lets through, is escaped too."""
    text = json.dumps(result.to_dict(), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("\x7f", "\\u007f") + "\n"


def column_of(field: str) -> str:
    """The column that an asked field has: its own name, or `given_` before it where a figure has that name.

    >>> column_of("gpu"), column_of("weights_bytes")
    ('gpu', 'given_weights_bytes')
    """
    return f"given_{field}" if field in _FIGURES else field


def header(job: Job) -> tuple[str, ...]:
    """The columns of a table of results."""
    return ("row", "line", ID, *job.keep, *map(column_of, job.columns), *_FIGURES, *_ENDS)


def csv_header(job: Job) -> str:
    """The first line of a CSV."""
    return csv_records([[csv_text(name) for name in header(job)]])


def csv_records(rows: Iterable[Sequence[Any]]) -> str:
    """Records, each on one line."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def cells(job: Job, row: Mapping[str, Any]) -> list[Any]:
    """The cells of one result, from its JSON form, in the order of `header`; None where there is nothing.

    Raises:
        KeyError: a field was asked that has no column.
    """
    asked, error = row["asked"], row["error"] or {}
    if not asked.keys() <= set(job.columns):
        raise KeyError(sorted(asked.keys() - set(job.columns))[0])
    start = [row["row"], row["line"], row[ID], *(row["kept"].get(name) for name in job.keep)]
    ends = [";".join(row["notices"]), *(error.get(name) for name in ("code", "message", "hint", "exit_code"))]
    return [*start, *(asked.get(name) for name in job.columns), *_figures(row), *ends]


def _figures(row: Mapping[str, Any]) -> list[Any]:
    if row["verdict"] is None:
        return [None] * len(_FIGURES)
    found = {
        "verdict": row["verdict"],
        "fits": row["fits"],
        "at_context": row["concurrency"]["at_context"],
        "max_concurrency": row["concurrency"]["max"],
        "capacity_tokens": row["kv"]["capacity_tokens"],
        "kv_bytes_per_token": row["kv"]["bytes_per_token"],
        "kv_bytes_per_request": row["kv"]["bytes_per_request"],
        "state_bytes_per_request": row["kv"]["state_bytes_per_request"],
        **row["per_gpu"],
    }
    for name in ("max_concurrency", "kv_pool_bytes"):
        found[f"{name}_low"], found[f"{name}_high"] = row["interval"][name]
    return [found[name] for name in _FIGURES]


def csv_line(job: Job, result: SweepResult) -> list[Any]:
    """The cells of a CSV record: text that no spreadsheet takes for a formula, true and false in small letters, nothing for None."""
    return [_csv_cell(value) for value in cells(job, result.to_dict())]


def _csv_cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return csv_text(value) if isinstance(value, str) else value


def asked_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields in the order of a Deployment, without those that are left to a default."""
    defaults = Deployment._field_defaults
    return {
        name: fields[name] for name in Deployment._fields if name in fields and fields[name] != defaults.get(name, ...)
    }
