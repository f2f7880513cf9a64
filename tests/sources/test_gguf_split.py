"""Shards of a split GGUF model: their names, and their headers joined."""

from __future__ import annotations

from typing import Any

import pytest

from gguf_files import LLAMA_KEYS, TensorOf, Typed, gguf_bytes, llama_tensors
from kvtax.errors import ConfigError
from kvtax.sources.byte_source import BytesInMemory
from kvtax.sources.gguf import GgufFile, read_gguf
from kvtax.sources.gguf_split import join, split_names


def read(data: bytes) -> GgufFile:
    return read_gguf(BytesInMemory(data))


def shards(count: int, tensors: list[TensorOf], **changed: Any) -> list[GgufFile]:
    found = []
    for index in range(count):
        keys = {
            **(LLAMA_KEYS if index == 0 else {}),
            "split.no": Typed("u16", index),
            "split.count": Typed("u16", count),
        }
        keys |= {"split.tensors.count": Typed("i32", len(tensors)), **changed}
        found.append(read(gguf_bytes(keys, tensors[index::count])))
    return found


def test_names_of_shards() -> None:
    names = [f"a/b-c-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for name in names:
        assert split_names(name) == names
    assert split_names("m-00001-of-00001.gguf") == ["m-00001-of-00001.gguf"]
    for other in (
        "model.gguf", "m-00000-of-00003.gguf", "m-00004-of-00003.gguf", "m-00001-of-00000.gguf", "m-1-of-3.gguf",
        "-00001-of-00003.gguf", "a/-00001-of-00003.gguf", "m-00001-of-00003.gguf\n", "m-00001-of-00003.safetensors",
        "m-٠٠٠٠١-of-٠٠٠٠٣.gguf", "m-00001-of-00003.GGUF", "", "m-000001-of-000003.gguf",
    ):  # fmt: skip
        assert split_names(other) is None, other


def test_shards_join() -> None:
    tensors = llama_tensors()
    parts = shards(3, tensors)
    found = join(parts)
    assert {tensor.name for tensor in found.tensors} == {tensor.name for tensor in tensors}
    assert found.tensor_bytes == sum(tensor.bytes for tensor in tensors)
    assert found.data_bytes == sum(part.data_bytes for part in parts)
    assert found.file_bytes == sum(part.file_bytes or 0 for part in parts)
    assert found.keys == parts[0].keys
    assert found.shards == tuple(parts)
    assert join([parts[0], parts[1]._replace(file_bytes=None), parts[2]]).file_bytes is None


def test_each_shard_has_its_own_alignment() -> None:
    """llama.cpp's tool for splitting hands `general.alignment` to the first shard alone."""
    tensors = [TensorOf(name, (5,)) for name in "ab"]
    keys = {"split.count": Typed("u16", 2), "split.tensors.count": Typed("i32", 2)}
    first = read(gguf_bytes({**keys, "split.no": Typed("u16", 0), "general.alignment": 256}, tensors[:1]))
    second = read(gguf_bytes({**keys, "split.no": Typed("u16", 1)}, tensors[1:]))
    assert join([first, second]).data_bytes == 256 + 32


def test_a_whole_file_is_its_own_model() -> None:
    whole = read(gguf_bytes(LLAMA_KEYS, llama_tensors()))
    assert join([whole]) is whole
    for count in (0, 1):
        (one,) = shards(1, llama_tensors(), **{"split.count": Typed("u16", count)})
        assert join([one]) is one


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda parts: parts[:2], "split-mismatch"),
        (lambda parts: [], "split-mismatch"),
        (lambda parts: [parts[1], parts[0], parts[2]], "split-mismatch"),
        (lambda parts: [*parts[:2], parts[1]], "split-mismatch"),
        (lambda parts: [*parts, parts[2]], "split-mismatch"),
        (lambda parts: [*parts[:2], parts[2]._replace(keys={"split.no": 2, "split.count": 4})], "split-mismatch"),
        (lambda parts: [*parts[:2], parts[2]._replace(keys={})], "split-mismatch"),
        (lambda parts: [*parts[:2], parts[2]._replace(tensors=())], "split-mismatch"),
        (lambda parts: [*parts[:2], parts[2]._replace(tensors=parts[1].tensors)], "duplicate-tensor"),
        (lambda parts: [parts[0]._replace(keys={"split.count": True}), *parts[1:]], "split-mismatch"),
        (lambda parts: [parts[0]._replace(keys={"split.count": "\x1b3"}), *parts[1:]], "split-mismatch"),
        (lambda parts: [parts[0]._replace(keys={"split.count": 3, "split.no": 0}), *parts[1:]], "split-mismatch"),
    ],
)
def test_shards_of_different_models(change: Any, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        join(change(shards(3, llama_tensors())), name="model\x1b-00001-of-00003.gguf")
    assert caught.value.code == code
    assert str(caught.value).isprintable()
