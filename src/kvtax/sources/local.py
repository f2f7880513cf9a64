"""A model on this disk: a config.json, or a directory that holds one."""

from __future__ import annotations

import os
from typing import Any

from kvtax.errors import ConfigError
from kvtax.sources.safe_json import MAXIMUM_CONFIG_BYTES, parse_json
from kvtax.terms import Notice


def looks_like_path(name: str) -> bool:
    """Whether a model's name means a place on this disk: it is written as a path, or a config is there.

    A folder without a config.json that happens to be called like an alias (`llama-3-8b/` with results) hides nothing.
    """
    if (
        name.startswith(("./", "../", "/", "~", ".\\", "..\\"))
        or name.endswith((".json", "/", "\\"))
        or name in (".", "..")
    ):
        return True
    if os.path.isabs(name):
        return True
    return os.path.isfile(os.path.join(name, "config.json")) or ("/" in name and os.path.isfile(name))


def read_local(path: str) -> tuple[dict[str, Any], dict[str, Any] | None, list[Notice]]:
    """The config of a path: the parsed config.json, the hf_quant_config.json beside it where there is one, and notices.

    Raises:
        ConfigError: no such file, not readable, or not a config (code `no-config`, `unreadable-file`, `invalid-json` ...).
    """
    path = os.path.expanduser(path)
    directory = path if os.path.isdir(path) else ""
    file = os.path.join(directory, "config.json") if directory else path
    shown = _shown(file)
    if directory and not os.path.isfile(file):
        raise ConfigError("this directory holds no config.json", code="no-config", where=_shown(path))
    config, notices = parse_json(read_bytes(file, shown), shown)
    extra = None
    beside = os.path.join(os.path.dirname(file), "hf_quant_config.json")
    if os.path.basename(file) == "config.json" and os.path.isfile(beside):
        extra, more = parse_json(read_bytes(beside, _shown(beside)), _shown(beside))
        notices += more
    return config, extra, notices


def index_total_bytes(path: str) -> int | None:
    """The bytes of all shards as the index beside a config states them, or None."""
    path = os.path.expanduser(path)
    directory = path if os.path.isdir(path) else os.path.dirname(path)
    index = os.path.join(directory, "model.safetensors.index.json")
    if not os.path.isfile(index):
        return None
    try:
        values, _ = parse_json(read_bytes(index, _shown(index)), _shown(index))
    except ConfigError:
        return None
    metadata = values.get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(size, float) and size.is_integer():
        size = int(size)
    return size if isinstance(size, int) and not isinstance(size, bool) and 0 < size < 2**60 else None


def read_bytes(path: str, where: str) -> bytes:
    """The bytes of a regular file, one more than the most that a config may have at most.

    Raises:
        ConfigError: it does not exist, is no regular file, or cannot be read.
    """
    try:
        if not os.path.isfile(path):
            missing = not os.path.exists(path)
            raise ConfigError(
                "there is no such file" if missing else "is not a regular file", code="unreadable-file", where=where
            )
        with open(path, "rb") as file:
            return file.read(MAXIMUM_CONFIG_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise ConfigError(f"cannot be read: {reason}", code="unreadable-file", where=where) from None


def _shown(path: str) -> str:
    return path if path.isprintable() and len(path) <= 256 else ascii(path)[:256]
