"""Models whose GGUF file was split into shards: the names of these, and their headers put together."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvtax.errors import ConfigError
from kvtax.safe_text import safe
from kvtax.sources.gguf import GgufFile

_SHARD = re.compile(r"(?P<prefix>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.ASCII | re.DOTALL)


def split_names(name: str) -> list[str] | None:
    """The names of all shards in order, for the name of any of them (`model-00002-of-00003.gguf`, also below folders).

    Args:
        name: of a file.

    Returns:
        The names, None where it is not named as a shard is.

    Source: ggml-org/llama.cpp b11434 src/llama.cpp llama_split_path.
    """
    found = _SHARD.fullmatch(name)
    if found is None or found["prefix"].endswith(("/", "\\")):
        return None
    count = int(found["count"])
    if not 0 < int(found["number"]) <= count:
        return None
    return [f"{found['prefix']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]


def join(files: Sequence[GgufFile], name: str = "") -> GgufFile:
    """The header of a whole model: the keys of the first shard, the tensors of all.

    Args:
        files: the headers in the order of `split_names`; one that is not split is its own whole.
        name: of the model, for messages.

    Returns:
        The header; offsets of tensors are those within their own shard, `shards` has these one by one.

    Raises:
        ConfigError: code `split-mismatch`: another number of shards, another order, or tensors that are missing; `duplicate-tensor`.

    Source: ggml-org/llama.cpp b11434 src/llama-model-loader.cpp (split.no, split.count, split.tensors.count).
    """

    def mismatch(problem: str) -> ConfigError:
        return ConfigError(problem, code="split-mismatch", where=safe(name), hint="are these all shards of one model?")

    if not files:
        raise mismatch("there is no shard")
    first = files[0]
    count = first.keys.get("split.count", 0)
    if type(count) is not int or max(count, 1) != len(files):
        raise mismatch(f"split.count is {count!r:.40}, but there are {len(files)} files")
    if len(files) == 1:
        return first
    names: set[str] = set()
    for index, file in enumerate(files):
        number = file.keys.get("split.no")
        if type(number) is not int or number != index:
            raise mismatch(f"shard {index + 1} says that it is number {number!r:.40} (split.no counts from 0)")
        if file.keys.get("split.count", count) != count:
            raise mismatch(f"shard {index + 1} is one of another number of shards")
        for tensor in file.tensors:
            if tensor.name in names:
                message = f"two shards have one tensor ({safe(tensor.name, 64)})"
                raise ConfigError(message, code="duplicate-tensor", where=safe(name))
            names.add(tensor.name)
    total = first.keys.get("split.tensors.count")
    if type(total) is not int or total != len(names):
        raise mismatch(f"split.tensors.count is {total!r:.40}, but the shards have {len(names)} tensors")
    sizes = [file.file_bytes for file in files]
    return first._replace(
        tensors=tuple(tensor for file in files for tensor in file.tensors),
        file_bytes=None if None in sizes else sum(size or 0 for size in sizes),
        shards=tuple(files),
    )
