"""Bytes of a file, wherever it lies: read by range, so that a header can be had without the rest."""

from __future__ import annotations

import os
from typing import Protocol

from kvtax.errors import ConfigError
from kvtax.safe_text import safe


class ByteSource(Protocol):
    """A file that is read by range."""

    @property
    def name(self) -> str:
        """What messages call it: a path, or `org/name: model.safetensors`; safe to show."""

    @property
    def size(self) -> int | None:
        """Length of the file; None before the first read where only the server knows it [bytes]."""

    def read(self, start: int, length: int) -> bytes:
        """At most `length` bytes from `start` on: fewer only where the file ends.

        Raises:
            KvtaxError: they cannot be had.
        """


class BytesInMemory:
    """Bytes at hand.

    Args:
        data: the whole file.
        name: for messages.
    """

    def __init__(self, data: bytes, name: str = "(bytes)") -> None:
        self._data = data
        self.name = safe(name)
        self.size: int = len(data)

    def read(self, start: int, length: int) -> bytes:
        """A slice."""
        return self._data[start : start + length]


class LocalFile:
    """A regular file on this disk; opened for each read, never written.

    Args:
        path: of the file.

    Raises:
        ConfigError: there is none, or it is no regular file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = safe(path)
        try:
            regular = os.path.isfile(path)
            self.size: int = os.path.getsize(path) if regular else 0
        except (OSError, ValueError):
            regular = False
        if not regular:
            raise ConfigError("there is no such regular file", code="unreadable-file", where=self.name)

    def read(self, start: int, length: int) -> bytes:
        """A part of the file.

        Raises:
            ConfigError: it cannot be read.
        """
        try:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(start)
                return self._read_whole(file.fileno(), length)
        except OSError as error:
            reason = error.strerror or "an error of the disk"
            raise ConfigError(f"cannot be read: {reason}", code="unreadable-file", where=self.name) from None

    @staticmethod
    def _read_whole(descriptor: int, length: int) -> bytes:
        parts, left = [], length
        while left > 0:
            part = os.read(descriptor, min(left, 2**24))
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
