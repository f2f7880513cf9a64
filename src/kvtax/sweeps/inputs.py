"""The file of deployments that a sweep reads: opened once and read as it goes, whatever its size."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

from kvtax.errors import InputError
from kvtax.safe_text import safe
from kvtax.sweeps.job import ID, check_columns, field_key
from kvtax.sweeps.lines import Line, csv_lines, json_lines

JSONL, CSV, PARQUET = "jsonl", "csv", "parquet"
FORMATS = (JSONL, CSV, PARQUET)
ENDINGS = {
    ".jsonl": JSONL, ".ndjson": JSONL, ".json": JSONL, ".csv": CSV, ".tsv": CSV, ".parquet": PARQUET, ".pq": PARQUET,
}  # fmt: skip
"""The format that the end of a file's name says."""
_READ_AT_ONCE = 2**20


class Source(NamedTuple):
    """Deployments on their way in.

    Args:
        format: jsonl, csv or parquet.
        lines: one after the other; reading them may raise what is wrong with the file as a whole.
        columns: fields that the columns stand for; None where each line has its own (JSONL).
        line_count: lines, at most; None where that is not known beforehand.
        digest: of the bytes of the file; None where it cannot be read twice (a pipe).
        path: of a file that can be read again; None for any other.
        stream: that the lines come from.
    """

    format: str
    lines: Iterator[Line]
    columns: tuple[str, ...] | None
    line_count: int | None
    digest: str | None
    path: str | None
    stream: BinaryIO

    def close(self) -> None:
        """Close the file; standard input stays open."""
        _close(self.stream)


class Size(NamedTuple):
    """What one pass over a file tells of it."""

    lines: int
    digest: str


def format_of(path: str) -> str | None:
    """The format that a name's end says, None for any other.

    >>> format_of("many.CSV"), format_of("many")
    ('csv', None)
    """
    return ENDINGS.get(os.path.splitext(path)[1].lower())


def open_source(path: str, input_format: str | None, keep: Sequence[str] = ()) -> Source:
    """A file of deployments; `-` is standard input.

    Args:
        path: of the file.
        input_format: jsonl, csv or parquet; None: by the end of the name, JSONL on standard input.
        keep: columns that are carried through.

    Raises:
        InputError: it cannot be read, or its columns are not fields.
    """
    chosen = input_format or (JSONL if path == "-" else format_of(path))
    if chosen is None:
        raise InputError(
            f"the name {safe(path, 96)!r} does not say what is in it",
            code="unknown-format",
            hint="say it: --input-format jsonl, csv or parquet",
        )
    where = "stdin" if path == "-" else safe(path)
    stream, regular = _open(path, where)
    try:
        return _read_head(stream, chosen, path, where, regular, keep)
    except BaseException:
        _close(stream)
        raise


def _read_head(stream: BinaryIO, chosen: str, path: str, where: str, regular: bool, keep: Sequence[str]) -> Source:
    """The source of a file whose first bytes are read."""
    if chosen == PARQUET and not regular:
        raise InputError(
            "Parquet is read from a file", code="invalid-input", where=where, hint="a pipe takes jsonl or csv"
        )
    size = _measure(stream) if regular else None
    count = size and size.lines
    names: tuple[str, ...] | None = None
    if chosen == PARQUET:
        from kvtax.sweeps.parquet import read_parquet

        names, count, lines = read_parquet(stream, where)
    elif chosen == CSV:
        names, lines = csv_lines(stream, where)
        count = count and count - 1
    else:
        lines = json_lines(stream, where)
    columns = None if names is None else check_columns(names, keep, where)
    _check_kept(names, keep, where)
    again = path if regular and path != "-" else None
    return Source(chosen, lines, columns, count, size and size.digest, again, stream)


def _close(stream: BinaryIO) -> None:
    if sys.stdin is None or stream is not getattr(sys.stdin, "buffer", None):
        stream.close()


def fields_of_lines(source: Source, keep: Sequence[str]) -> tuple[str, ...]:
    """The fields that the lines of a JSONL file name, by reading it once more than it is answered.

    Raises:
        InputError: it cannot be read.
    """
    from kvtax.deployment import Deployment, find_field

    if source.path is None:
        return tuple(name for name in Deployment._fields if name != "engine")
    stream, _ = _open(source.path, safe(source.path))
    found: dict[str, None] = {}
    seen: set[str] = set()
    with stream:
        for line in json_lines(stream, safe(source.path)):
            for name in (line.fields or {}).keys() - seen:
                if len(seen) < 10_000:
                    seen.add(name)
                try:
                    found[find_field(field_key(name))] = None
                except InputError:
                    continue  # `id`, a column that is carried through, or an error line
    return tuple(name for name in found if name not in keep)


def _open(path: str, where: str) -> tuple[BinaryIO, bool]:
    if path == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise InputError(
                "no deployments come on standard input",
                code="no-input",
                hint="pipe them in: kvtax sweep - < many.jsonl",
            )
        return sys.stdin.buffer, False
    try:
        place = os.path.expanduser(path)
        mode = os.stat(place).st_mode
        if stat.S_ISDIR(mode):
            raise InputError("is a directory", code="unreadable-file", where=where, hint="name a file of deployments")
        return open(place, "rb", buffering=_READ_AT_ONCE), stat.S_ISREG(mode)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise InputError(f"cannot be read: {reason}", code="unreadable-file", where=where) from None


def _measure(stream: BinaryIO) -> Size:
    from hashlib import sha256

    digest, lines, last = sha256(), 0, b"\n"
    while data := stream.read(_READ_AT_ONCE):
        digest.update(data)
        lines += data.count(b"\n")
        last = data[-1:]
    stream.seek(0)
    return Size(lines + (last != b"\n"), digest.hexdigest())


def _check_kept(names: Sequence[str] | None, keep: Sequence[str], where: str) -> None:
    for name in keep:
        if names is not None and name not in names and name != ID:
            raise InputError(
                f"there is no column {name!r:.66} to carry through",
                code="unknown-field",
                where=where,
                hint="columns: " + safe(", ".join(names)),
            )
