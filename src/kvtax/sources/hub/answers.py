"""What was read of a model on the hub, kept in small JSON files: a commit never changes, so neither does what was read of it.

One file a model and revision, named by a hash, written whole or not at all. It holds no token and no address with one. Whatever is wrong with
such a file, it counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kvtax.errors import InputError, KvtaxError
from kvtax.safe_text import safe
from kvtax.sources.found import Found
from kvtax.sources.gguf import GgufFile, GgufTensorInfo
from kvtax.sources.hub.names import HubName
from kvtax.sources.safe_json import parse_json
from kvtax.sources.safetensors import FileTensor
from kvtax.terms import Notice

SCHEMA = "kvtax.hub-answer/1"
MAXIMUM_BYTES = 64 * 2**20
_PARTIAL = "answer-"
_WRITTEN = re.compile(rf"[0-9a-f]{{64}}\.json|{_PARTIAL}[^/]*\.part")
"""Names of what is written here: answers, and what is left of one that was being written when the process was killed."""


class Answer(NamedTuple):
    """What is known of a revision: the commit (or what stands for it) that it was read at, and what was found."""

    pin: str
    found: Found


def cache_dir(environment: Mapping[str, str] = os.environ) -> str:
    """Where answers are kept: KVTAX_CACHE_DIR, else `kvtax` in the user's cache folder as the system has it."""
    explicit = environment.get("KVTAX_CACHE_DIR")
    if explicit:
        return os.path.expanduser(explicit)
    base = environment.get("XDG_CACHE_HOME")
    if not base:
        if sys.platform == "win32":
            base = environment.get("LOCALAPPDATA") or os.path.join("~", "AppData", "Local")
        else:
            base = os.path.join("~", "Library", "Caches") if sys.platform == "darwin" else os.path.join("~", ".cache")
    return os.path.join(os.path.expanduser(base), "kvtax")


def _folder() -> str:
    return os.path.join(cache_dir(), "hub")


def _path(endpoint: str, name: HubName) -> str:
    key = "\n".join((SCHEMA, endpoint, name.repository, name.revision, name.variant))
    return os.path.join(_folder(), hashlib.sha256(key.encode()).hexdigest() + ".json")


def load(endpoint: str, name: HubName) -> Answer | None:
    """The answer that was kept, None where there is none that can be read."""
    path = _path(endpoint, name)
    try:
        with open(path, "rb") as file:
            data = file.read(MAXIMUM_BYTES + 1)
        value, _ = parse_json(data, path, maximum_bytes=MAXIMUM_BYTES)
        return _from_json(value, name)
    except (OSError, KvtaxError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None


def save(endpoint: str, name: HubName, answer: Answer) -> None:
    """Keep an answer; a disk that cannot be written to is no reason to fail."""
    path = _path(endpoint, name)
    try:
        text = json.dumps(_to_json(answer, name), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        os.makedirs(_folder(), mode=0o700, exist_ok=True)
        if os.path.islink(_folder()):
            return
        descriptor, temporary = tempfile.mkstemp(dir=_folder(), prefix=_PARTIAL, suffix=".part")
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(text)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except (OSError, ValueError):
        return


def kept() -> tuple[int, int]:
    """How many answers are kept, and their bytes."""
    sizes = [size for _, size in _files()]
    return len(sizes), sum(sizes)


def clear() -> tuple[int, int]:
    """Remove all answers, and nothing else; how many were removed, and their bytes.

    Raises:
        InputError: one is left that cannot be removed.
    """
    count = freed = 0
    for path, size in _files():
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise InputError(
                f"cannot be removed: {error.strerror}", code="cannot-write", where=safe(path),
                hint=f"{count} answers were removed before it",
            ) from None  # fmt: skip
        count, freed = count + 1, freed + size
    return count, freed


def _files() -> list[tuple[str, int]]:
    """The files in the folder that were written here, by name and kind, with their sizes [bytes]; a link is none of them."""
    folder = _folder()
    found = []
    try:
        if os.path.islink(folder):
            return []
        with os.scandir(folder) as entries:
            for entry in entries:
                if _WRITTEN.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    found.append((entry.path, entry.stat(follow_symlinks=False).st_size))
    except OSError:
        return found
    return found


# ---- as JSON ----


def _to_json(answer: Answer, name: HubName) -> dict[str, Any]:
    found = answer.found
    return {
        "schema": SCHEMA,
        "model": str(name),
        "pin": answer.pin,
        "id": found.id,
        "place": found.place,
        "config": found.config,
        "quant_config": found.quant_config,
        "tensors": None if found.tensors is None else _packed(found.tensors),
        "weights": found.weights,
        "gguf": None if found.gguf is None else _gguf_to_json(found.gguf),
        "label": found.label,
        "sized_bytes": found.sized_bytes,
        "runner": found.runner,
        "limits": dict(found.limits),
        "settings": dict(found.settings),
        "notices": [[notice.code, notice.message, notice.hint] for notice in found.notices],
    }


def _from_json(value: Mapping[str, Any], name: HubName) -> Answer | None:
    if value.get("schema") != SCHEMA or value["model"] != str(name) or not isinstance(value["pin"], str):
        return None
    tensors = value["tensors"]
    found = Found(
        id=str(value["id"]),
        place=str(value["place"]),
        config=value["config"],
        quant_config=value["quant_config"],
        tensors=None if tensors is None else tuple(_unpacked(tensors)),
        weights=str(value["weights"]),
        gguf=None if value["gguf"] is None else _gguf_from_json(value["gguf"]),
        label=str(value["label"]),
        sized_bytes=value["sized_bytes"],
        runner=value["runner"],
        limits={key: int(number) for key, number in value["limits"].items()},
        settings={key: int(number) for key, number in value["settings"].items()},
        notices=tuple(Notice(str(code), str(message), str(hint)) for code, message, hint in value["notices"]),
    )
    return Answer(value["pin"], found)


def _packed(tensors: Iterable[FileTensor]) -> list[list[Any]]:
    """Tensors that differ only by the numbers in their names, together: [pattern, dtype, shape, bytes, [numbers ...]]."""
    groups: dict[tuple[str, str, tuple[int, ...], int], list[list[str]]] = {}
    for tensor in tensors:
        words = tensor.name.split(".")
        numbers = [word for word in words if word.isascii() and word.isdecimal()]
        pattern = ".".join("*" if word.isascii() and word.isdecimal() else word.replace("*", "**") for word in words)
        groups.setdefault((pattern, tensor.dtype, tensor.shape, tensor.bytes), []).append(numbers)
    return [
        [pattern, dtype, list(shape), size, [" ".join(one) for one in numbers]]
        for (pattern, dtype, shape, size), numbers in groups.items()
    ]


def _unpacked(groups: Iterable[list[Any]]) -> Iterable[FileTensor]:
    for pattern, dtype, shape, size, names in groups:
        words = pattern.split(".")
        free = [index for index, word in enumerate(words) if word == "*"]
        words = [word.replace("**", "*") for word in words]
        form = tuple(int(one) for one in shape)
        for numbers in names:
            for index, number in zip(free, numbers.split(), strict=True):
                words[index] = number
            yield FileTensor(".".join(words), str(dtype), form, int(size))


def _gguf_to_json(file: GgufFile) -> dict[str, Any]:
    keys = {key: value for key, value in file.keys.items() if not isinstance(value, float) or value == value}
    return {
        "version": file.version,
        "keys": {key: value for key, value in keys.items() if value not in (float("inf"), float("-inf"))},
        "lengths": file.lengths,
        "tensors": [list(tensor) for tensor in file.tensors],
        "alignment": file.alignment,
        "data_offset": file.data_offset,
        "file_bytes": file.file_bytes,
    }


def _gguf_from_json(value: Mapping[str, Any]) -> GgufFile:
    tensors = tuple(
        GgufTensorInfo(str(name), tuple(int(one) for one in shape), str(dtype), int(offset), int(size))
        for name, shape, dtype, offset, size in value["tensors"]
    )
    return GgufFile(
        int(value["version"]), dict(value["keys"]), dict(value["lengths"]), tensors,
        int(value["alignment"]), int(value["data_offset"]), value["file_bytes"],
    )  # fmt: skip
