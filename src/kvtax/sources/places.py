"""Where a model outside the catalogue lies, by its name: a path, another program's store, a folder here, or the hub."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kvtax.errors import KvtaxError
from kvtax.sources.local import looks_like_path
from kvtax.sources.models import close_ids, hub_id_of

if TYPE_CHECKING:
    from kvtax.sources.found import Found

STORES = ("ollama:", "lmstudio:", "lm-studio:")
"""What names of models in other programs' stores begin with."""
_NOT_THERE = frozenset(("hub-missing", "hub-private", "hub-offline", "hub-unreachable", "hub-timeout"))


class Place(NamedTuple):
    """Where a model lies.

    Args:
        name: by which it is read once.
        folder: whose files are looked at for changes, '' for what is not on this disk.
        read: reads what is there.
    """

    name: str
    folder: str
    read: Callable[[], Found]


def place_of(name: str) -> Place | None:
    """The place of a name that can only be a path or a name in a store; None for every other name."""
    if looks_like_path(name):
        return _path(name)
    if name.lower().startswith(STORES):
        from kvtax.sources.stores import read_store

        return Place(name, "", lambda: read_store(name))
    return None


def place_elsewhere(name: str, unknown: KvtaxError) -> Place:
    """The place of a name that is not in the catalogue: a folder on this disk, or a repository on the hub.

    Args:
        name: of the model.
        unknown: what the catalogue says.

    Raises:
        KvtaxError: it is neither: `unknown`.
    """
    if os.path.isdir(name.rpartition(":")[0] or name) or os.path.isdir(name):
        return _path(name)
    target = hub_id_of(name)
    if not target or unknown.code == "ambiguous-model":
        raise unknown
    return Place(target, "", lambda: _read_hub(target))


def _read_hub(target: str) -> Found:
    """A repository on the hub; where it is not there, the error names what is spelt nearly so.

    Raises:
        KvtaxError: it cannot be had.
    """
    from kvtax.sources.hub.names import parse_hub_name
    from kvtax.sources.hub.read import read_hub

    try:
        return read_hub(parse_hub_name(target))
    except KvtaxError as error:
        close = close_ids(target) if error.code in _NOT_THERE else []
        if not close:
            raise
        hint = f"did you mean {', '.join(close)}? Otherwise {error.hint[:1].lower()}{error.hint[1:]}"
        raise type(error)(error.message, code=error.code, hint=hint, where=error.where) from None


def _path(name: str) -> Place:
    from kvtax.sources.path_model import read_path

    place = os.path.expanduser(name)
    folder = place if os.path.isdir(place) else os.path.dirname(place) or "."
    return Place(name, folder, lambda: read_path(name))
