"""What a folder on this disk holds: names, kinds and sizes; nothing in it is opened."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from kvtax.errors import ConfigError
from kvtax.safe_text import safe

MAXIMUM_ENTRIES = 10_000
"""A folder with more is no folder of one model, and reading it would keep people waiting."""

FILE, FOLDER, OTHER = "file", "folder", "other"


class Entry(NamedTuple):
    """One name in a folder.

    Args:
        name: as it stands on the disk; not safe to show.
        kind: `file` (a regular one, links followed), `folder`, or `other` (FIFO, device, socket, a link to nowhere or in a loop).
        size: of a file [bytes], else None.
    """

    name: str
    kind: str
    size: int | None


def list_folder(path: str, maximum: int = MAXIMUM_ENTRIES) -> list[Entry]:
    """The entries of a folder by name.

    Args:
        path: of the folder.
        maximum: more entries are an error [entries].

    Raises:
        ConfigError: it cannot be read (`unreadable-folder`), or holds too much (`too-many-files`).
    """
    found: list[Entry] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if len(found) >= maximum:
                    raise ConfigError(f"holds more than {maximum:,} entries", code="too-many-files", where=safe(path))
                found.append(_entry(entry))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise ConfigError(f"this folder cannot be read: {reason}", code="unreadable-folder", where=safe(path)) from None
    return sorted(found)


def name_in_folder(folder: str, wanted: str) -> str | None:
    """The entry that is called so: the exact name first, else one that differs in case only; None where there is none.

    Args:
        folder: where to look.
        wanted: one name, checked by the caller: no separator, no `..`.

    Raises:
        ConfigError: the folder cannot be read.
    """
    names = [entry.name for entry in list_folder(folder)]
    if wanted in names:
        return wanted
    return next((name for name in names if name.lower() == wanted.lower()), None)


def _entry(entry: os.DirEntry[str]) -> Entry:
    try:
        status = entry.stat()
    except OSError:  # a link to nowhere or in a loop
        return Entry(entry.name, OTHER, None)
    if stat.S_ISREG(status.st_mode):
        return Entry(entry.name, FILE, status.st_size)
    return Entry(entry.name, FOLDER if stat.S_ISDIR(status.st_mode) else OTHER, None)
