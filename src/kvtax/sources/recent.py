"""Models outside the catalogue that were read a moment ago: several cards ask for one model, which is read once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvtax.sources.resolve import Model

HUB_SECONDS = 60.0
"""How long an answer of the hub is taken as fresh within one process [s]."""
_MOST = 64
_read: dict[tuple[str, object], tuple[float, Model]] = {}


def read_once(name: str, read: Callable[[], Model], folder: str = "") -> Model:
    """The model of a name: read now, unless it was a moment ago and nothing has changed since.

    Args:
        name: of the model.
        read: reads it.
        folder: whose files are looked at for changes; '' for what is not on this disk, which is read again after a minute.
    """
    key = (name, folder_state(folder) if folder else os.environ.get("HF_ENDPOINT"))
    known = _read.get(key)
    if known is not None and (folder or time.monotonic() - known[0] < HUB_SECONDS):
        return known[1]
    model = read()
    if len(_read) >= _MOST:
        _read.clear()
    _read[key] = (time.monotonic(), model)
    return model


def folder_state(folder: str) -> object:
    """Names, sizes and times of the files of a folder."""
    try:
        with os.scandir(folder) as entries:
            found = []
            for entry in entries:
                stat = entry.stat()
                found.append((entry.name, stat.st_size, stat.st_mtime_ns))
            return tuple(sorted(found))
    except OSError:
        return object()
