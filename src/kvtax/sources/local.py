"""A model on this disk, by path: a folder, a config.json, a safetensors file, a GGUF file or one of its shards."""

from __future__ import annotations

import os
from typing import Any

from kvtax.errors import ConfigError
from kvtax.safe_text import safe
from kvtax.sources.safe_json import MAXIMUM_CONFIG_BYTES, parse_json

GGUF, SAFETENSORS = ".gguf", ".safetensors"
NEVER_OPENED = (".bin", ".pt", ".pth", ".ckpt", ".npz", ".pkl", ".msgpack", ".h5")
"""Files that may run code when they are opened by what made them: their sizes are all that is read."""

_LOOKED_AT = 10_000


def looks_like_path(name: str) -> bool:
    """Whether a model's name means a place on this disk: it is written as a path, or such a file is there.

    A folder without a config.json that happens to be called like an alias (`llama-3-8b/` with results) hides nothing.
    """
    if is_written_as_path(name):
        return True
    try:
        if os.path.isfile(os.path.join(name, "config.json")) or ("/" in name and os.path.isfile(name)):
            return True
        return "/" in name and os.path.isdir(name) and _holds_weights(name)
    except (OSError, ValueError):
        return False


def _holds_weights(folder: str) -> bool:
    with os.scandir(folder) as entries:
        return any(
            entry.name.endswith((GGUF, SAFETENSORS)) for entry, _ in zip(entries, range(_LOOKED_AT), strict=False)
        )


def is_written_as_path(name: str) -> bool:
    """Whether a name can only be a path by its words, whatever is on this disk: `./x`, `/x`, `x.gguf`, but not `org/name:x.gguf`."""
    if name.startswith(("./", "../", "/", "~", ".\\", "..\\")) or name in (".", "..") or os.path.isabs(name):
        return True
    if name.endswith(GGUF) and (":" in name or name.startswith(("hf.co/", "huggingface.co/"))):
        from kvtax.sources.hub.names import looks_like_hub_name

        return not looks_like_hub_name(name)
    return name.endswith((".json", GGUF, SAFETENSORS, *NEVER_OPENED, "/", "\\"))


def split_variant(name: str) -> tuple[str, str]:
    """`folder:Q4_K_M` -> the folder and the quantisation, where the folder is there and the whole is not."""
    folder, colon, variant = name.rpartition(":")
    if colon and variant and "/" not in variant and not os.path.exists(name) and os.path.isdir(folder):
        return folder, variant
    return name, ""


def read_config_file(path: str) -> tuple[dict[str, Any], dict[str, Any] | None, list[Any]]:
    """The parsed config.json, the hf_quant_config.json beside it where there is one, and notices.

    Raises:
        ConfigError: no such file, not readable, or not a config (code `unreadable-file`, `invalid-json` ...).
    """
    shown = safe(path)
    config, notices = parse_json(read_bytes(path, shown), shown)
    extra = None
    beside = os.path.join(os.path.dirname(path), "hf_quant_config.json")
    if os.path.basename(path) == "config.json" and os.path.isfile(beside):
        extra, more = parse_json(read_bytes(beside, safe(beside)), safe(beside))
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
        values, _ = parse_json(read_bytes(index, safe(index)), safe(index))
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
