"""What any source says of a model, by the same names as everywhere, before a Model is made of it."""

from __future__ import annotations

import os
import re

from kvtax.errors import KvtaxError
from kvtax.sources.found import Found
from kvtax.sources.local import looks_like_path, split_variant
from kvtax.sources.models import ModelEntry, find_model, read_config, read_quant_config
from kvtax.sources.places import STORES, place_elsewhere, place_of
from kvtax.sources.resolve import CODE_KEYS, about_entry

_USUAL = ("config", "model", "consolidated", "pytorch_model")
"""Files that are called so say nothing of which model they are: their folder does."""
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_ODD = re.compile(r"[^A-Za-z0-9._:/@+-]+")


def find_facts(name: str) -> Found:
    """What is found of a model: on a path, in a store, in the embedded catalogue, or on the hub.

    Args:
        name: of the model.

    Raises:
        KvtaxError: it cannot be had, or is wrong.
    """
    place = place_of(name)
    if place is not None:
        return place.read()
    try:
        entry = find_model(name)
    except KvtaxError as error:
        return place_elsewhere(name, error).read()
    return _of_entry(entry)


def _of_entry(entry: ModelEntry) -> Found:
    # keys that name code of a repository say something about a file from there, and this is none any more
    config = {key: value for key, value in read_config(entry).items() if key not in CODE_KEYS}
    return Found(
        entry.id,
        f"the catalogue: {entry.source}",
        config,
        read_quant_config(entry),
        runner=entry.runner,
        notices=tuple(about_entry(entry)),
    )


def short_name(name: str, found: Found) -> str:
    """What an entry of a model may be called: its id on the hub or in the catalogue, the name in the store, that of the file or folder.

    >>> short_name("ollama:llama3.1:8b", Found("ollama:llama3.1:8b", "Ollama's store"))
    'llama3.1:8b'
    >>> short_name("models/Tiny-8B/config.json", Found("x", "file x"))
    'Tiny-8B'
    """
    if name.lower().startswith(STORES):
        shown = name.partition(":")[2]
    elif looks_like_path(name) or found.place.startswith(("file ", "folder ")):
        shown = _of_path(name)
    else:
        shown = found.id
    return _ODD.sub("-", shown)


def _of_path(name: str) -> str:
    path, variant = split_variant(os.path.expanduser(name))
    folder, base = os.path.split(os.path.abspath(path))
    if not os.path.isdir(path):
        base = _SHARD.sub("", os.path.splitext(base)[0])
        base = os.path.basename(folder) if base in _USUAL else base
    return f"{base}:{variant}" if variant else base
