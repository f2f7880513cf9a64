"""What was found of a model as JSON, and back: every count, name and type is looked at again, since such a file may come from anyone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite, prod
from typing import Any, NoReturn

from kvtax.dtypes import DTYPES
from kvtax.errors import ConfigError
from kvtax.safe_text import safe
from kvtax.sources.byte_source import LocalFile
from kvtax.sources.found import LIMIT_KEYS, Found
from kvtax.sources.gguf import (
    DTYPE_OF_TYPE,
    MAXIMUM_ALIGNMENT,
    MAXIMUM_DIMENSIONS,
    MAXIMUM_KEPT_ENTRIES,
    MAXIMUM_KEY_BYTES,
    MAXIMUM_KEYS,
    MAXIMUM_NAME_BYTES,
    MAXIMUM_TEXT_BYTES,
    ROW_BLOCK,
    GgufFile,
    GgufTensorInfo,
)
from kvtax.sources.json_scan import MAXIMUM_NAME_CHARACTERS
from kvtax.sources.safe_json import parse_json
from kvtax.sources.safetensors import MAXIMUM_DIMENSION, MAXIMUM_TENSORS, UNKNOWN_PREFIX, FileTensor
from kvtax.terms import Notice

SCHEMA = "kvtax.model/1"
CODE = "invalid-facts"
MAXIMUM_BYTES = 64 * 2**20
MAXIMUM_ENTRIES = 4_000_000
"""Commas in the text: what they part takes up to a hundred bytes of memory each, however short it is."""
MAXIMUM_NAMES_CHARACTERS = 100_000_000
"""All names of tensors together, once their numbers are put in: as many as the longest header may hold."""
SETTINGS = ("mmproj_bytes", "num_ctx")
_MAXIMUM_TEXT = 4_096
_MAXIMUM_NOTICES = 4_096
_MAXIMUM_SHAPE = 64
_NOTICE_CODE = re.compile(r"[a-z0-9-]{1,64}", re.ASCII)
_GGUF_DTYPES = frozenset(DTYPE_OF_TYPE.values())
_FILE_BITS = {dtype.name: dtype.bits for dtype in DTYPES.values() if dtype.safetensors}


def parse_facts(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object of a file that kvtax wrote.

    Args:
        data: of the file, one byte more than MAXIMUM_BYTES at most.
        where: its name, for messages.

    Raises:
        ConfigError: code `invalid-facts`: too large, or no JSON object.
    """
    if len(data) > MAXIMUM_BYTES:
        raise ConfigError(f"has more than {MAXIMUM_BYTES // 2**20} MiB", code=CODE, where=where)
    if data.count(b",") > MAXIMUM_ENTRIES:
        raise ConfigError(f"has more than {MAXIMUM_ENTRIES:,} entries", code=CODE, where=where)
    try:
        return parse_json(data, where, maximum_bytes=MAXIMUM_BYTES)[0]
    except ConfigError as error:
        raise ConfigError(error.message, code=CODE, where=where) from None


def to_json(found: Found) -> dict[str, Any]:
    """Everything that was found, as JSON can hold it; floats that it cannot hold (none that kvtax reads) are left out."""
    return {
        "schema": SCHEMA,
        "id": found.id,
        "place": found.place,
        "commit": found.commit,
        "config": _finite(found.config),
        "quant_config": _finite(found.quant_config),
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


def read_facts(path: str) -> Found:
    """What a facts file says of a model.

    Args:
        path: of the file.

    Raises:
        ConfigError: code `invalid-facts`: there is none, or it is not what `to_json` writes.
    """
    shown = safe(path)
    try:
        file = LocalFile(path)
        if file.size > MAXIMUM_BYTES:
            raise ConfigError(f"has more than {MAXIMUM_BYTES // 2**20} MiB", code=CODE, where=shown)
        data = file.read(0, MAXIMUM_BYTES + 1)
    except ConfigError as error:
        raise ConfigError(error.message, code=CODE, where=shown) from None
    return from_json(parse_facts(data, shown), shown)


def from_json(value: Any, where: str) -> Found:
    """What was found, from its JSON.

    Args:
        value: parsed.
        where: the name of the file, for messages.

    Raises:
        ConfigError: code `invalid-facts`: it is not what `to_json` writes.
    """
    try:
        return _found(_object(value, "the file"))
    except ConfigError as error:
        raise ConfigError(error.message, code=CODE, where=where, hint="write it again: kvtax models add") from None


def _found(value: Mapping[str, Any]) -> Found:
    if value.get("schema") != SCHEMA:
        _wrong(f"`schema` is not {SCHEMA}")
    runner = value.get("runner")
    if runner not in (None, "pooling"):
        _wrong("`runner` is neither pooling nor null")
    config, quant = value.get("config"), value.get("quant_config")
    tensors, gguf, size = value.get("tensors"), value.get("gguf"), value.get("sized_bytes")
    found = Found(
        id=_text(value.get("id"), "id"),
        place=_text(value.get("place"), "place"),
        config=None if config is None else _object(config, "config"),
        quant_config=None if quant is None else _object(quant, "quant_config"),
        tensors=None if tensors is None else tuple(_unpacked(_list(tensors, "tensors", MAXIMUM_TENSORS))),
        weights=_text(value.get("weights"), "weights"),
        gguf=None if gguf is None else _gguf_from_json(_object(gguf, "gguf")),
        label=_text(value.get("label"), "label"),
        sized_bytes=None if size is None else _count(size, "sized_bytes"),
        runner=runner,
        limits=_numbers(value.get("limits"), "limits", LIMIT_KEYS),
        settings=_numbers(value.get("settings"), "settings", SETTINGS),
        notices=tuple(map(_notice, _list(value.get("notices"), "notices", _MAXIMUM_NOTICES))),
        commit=_text(value.get("commit"), "commit"),
    )
    if (found.config is None) == (found.gguf is None):
        _wrong("must hold either `config` or `gguf`")
    return found


# ---- parts ----


def _wrong(problem: str) -> NoReturn:
    raise ConfigError(problem, code=CODE)


def _object(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _wrong(f"`{key}` is not an object")
    return value


def _list(value: Any, key: str, maximum: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > maximum:
        _wrong(f"`{key}` is not a list of at most {maximum:,} entries")
    return value


def _row(value: Any, key: str, length: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != length:
        _wrong(f"an entry of `{key}` is not a list of {length}")
    return value


def _text(value: Any, key: str, maximum: int = _MAXIMUM_TEXT) -> str:
    if not isinstance(value, str) or len(value) > maximum:
        _wrong(f"`{key}` is not a text of at most {maximum:,} characters")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        _wrong(f"`{key}` holds half a surrogate pair")
    return value


def _count(value: Any, key: str, least: int = 0, below: int = 2**63) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < below:
        _wrong(f"`{key}` is not a whole number from {least} on, below {below}")
    return value


def _numbers(value: Any, key: str, known: tuple[str, ...]) -> dict[str, int]:
    found = _object(value, key)
    if not found.keys() <= set(known):
        _wrong(f"`{key}` holds another key than {', '.join(known)}")
    return {name: _count(number, f"{key}.{name}", 1) for name, number in found.items()}


def _notice(value: Any) -> Notice:
    code, message, hint = (_text(part, "notices") for part in _row(value, "notices", 3))
    if not _NOTICE_CODE.fullmatch(code):
        _wrong("`notices` hold a code that is none")
    return Notice(code, message, hint)


def _shape(value: Any, least: int, most: int) -> tuple[int, ...]:
    return tuple(_count(one, "shape", least, MAXIMUM_DIMENSION + 1) for one in _list(value, "shape", most))


def _finite(value: Any) -> Any:
    """A value without the floats that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items() if not isinstance(one, float) or isfinite(one)}
    if isinstance(value, (list, tuple)):
        return [None if isinstance(one, float) and not isfinite(one) else _finite(one) for one in value]
    return value


# ---- safetensors ----


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


def _unpacked(groups: Iterable[Any]) -> Iterator[FileTensor]:
    count = characters = 0
    for group in groups:
        pattern, dtype, shape, size, names = _row(group, "tensors", 5)
        pattern = _text(pattern, "tensors", 2 * MAXIMUM_NAME_CHARACTERS)
        dtype, form = _text(dtype, "dtype", 64 + len(UNKNOWN_PREFIX)), _shape(shape, 0, _MAXIMUM_SHAPE)
        size = _count(size, "bytes")
        bits = _FILE_BITS.get(dtype)
        if not dtype.startswith(UNKNOWN_PREFIX) and (bits is None or prod(form) * bits != 8 * size):
            _wrong("a tensor has no dtype that is known, or other bytes than its shape and dtype make")
        words = pattern.split(".")
        free = [index for index, word in enumerate(words) if word == "*"]
        words = [word.replace("**", "*") for word in words]
        for numbers in _list(names, "tensors", MAXIMUM_TENSORS):
            each = _text(numbers, "tensors", MAXIMUM_NAME_CHARACTERS).split()
            if len(each) != len(free):
                _wrong("a name of `tensors` has another count of numbers than its pattern")
            for index, number in zip(free, each, strict=True):
                words[index] = number
            name = ".".join(words)
            count, characters = count + 1, characters + len(name)
            if len(name) > MAXIMUM_NAME_CHARACTERS or count > MAXIMUM_TENSORS or characters > MAXIMUM_NAMES_CHARACTERS:
                _wrong("a name of `tensors` is too long, or there are too many")
            yield FileTensor(name, dtype, form, size)


# ---- GGUF ----


def _gguf_to_json(file: GgufFile) -> dict[str, Any]:
    keys = {key: list(value) if isinstance(value, tuple) else value for key, value in file.keys.items()}
    return {
        "version": file.version,
        "keys": {key: value for key, value in keys.items() if _finite([value]) == [value]},
        "lengths": file.lengths,
        "tensors": [[tensor.name, tensor.dtype, list(tensor.shape), tensor.offset] for tensor in file.tensors],
        "alignment": file.alignment,
        "data_offset": file.data_offset,
        "file_bytes": file.file_bytes,
    }


def _gguf_from_json(value: Mapping[str, Any]) -> GgufFile:
    alignment = _count(value.get("alignment"), "alignment", 1, MAXIMUM_ALIGNMENT + 1)
    if alignment & (alignment - 1):
        _wrong("`alignment` is not a power of two")
    keys, lengths = _object(value.get("keys"), "keys"), _object(value.get("lengths"), "lengths")
    if max(len(keys), len(lengths)) > MAXIMUM_KEYS or any(len(key) > MAXIMUM_KEY_BYTES for key in (*keys, *lengths)):
        _wrong("`keys` are too many, or too long")
    size = value.get("file_bytes")
    tensors = tuple(map(_gguf_tensor, _list(value.get("tensors"), "tensors", MAXIMUM_TENSORS)))
    if len({tensor.name for tensor in tensors}) != len(tensors):
        _wrong("two tensors have one name")
    return GgufFile(
        _count(value.get("version"), "version", 2, 4),
        {key: _key_value(one) for key, one in keys.items()},
        {key: _count(length, "lengths") for key, length in lengths.items()},
        tensors,
        alignment,
        _count(value.get("data_offset"), "data_offset"),
        None if size is None else _count(size, "file_bytes"),
    )


def _key_value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_scalar(one) for one in _list(value, "keys", MAXIMUM_KEPT_ENTRIES))
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value, "keys", MAXIMUM_TEXT_BYTES)
    if isinstance(value, (bool, float)):
        return value
    return _count(value, "keys", -(2**63), 2**64)


def _gguf_tensor(value: Any) -> GgufTensorInfo:
    name, dtype, shape, offset = _row(value, "tensors", 4)
    form = _shape(shape, 1, MAXIMUM_DIMENSIONS)
    if not isinstance(dtype, str) or dtype not in _GGUF_DTYPES:
        _wrong("a tensor has no dtype that is known")
    kind = DTYPES[dtype]
    elements = prod(form)
    if not form or elements >= 2**63 or form[0] % (ROW_BLOCK.get(dtype) or kind.block or 1):
        _wrong("a tensor has a shape that its dtype cannot have")
    size = kind.bytes(form[0]) * (elements // form[0])
    return GgufTensorInfo(_text(name, "tensors", MAXIMUM_NAME_BYTES), form, dtype, _count(offset, "offset"), size)
