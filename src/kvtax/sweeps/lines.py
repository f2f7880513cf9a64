"""Deployments from text, one a line: JSON objects or CSV records, each read strictly and on its own, so that a bad line spoils no other."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, BinaryIO, NamedTuple

from kvtax.errors import InputError, KvtaxError

MAXIMUM_LINE_BYTES = 2**20
"""A longer line is an error line, and is never held [bytes]."""
_SKIPPED_AT_ONCE = 2**16
_BOM = b"\xef\xbb\xbf"
_WIDE = (b"\xff\xfe", b"\xfe\xff")
_DELIMITERS = (",", ";", "\t")


class Line(NamedTuple):
    """What one line says.

    Args:
        number: in its file, from 1 (the record's, for Parquet); None where no file was read.
        fields: names and values as they are written; None where the line cannot be read.
        error: why it cannot.
        bytes: that it takes [bytes].
    """

    number: int | None
    fields: Mapping[str, Any] | None
    error: KvtaxError | None = None
    bytes: int = 0


def json_lines(stream: BinaryIO, where: str) -> Iterator[Line]:
    """The lines of a JSONL file; empty ones are left out.

    Raises:
        InputError: the file is not in UTF-8 at all.
    """
    for number, data in _physical_lines(stream, where):
        if data is None:
            yield _too_long(number)
        elif data.strip():
            yield _read_json(number, data)


def csv_lines(stream: BinaryIO, where: str) -> tuple[tuple[str, ...], Iterator[Line]]:
    """The column names of a CSV file, and its records; empty lines are left out.

    A record is one line: a quote that is not closed spoils its own line alone. The delimiter is a comma, a semicolon or a tab,
    whichever comes first in the header.

    Raises:
        InputError: no header, a header that cannot be read, or a column that stands twice.
    """
    lines = _physical_lines(stream, where)
    for _, data in lines:
        if data is not None and not data.strip():
            continue
        text = _header_text(data, where)
        places = {text.index(sign): sign for sign in _DELIMITERS if sign in text}
        delimiter = places[min(places)] if places else ","
        header = tuple(cell.strip() for cell in _cells(text, delimiter))
        twice = sorted({name for name in header if header.count(name) > 1})
        if "" in header or twice:
            problem = f"column {twice[0]!r:.66} stands twice" if any(twice) else "a column has no name"
            raise InputError(f"{problem} in the header", code="invalid-header", where=where)
        return header, _records(lines, header, delimiter)
    raise InputError(
        "is empty",
        code="invalid-header",
        where=where,
        hint="a CSV begins with the names of its fields: model,gpu,context",
    )


def _physical_lines(stream: BinaryIO, where: str) -> Iterator[tuple[int, bytes | None]]:
    """Lines without their ends, None for one that is too long; its bytes are read past and not kept."""
    number = 0
    while data := stream.readline(MAXIMUM_LINE_BYTES + 2):
        number += 1
        if number == 1:
            if data.startswith(_WIDE):
                raise InputError(
                    "is UTF-16", code="invalid-encoding", where=where, hint="save it as UTF-8 (in Excel: CSV UTF-8)"
                )
            data = data.removeprefix(_BOM)
        if len(data) > MAXIMUM_LINE_BYTES and not data.endswith(b"\n"):
            while data and not data.endswith(b"\n"):
                data = stream.readline(_SKIPPED_AT_ONCE)
            yield number, None
            continue
        yield number, data.rstrip(b"\r\n")


def _too_long(number: int) -> Line:
    error = InputError(f"the line is longer than {MAXIMUM_LINE_BYTES // 2**20} MiB", code="line-too-long")
    return Line(number, None, error)


def _read_json(number: int, data: bytes) -> Line:
    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant, parse_float=_float
        )
    except KvtaxError as error:
        return Line(number, None, error, len(data))
    except UnicodeDecodeError as error:
        return _unreadable(number, f"is not UTF-8 (byte {error.start})", len(data))
    except RecursionError:
        return _unreadable(number, "is nested too deeply", len(data))
    except json.JSONDecodeError as error:
        return _unreadable(number, f"is not JSON: {error.msg} at column {error.colno}", len(data))
    except ValueError:
        return _unreadable(number, "holds a number with too many digits", len(data))
    if not isinstance(value, dict):
        return _unreadable(number, "is not a JSON object", len(data))
    return Line(number, value, None, len(data))


def _unreadable(number: int, problem: str, size: int = 0, code: str = "invalid-json") -> Line:
    hint = '{"model": "llama-3-8b", "gpu": "l4"}' if code == "invalid-json" else ""
    return Line(number, None, InputError(f"the line {problem}", code=code, hint=hint), size)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{twice!r:.66} stands twice in the line", code="duplicate-key")
    return found


def _constant(word: str) -> Any:
    raise InputError(f"the line holds {word}, which is not JSON", code="invalid-json")


def _float(word: str) -> float:
    number = float(word)
    if not isfinite(number):
        raise InputError(f"the line holds {word[:32]}, which is too large a number", code="invalid-json")
    return number


def _header_text(data: bytes | None, where: str) -> str:
    if data is None:
        raise InputError("the header is longer than 1 MiB", code="invalid-header", where=where)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"the header is not UTF-8 (byte {error.start})",
            code="invalid-encoding",
            where=where,
            hint="save it as UTF-8",
        ) from None
    if "\0" in text:
        raise InputError("the header holds a NUL: this is no text", code="invalid-header", where=where)
    try:
        _cells(text, ",")
    except csv.Error as error:
        raise InputError(f"the header cannot be read: {error}", code="invalid-header", where=where) from None
    return text


def _cells(text: str, delimiter: str) -> list[str]:
    return next(csv.reader((text,), delimiter=delimiter, strict=True), [])


def _records(lines: Iterator[tuple[int, bytes | None]], header: Sequence[str], delimiter: str) -> Iterator[Line]:
    for number, data in lines:
        if data is None:
            yield _too_long(number)
        elif data.strip():
            yield _read_record(number, data, header, delimiter)


def _read_record(number: int, data: bytes, header: Sequence[str], delimiter: str) -> Line:
    size = len(data)
    try:
        text = data.decode("utf-8")
        if "\0" in text:
            return _unreadable(number, "holds a NUL", size, "invalid-csv")
        cells = _cells(text, delimiter)
    except UnicodeDecodeError as error:
        return _unreadable(number, f"is not UTF-8 (byte {error.start})", size, "invalid-csv")
    except csv.Error as error:
        problem = "has a quote that is not closed" if "unexpected end" in str(error) else f"is not CSV: {error}"
        return _unreadable(number, problem, size, "invalid-csv")
    if len(cells) != len(header):
        return _unreadable(number, f"has {len(cells)} cells, the header {len(header)}", size, "invalid-csv")
    return Line(number, dict(zip(header, cells, strict=True)), None, size)
