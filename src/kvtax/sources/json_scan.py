"""JSON read piece by piece from bytes: a large file of many small entries never becomes one tree of Python objects."""

from __future__ import annotations

import codecs
import json
import re
from math import isfinite
from typing import Any, NoReturn

from kvtax.errors import ConfigError
from kvtax.safe_text import safe

MAXIMUM_NAME_CHARACTERS = 1_024
MAXIMUM_VALUE_BYTES = 4_096
"""Longest value that is decoded as one tree of objects."""
MAXIMUM_VALUE_DEPTH = 128
"""Brackets open inside each other in one value (serde_json's own limit, with which the format's first reader is built)."""
_LONGEST_CHARACTER_BYTES = 12  # a character outside the basic plane as two escapes
_CHUNK_BYTES = 2**20

_SPACE = re.compile(rb"[ \t\n\r]*")
_ESCAPE = (
    rb'\\(?:["\\/bfnrt]|u(?:[0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}'
    rb"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
)
"""An escape of a JSON string; half a surrogate pair is none."""
# at most 1,000 repetitions at once, since the engine remembers each of them
_STRING_PIECE = re.compile(rb'(?:[^"\\\x00-\x1f]+|' + _ESCAPE + rb"){1,1000}")
_SOUND_ESCAPES = re.compile(rb"[^\\]*(?:" + _ESCAPE + rb"[^\\]*)*")
_BRACKET = re.compile(r'[\[{]|[\]}]|"(?:[^"\\]|\\.)*"')


class _RefusedError(Exception):
    """What the decoder's hooks refuse: (code or empty for the scanner's own, problem)."""


def _no_constant(word: str) -> NoReturn:
    raise _RefusedError("", f"{word} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise _RefusedError("", "a number is out of range")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RefusedError("duplicate-key", "a key stands twice in one object")
    return found


def _integer(digits: str) -> int | float:
    """A whole number of 64 bits; `-0` and larger ones are floats, as for serde_json, so that no count is made of them."""
    number = int(digits)
    return number if -(2**63) <= number < 2**64 and digits != "-0" else _finite(digits)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite, parse_int=_integer
)


def check_utf8(data: bytes, where: str, code: str) -> None:
    """Refuse what is not UTF-8, without a decoded copy of the whole.

    Raises:
        ConfigError: with the code, at the first wrong byte.
    """
    if data.isascii():
        return
    position = 0
    try:
        while position < len(data):
            final = position + _CHUNK_BYTES >= len(data)
            position += codecs.utf_8_decode(data[position : position + _CHUNK_BYTES], "strict", final)[1]
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 (byte {position + error.start})", code=code, where=where) from None


class JsonScanner:
    """A place in a JSON text, and what can be read from there.

    Args:
        data: the text, known to be UTF-8.
        where: its name, for messages.
        code: of the error where it is not JSON.
    """

    def __init__(self, data: bytes, where: str, code: str) -> None:
        self.data = data
        self.where = where
        self.code = code
        self.position = 0

    def fail(self, problem: str, code: str = "") -> NoReturn:
        """Refuse the text.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(problem, code=code or self.code, where=self.where)

    def space(self) -> None:
        """Go past spaces, tabs and line ends."""
        self.position = _end(_SPACE.match(self.data, self.position), self.position)

    def peek(self) -> bytes:
        """The byte here; empty at the end."""
        return self.data[self.position : self.position + 1]

    def take(self, *expected: bytes) -> bytes:
        """Go past spaces, one of these bytes and the spaces behind it.

        Raises:
            ConfigError: another byte stands here, or the text ends.
        """
        self.space()
        found = self.peek()
        if found not in expected or not found:
            wanted = " or ".join(mark.decode() for mark in expected)
            seen = f"byte 0x{found.hex()}" if found else "its end"
            self.fail(f"is not JSON: {wanted} expected at byte {self.position}, not {seen}")
        self.position += 1
        self.space()
        return found

    def skip_string(self) -> tuple[int, int]:
        """Go past a string; where its content begins and ends.

        Raises:
            ConfigError: there is none, it does not end, or it holds a control character or half a surrogate pair.
        """
        start = self.position + 1
        if self.peek() != b'"':
            self.fail(f"is not JSON: a string expected at byte {self.position}")
        position = start
        while (piece := _STRING_PIECE.match(self.data, position)) is not None:
            position = piece.end()
        if self.data[position : position + 1] != b'"':
            self.fail(f"is not JSON: the string at byte {start - 1} does not end, or byte {position} cannot be in one")
        self.position = position + 1
        return start, position

    def string(self, maximum: int = MAXIMUM_NAME_CHARACTERS) -> str:
        """A string.

        Raises:
            ConfigError: as skip_string; code `name-too-long` where it has more than `maximum` characters.
        """
        start, end = self.skip_string()
        text = ""
        if end - start <= maximum * _LONGEST_CHARACTER_BYTES:
            text = string_of(self.data[start:end])
        if end - start > maximum * _LONGEST_CHARACTER_BYTES or len(text) > maximum:
            self.fail(f"the name at byte {start} has more than {maximum} characters", "name-too-long")
        return text

    def value(self, maximum_bytes: int = MAXIMUM_VALUE_BYTES) -> Any:
        """Any value of at most `maximum_bytes`, decoded strictly: no duplicate keys, no NaN, no deep nesting.

        Raises:
            ConfigError: it is not JSON, or longer than that; code `duplicate-key` where a key stands twice.
        """
        start = self.position
        piece = self.data[start : start + maximum_bytes]
        text = codecs.utf_8_decode(piece, "strict", False)[0]
        try:
            found, end = _DECODER.raw_decode(text)
        except _RefusedError as refused:
            code, problem = refused.args
            self.fail(f"{problem} (in the value at byte {start})", code)
        except (ValueError, RecursionError):
            if start + maximum_bytes < len(self.data):
                self.fail(f"the value at byte {start} is not JSON, or has more than {maximum_bytes} bytes")
            self.fail(f"the value at byte {start} is not JSON, or is nested too deeply")
        raw = text[:end].encode()
        if b"\\" in raw and _SOUND_ESCAPES.fullmatch(raw) is None:
            self.fail(f"the value at byte {start} holds half a surrogate pair")
        if _depth(text[:end]) > MAXIMUM_VALUE_DEPTH:
            self.fail(f"the value at byte {start} is nested too deeply")
        self.position = start + len(raw)
        return found

    def expect_end(self) -> None:
        """Nothing but spaces is left.

        Raises:
            ConfigError: something is.
        """
        self.space()
        if self.position != len(self.data):
            self.fail(f"is not JSON: something follows its end, at byte {self.position}")


def string_of(raw: bytes) -> str:
    """The text of a JSON string's content, whose form was checked."""
    if b"\\" not in raw:
        return raw.decode()
    return str(json.loads(b'"' + raw + b'"'))


def shown(name: str) -> str:
    """A name from a file as messages quote it."""
    return f"'{safe(name, 128)}'"


def _depth(text: str) -> int:
    if text.count("[") + text.count("{") <= MAXIMUM_VALUE_DEPTH:
        return 0
    deepest = depth = 0
    for mark in _BRACKET.findall(text):
        depth += (mark in "[{") - (mark in "]}")
        deepest = max(deepest, depth)
    return deepest


def _end(found: re.Match[bytes] | None, otherwise: int) -> int:
    return otherwise if found is None else found.end()
