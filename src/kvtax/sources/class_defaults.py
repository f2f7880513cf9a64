"""What a key that config.json leaves out is worth: the defaults of each configuration class, one data file per model type."""

from __future__ import annotations

import json
import os
from typing import Any

from kvtax.sources.data_files import configs_dir

_CACHE: dict[str, dict[str, Any] | None] = {}
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-.")


def class_defaults(model_type: object) -> dict[str, Any] | None:
    """The defaults, key spellings and nested types of a model type, or None where none are known.

    A name from a file never reaches the file system unless it is made of letters, digits, `_`, `-` and single dots.
    """
    if not isinstance(model_type, str):  # what a file holds under that key is anything
        return None
    if model_type in _CACHE:
        return _CACHE[model_type]
    found: dict[str, Any] | None = None
    if model_type and len(model_type) <= 64 and set(model_type) <= _NAME_CHARACTERS and ".." not in model_type:
        path = os.path.join(configs_dir(), "defaults", model_type + ".json")
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
        except FileNotFoundError:
            found = None
        if len(_CACHE) < 1024:
            _CACHE[model_type] = found
    return found
