"""`kvtax sweep`: a file or a grid of deployments in, one result a line out."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvtax.cli.engine_options import ENGINE_OPTIONS
from kvtax.cli.exits import Exit, UsageError, say, worst
from kvtax.cli.network import settle_network
from kvtax.cli.options import (
    CARD_OPTIONS,
    CATALOGUE,
    FLAG,
    FORMAT_OPTIONS,
    LOAD_OPTIONS,
    MANY,
    MODEL_OPTIONS,
    OFFLINE,
    Argument,
    Command,
    Option,
    deployment_fields,
)
from kvtax.cli.words import read_catalogue, read_stdin_model

if TYPE_CHECKING:
    from kvtax.hardware.gpu import Gpu
    from kvtax.planning.grid import Axis
    from kvtax.sources.models import ModelEntry
    from kvtax.sweeps.inputs import Source
    from kvtax.sweeps.job import Job
    from kvtax.sweeps.targets import Target

_FORMATS = ("jsonl", "csv", "parquet")
_SPELLINGS = {"json": "jsonl", "ndjson": "jsonl"}


def run(values: Mapping[str, Any]) -> int:
    """Answer one command line.

    Args:
        values: by option name.

    Returns:
        The exit code: 0 every deployment has an answer, 2 or 3 some have an error.
    """
    from kvtax.planning.grid import read_axes
    from kvtax.sweeps.executors import choose_executor

    kind = _format(values)
    executor = choose_executor(values.get("executor"), values.get("scheduler"), _workers(values))
    models, gpus = read_catalogue(values)
    settle_network(values)
    axes = read_axes(values["vary"])
    source = _source(values, axes)
    with contextlib.nullcontext() if source is None else contextlib.closing(source):
        job = _job(values, axes, source, kind, gpus)
        stamp = _stamp(job, source, models, kind)
        with contextlib.closing(_target(values, job, kind, stamp)) as target:
            try:
                return _run(values, job, source, executor, models, target)
            except KeyboardInterrupt:
                if values.get("output") and stamp["input"] is not None:
                    say("what is done is kept: the same command with --resume goes on")
                raise


def _run(
    values: Mapping[str, Any],
    job: Job,
    source: Source | None,
    executor: Any,
    models: Sequence[ModelEntry],
    target: Target,
) -> int:
    from kvtax.cli.progress import Progress
    from kvtax.sweeps.lines import Line
    from kvtax.sweeps.running import run_job

    count = 1 if source is None else source.line_count
    progress = Progress(values, None if count is None else count * job.cells, target.done)
    errors, rows = Counter(target.errors), target.done
    lines = iter((Line(None, {}),)) if source is None else source.lines
    answers = run_job(job, lines, executor, models, target.done)
    with contextlib.closing(answers), contextlib.closing(progress):
        for chunk in answers:
            target.write(chunk.text)
            errors.update(chunk.errors)
            rows += chunk.rows
            progress.advance(chunk.rows)
        target.finish()
    if not values.get("quiet"):
        _talk(values, rows, errors)
    return _exit_code(errors)


def _talk(values: Mapping[str, Any], rows: int, errors: Counter[int]) -> None:
    """How many there were, where the results went to a file, and what went wrong."""
    if not rows:
        say("note: no deployments came in")
    elif errors:
        say(f"note: {errors.total():,} of {rows:,} deployments have an error in place of an answer")
    elif values.get("output"):
        say(f"{rows:,} deployments answered")


def _exit_code(errors: Mapping[int, int]) -> int:
    found = [code for code, count in errors.items() if count]
    return Exit.BUG if Exit.BUG in found else worst(found)


def _format(values: Mapping[str, Any]) -> str:
    """The format of the results: as asked, else by the name of the file, else JSON lines.

    Raises:
        UsageError: an unknown one, two different ones, or Parquet without a file.
    """
    from kvtax.sweeps.inputs import format_of

    asked, output = values.get("format"), values.get("output")
    name = _SPELLINGS.get(asked, asked) if asked else None
    if name is not None and name not in _FORMATS:
        raise UsageError(f"there is no format {name[:64]!r} of sweeps", hint="formats: " + ", ".join(_FORMATS))
    if values.get("json") and name not in (None, "jsonl"):
        raise UsageError(f"--json and --format {name} exclude each other")
    found = name or ("jsonl" if values.get("json") else output and format_of(output)) or "jsonl"
    if found == "parquet":
        if output in (None, "-"):
            raise UsageError("Parquet goes to a file", hint="name it: -o results.parquet")
        from kvtax.sweeps.parquet import require_pyarrow

        require_pyarrow()
    if values.get("full") and found != "jsonl":
        raise UsageError(f"--full does not go with {found}", hint="whole budgets are JSON: --format jsonl")
    return found


def _workers(values: Mapping[str, Any]) -> int | None:
    words = values.get("workers")
    if words is None:
        return None
    if not words.isdecimal() or len(words) > 6:
        raise UsageError(f"--workers is a number of processes, not {words[:64]!r}")
    return int(words)


def _source(values: Mapping[str, Any], axes: Sequence[Axis]) -> Source | None:
    path = values.get("file")
    if path is None:
        if not axes:
            raise UsageError(
                "neither a file of deployments nor --vary is given",
                hint="kvtax sweep many.jsonl, or --vary gpu=l4,h200",
            )
        if values.get("input_format"):
            raise UsageError("--input-format goes with a file")
        return None
    from kvtax.sweeps.inputs import FORMATS, open_source

    asked = values.get("input_format")
    asked = _SPELLINGS.get(asked, asked) if asked else None
    if asked is not None and asked not in FORMATS:
        raise UsageError(f"there is no input format {asked[:64]!r}", hint="formats: " + ", ".join(FORMATS))
    output = values.get("output")
    if output not in (None, "-") and path != "-" and _same_file(path, output):
        raise UsageError("the results would overwrite the deployments", hint="name another file: -o results.jsonl")
    return open_source(path, asked, values["keep"])


def _same_file(path: str, other: str) -> bool:
    try:
        places = [os.path.realpath(os.path.expanduser(name)) for name in (path, other)]
        return places[0] == places[1] or os.path.samefile(*places)
    except (OSError, ValueError):
        return False


def _job(
    values: Mapping[str, Any], axes: tuple[Axis, ...], source: Source | None, kind: str, gpus: tuple[Gpu, ...]
) -> Job:
    from kvtax.sweeps.inputs import CSV, fields_of_lines
    from kvtax.sweeps.job import CSV_TEXT, JSON_TEXT, Job, check_keep, in_order_of_fields, read_base
    from kvtax.sweeps.results import RESULT_COLUMNS

    fields = deployment_fields(values)
    cards = list(dict.fromkeys(values["gpu"]))
    if len(cards) > 1:
        raise UsageError("several cards are an axis of the grid", hint=f"--vary gpu={','.join(cards)[:96]}")
    if fields.get("model") == "-":
        if values.get("file") == "-":
            raise UsageError("both the deployments and the model would come on standard input")
        fields["model"], _ = read_stdin_model()
    base = read_base({**fields, "gpu": cards[0] if cards else None}, axes)
    keep = tuple(dict.fromkeys(values["keep"]))
    check_keep(keep, RESULT_COLUMNS)
    columns: tuple[str, ...] = ()
    if kind != "jsonl":
        own: tuple[str, ...] = ()
        if source is not None:
            own = fields_of_lines(source, keep) if source.columns is None else source.columns
        columns = in_order_of_fields((*base, *(axis.name for axis in axes), *own, "engine"))
    form = CSV_TEXT if kind == "csv" else JSON_TEXT
    words = source is not None and source.format == CSV
    return Job(base, axes, words, keep, form, columns, bool(values.get("full")), gpus)


def _stamp(job: Job, source: Source | None, models: Sequence[ModelEntry], kind: str) -> dict[str, Any]:
    """What a sweep is of: a resumed one must have the same."""
    from hashlib import sha256

    from kvtax.budgets import catalogue_stamp
    from kvtax.sweeps.results import SCHEMA, plain

    own = sha256(repr((models, job.gpus)).encode()).hexdigest() if models or job.gpus else ""
    base = {name: repr(value) if isinstance(value, Mapping) else plain(value) for name, value in job.base.items()}
    return {
        "results": SCHEMA,
        **catalogue_stamp(),
        "input": "" if source is None else source.digest,
        "input_format": None if source is None else source.format,
        "base": base,
        "vary": [[axis.name, [plain(value) for value in axis.values]] for axis in job.axes],
        "keep": list(job.keep),
        "format": kind,
        "full": job.full,
        "columns": list(job.columns),
        "own_catalogue": own,
    }


def _target(values: Mapping[str, Any], job: Job, kind: str, stamp: Mapping[str, Any]) -> Target:
    from kvtax.sweeps.results import csv_header
    from kvtax.sweeps.targets import File, Stream, open_stream

    path = values.get("output")
    resume, overwrite = bool(values.get("resume")), bool(values.get("overwrite"))
    if resume and overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    head = csv_header(job) if kind == "csv" else ""
    if path in (None, "-"):
        if resume or overwrite:
            raise UsageError("--resume and --overwrite go with a file of results", hint="name it: -o results.jsonl")
        return Stream(sys.stdout, head)
    stream = open_stream(path, head)
    if stream is not None:
        return stream
    if resume and stamp["input"] is None:
        raise UsageError("what comes on standard input or a pipe cannot be resumed", hint="put it into a file first")
    if kind != "parquet":
        return File(path, stamp, head, resume=resume, overwrite=overwrite)
    from kvtax.sweeps.parquet import write_parquet

    def convert(lines: Any, whole: str, temporary: str) -> None:
        write_parquet(job, lines, whole, temporary)

    return File(path, stamp, resume=resume, overwrite=overwrite, convert=convert)


_SWEEP, _RUN = "Deployments", "Running"
_OWN_OPTIONS = (
    Option("vary", ("--vary",), "A field and the values it takes in turn; several make a grid of any size: gpu=l4,h200.", _SWEEP, MANY, "FIELD=V,V"),
    Option("input_format", ("--input-format",), "jsonl, csv or parquet [by the file's name; jsonl on standard input].", _SWEEP),
    Option("keep", ("--keep",), "A column that is no field, carried through to the results, as `id` always is.", _SWEEP, MANY, "COLUMN"),
    Option("workers", ("--workers",), "Processes that answer [the cores; 1 where there is little to do].", _RUN, metavar="N"),
    Option("executor", ("--executor",), "processes, or dask: the workers of a cluster that runs [processes].", _RUN),
    Option("scheduler", ("--scheduler",), "Of that cluster, tcp://HOST:8786 or tls://...; only one that you trust.", _RUN, metavar="ADDRESS"),
    Option("resume", ("--resume",), "Go on with a file of results that was stopped; begin it where there is none.", _RUN, FLAG),
    Option("overwrite", ("--overwrite",), "Replace a file of results that is there.", _RUN, FLAG),
)  # fmt: skip
_OUTPUT_OPTIONS = (
    Option("json", ("--json",), "The same as --format jsonl.", "Output", FLAG),
    Option("format", ("--format",), "jsonl, csv or parquet [by the name of the file, else jsonl]."  , "Output"),
    Option("output", ("-o", "--output"), "Write to a file as results come; it can be stopped and resumed.", "Output", metavar="FILE"),
    Option("full", ("--full",), "Put the whole budget into each line of JSON.", "Output", FLAG),
)  # fmt: skip
_ONE_CARD = "A card, such as a100-80 or h100-sxm; a+b: together. Several are an axis: --vary gpu=a,b."

COMMAND = Command(
    name="sweep",
    about="Many budgets: a file of deployments (JSONL, CSV or Parquet), a grid, or each line of the one crossed with the other; one result "
    "a line, in the same order, whatever the workers.\n\n"
    "Lines hold fields as options are called (model, gpu, context, tp ...); the options below are what each line starts from. A line that "
    "cannot be answered gives a line with its error, and the others are answered.\n\n"
    "A file of results is written as they come. It is never replaced unasked: --resume goes on where a run was stopped, by Ctrl-C, a kill "
    "or a full disk, and gives the same bytes as one run.\n\n"
    "Exit code: 0 every deployment has an answer, fitting or not; 2 some lines are wrong, 3 some could not be found out, 130 interrupted.",
    arguments=(Argument("file", "FILE", "Deployments; - is standard input. Left out: the grid alone."),),
    options=(
        *_OWN_OPTIONS,
        *MODEL_OPTIONS,
        OFFLINE,
        *(option._replace(help=_ONE_CARD) if option.name == "gpu" else option for option in CARD_OPTIONS),
        *LOAD_OPTIONS,
        *ENGINE_OPTIONS,
        CATALOGUE,
        *_OUTPUT_OPTIONS,
        *FORMAT_OPTIONS[3:],
    ),
    examples=(
        ("a list of deployments, answered by all cores", "kvtax sweep deployments.csv -o results.parquet"),
        (
            "a grid: 3 models on 4 cards at 3 lengths, as CSV",
            "kvtax sweep --vary model=llama-3-8b,qwen3-32b,gpt-oss-120b --vary gpu=l4,l40s,h100-sxm,h200 --vary context=8k,32k,128k --format csv",
        ),
        (
            "a long one, which may be stopped and started again",
            "kvtax sweep fleet.jsonl --vary kv_cache_dtype=auto,fp8 -o results.jsonl --resume",
        ),
    ),
    run=run,
)
