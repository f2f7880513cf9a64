"""The header of a GGUF file, read front to back through one window of bytes: nothing is read twice, and no more than a bound."""

from __future__ import annotations

import struct
from typing import Any

from kvtax.errors import ConfigError
from kvtax.safe_text import safe
from kvtax.sources.byte_source import ByteSource

FIRST_READ_BYTES = 2**20
LARGEST_READ_BYTES = 16 * 2**20
MAXIMUM_HEADER_BYTES = 256 * 2**20
"""Published headers have up to 16 MB, nearly all of it vocabulary."""

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


class HeaderWindow:
    """A place in a file, and the bytes from there on that are at hand.

    Args:
        source: the file.
        first_read_bytes: size of the first read; each later one is twice as large, up to 16 MiB [bytes].
    """

    def __init__(self, source: ByteSource, first_read_bytes: int = FIRST_READ_BYTES) -> None:
        self.source = source
        self._next_read_bytes = min(max(first_read_bytes, 64), LARGEST_READ_BYTES)
        self._bytes = b""
        self._start = 0
        self._at = 0
        self._end: int | None = None

    @property
    def position(self) -> int:
        """Where in the file the next item begins [bytes]."""
        return self._start + self._at

    @property
    def file_bytes(self) -> int | None:
        """Length of the file, as far as it is known by now [bytes]."""
        return self.source.size if self._end is None else self._end

    def error(self, message: str, code: str, key: str = "", hint: str = "") -> ConfigError:
        """What is wrong with the file, and where in it: below a key or a tensor where one is named, else at the position."""
        place = f" ({safe(key, 64)})" if key else f" (byte {self.position})"
        return ConfigError(message + place, code=code, where=self.source.name, hint=hint)

    def u32(self) -> int:
        """The next unsigned 32-bit number."""
        return int(self.unpack(_U32)[0])

    def u64(self) -> int:
        """The next unsigned 64-bit number."""
        return int(self.unpack(_U64)[0])

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next numbers of a layout.

        Raises:
            ConfigError: the file ends before (`header-cut`).
        """
        if self._at + layout.size > len(self._bytes):
            self._need(layout.size)
        values = layout.unpack_from(self._bytes, self._at)
        self._at += layout.size
        return values

    def text(self, length: int, key: str = "") -> str:
        """The next bytes as a word.

        Raises:
            ConfigError: not UTF-8 (`header-not-utf8`), or the file ends before.
        """
        self._need(length)
        raw = self._bytes[self._at : self._at + length]
        try:
            found = raw.decode()
        except UnicodeDecodeError:
            raise self.error("a text is not UTF-8", "header-not-utf8", key) from None
        self._at += length
        return found

    def check_room(self, count: int, item_bytes: int, what: str, key: str = "") -> None:
        """Count x least bytes of an item must fit into the rest of the file, and into the largest header.

        Raises:
            ConfigError: code `count-beyond-file` or `header-too-large`.
        """
        end = self.file_bytes
        if end is not None and count * item_bytes > end - self.position:
            raise self.error(f"{count} {what} are more than the file can hold", "count-beyond-file", key)
        self._check_bound(self.position + count * item_bytes, key)

    def skip(self, length: int, key: str = "") -> None:
        """Go on past bytes, which are not read where they are not at hand.

        Raises:
            ConfigError: the file, or the largest header, ends before.
        """
        at = self._at + length
        if at > len(self._bytes):
            self._jump(self._start + at, key)
        else:
            self._at = at

    def skip_texts(self, count: int, key: str) -> None:
        """Go on past so many texts, by their lengths alone."""
        length_of = _U64.unpack_from
        while count:
            data, at, done = self._bytes, self._at, 0
            try:
                # a step for each of up to a million texts, without a check: what goes beyond the window is seen below
                for done in range(count):  # noqa: B007
                    at += 8 + length_of(data, at)[0]
                done = count
            except (struct.error, OverflowError):
                pass
            count -= done
            self.skip(at - self._at, key)
            if count:
                self._need(8)

    def _check_bound(self, position: int, key: str) -> None:
        if position > MAXIMUM_HEADER_BYTES:
            raise self.error(
                f"the header would be larger than {MAXIMUM_HEADER_BYTES // 2**20} MiB", "header-too-large", key
            )

    def _jump(self, position: int, key: str) -> None:
        """Leave the window; where the length is not known, by reading the byte before, which shows that the file goes so far."""
        end = self.file_bytes
        if end is not None and position > end:
            raise self.error("a text or an array goes beyond the end of the file", "header-cut", key)
        self._check_bound(position, key)
        self._bytes, self._start, self._at = b"", position, 0
        if end is None:
            self._start -= 1
            self._need(1)
            self._at = 1

    def _need(self, length: int) -> None:
        """Have so many bytes from here on at hand.

        Raises:
            ConfigError: the file ends before (`header-cut`), or the header is too large.
        """
        missing = self._at + length - len(self._bytes)
        if missing <= 0:
            return
        self._check_bound(self.position + length, "")
        start = self._start + len(self._bytes)
        end = self.file_bytes
        if end is not None and missing > end - start:
            raise self.error("the file ends within its header", "header-cut", hint="is it whole?")
        wanted = max(missing, self._next_read_bytes)
        if end is not None:
            wanted = min(wanted, end - start)
        data = self.source.read(start, wanted)[:wanted]
        self._next_read_bytes = min(2 * self._next_read_bytes, LARGEST_READ_BYTES)
        if len(data) < wanted:
            self._end = start + len(data)
        if len(data) < missing:
            raise self.error("the file ends within its header", "header-cut", hint="is it whole?")
        self._start, self._bytes, self._at = self.position, self._bytes[self._at :] + data, 0
