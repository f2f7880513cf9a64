"""What a sweep answers: the base that every deployment starts from, the grid that each is crossed with, and the form of a result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from kvtax.deployment import Deployment, find_field, read_field
from kvtax.errors import InputError, KvtaxError
from kvtax.hardware.gpu import Gpu
from kvtax.planning.grid import Axis, read_value
from kvtax.sweeps.lines import Line

ID = "id"
"""The column that is carried through unasked."""
JSON_TEXT, CSV_TEXT, RESULTS = "jsonl", "csv", "results"
CHUNK_ROWS = 128
"""Deployments that one worker takes at a time: some tenths of a second."""
CHUNK_BYTES = 2**20
"""A chunk of long lines ends here [bytes]."""


class Job(NamedTuple):
    """All that a worker needs beside the lines themselves; it can be pickled.

    Args:
        base: fields, checked, that a line may override.
        axes: of the grid; the last one changes fastest.
        words: whether the values of lines are words (CSV), not JSON.
        keep: names of columns that are carried through.
        form: jsonl, csv or results.
        columns: fields of a Deployment that a CSV has columns for.
        full: whether a result holds its whole budget.
        gpus: cards of one's own.
    """

    base: Mapping[str, Any] = {}
    axes: tuple[Axis, ...] = ()
    words: bool = False
    keep: tuple[str, ...] = ()
    form: str = RESULTS
    columns: tuple[str, ...] = ()
    full: bool = False
    gpus: tuple[Gpu, ...] = ()

    @property
    def cells(self) -> int:
        """Deployments that one line makes."""
        return prod(len(axis.values) for axis in self.axes)

    def cell(self, index: int) -> dict[str, Any]:
        """The fields of one cell of the grid, the last axis fastest.

        >>> Job(axes=(Axis("a", (1, 2)), Axis("b", (3, 4, 5)))).cell(4)
        {'b': 4, 'a': 2}
        """
        found: dict[str, Any] = {}
        for axis in reversed(self.axes):
            index, place = divmod(index, len(axis.values))
            found[axis.name] = axis.values[place]
        return found


class Piece(NamedTuple):
    """A line, and the cells of the grid that it is crossed with here: from `first` up to, and without, `last`."""

    line: Line
    first: int
    last: int


class Chunk(NamedTuple):
    """Deployments that are answered together, by one worker.

    Args:
        first_row: number of the first one in the whole sweep, from 1.
        pieces: lines and cells.
        models: what was read of models outside the catalogue: name, digest, pickled.
    """

    first_row: int
    pieces: tuple[Piece, ...]
    models: tuple[tuple[str, str, bytes], ...] = ()

    @property
    def rows(self) -> int:
        """Deployments in it."""
        return sum(piece.last - piece.first for piece in self.pieces)


def cut(lines: Iterable[Line], cells: int, done: int = 0) -> Iterator[Chunk]:
    """Lines crossed with a grid, in chunks; neither is ever held whole.

    Args:
        lines: in order.
        cells: of the grid.
        done: deployments at the beginning that are answered already.
    """
    row, size = done + 1, 0
    pieces: list[Piece] = []
    rows = 0
    before = 0
    for line in lines:
        first = max(done - before, 0)
        before += cells
        while first < cells:
            last = min(cells, first + CHUNK_ROWS - rows)
            pieces.append(Piece(line, first, last))
            rows, size = rows + last - first, size + line.bytes
            if rows == CHUNK_ROWS or size >= CHUNK_BYTES:
                yield Chunk(row, tuple(pieces))
                row, pieces, rows, size = row + rows, [], 0, 0
            first = last
    if pieces:
        yield Chunk(row, tuple(pieces))


def read_base(fields: Mapping[str, Any], axes: Sequence[Axis] = ()) -> dict[str, Any]:
    """The fields that every deployment starts from, checked; None is as good as left out.

    Raises:
        InputError: a field that is not one, is given twice, is varied too, or a value that cannot be.
    """
    found: dict[str, Any] = {}
    for key, value in fields.items():
        if value is None:
            continue
        name, checked = read_field(key, value)
        if name in found:
            raise InputError(f"{name} is given twice", code="field-given-twice", where=name)
        found[name] = checked
    for axis in axes:
        if axis.name in found:
            raise InputError(
                f"{axis.name} is given and varied too", code="field-given-twice", where=axis.name, hint="give it once"
            )
    return found


class LineFields(NamedTuple):
    """A line, read: its own fields, checked, what is carried through, and the first thing that is wrong with it."""

    fields: dict[str, Any]
    kept: dict[str, Any]
    error: KvtaxError | None


def read_line(job: Job, line: Line) -> LineFields:
    """The fields of one line; an empty cell and null are as good as left out, `default` is the engine's default."""
    fields: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    error = line.error
    varied = {axis.name for axis in job.axes}
    for key, value in (line.fields or {}).items():
        try:
            if key == ID or key in job.keep:
                kept[key] = _carried(key, value)
            elif value is not None and not (isinstance(value, str) and not value.strip()):
                name, checked = _field(job, key, value)
                if name in fields or name in varied:
                    why = "is given twice" if name in fields else "is given and varied too"
                    raise InputError(f"{name} {why}", code="field-given-twice", where=name)
                fields[name] = checked
        except KvtaxError as problem:
            error = error or problem
    return LineFields(fields, kept, error)


def _field(job: Job, key: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, str) and (job.words or value == "default"):
        return read_value(key, value)
    return read_field(key, value)


def _carried(key: str, value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise InputError("must be a word or a number", code="invalid-input", where=key)


def check_columns(names: Iterable[str], keep: Sequence[str], where: str) -> tuple[str, ...]:
    """The fields of a Deployment that the columns of a table stand for.

    Raises:
        InputError: a column is no field, and is not carried through either.
    """
    found = []
    for name in names:
        if name == ID or name in keep:
            continue
        try:
            found.append(find_field(field_key(name)))
        except InputError as error:
            raise InputError(
                f"column {name!r:.66} is not a field of a deployment",
                code="unknown-field",
                where=where,
                hint=f"{error.hint} Or carry it through: --keep {name[:64]}"
                if "did you mean" in error.hint
                else f"carry it through: --keep {name[:64]}",
            ) from None
    return tuple(found)


def check_keep(keep: Sequence[str], taken: Iterable[str]) -> None:
    """Whether columns can be carried through under their names.

    Raises:
        InputError: a name is a field of a Deployment, or one of the results.
    """
    for name in keep:
        if name in Deployment._fields or name in set(taken):
            raise InputError(
                f"{name!r:.66} cannot be carried through: results have a column of that name",
                code="invalid-input",
                where="keep",
                hint="only columns that are no fields of a deployment",
            )


def in_order_of_fields(names: Iterable[str]) -> tuple[str, ...]:
    """Fields in the order of a Deployment, each once.

    >>> in_order_of_fields(["gpu", "model", "gpu"])
    ('model', 'gpu')
    """
    found = set(names)
    return tuple(name for name in Deployment._fields if name in found)


def field_key(name: str) -> str:
    """A field's name as it is written on a command line or in Python."""
    return name.strip().removeprefix("--").replace("-", "_")
