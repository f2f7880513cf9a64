"""Valid GGUF files are read as they were written: keys, tensors, sizes; in few reads and little time."""

from __future__ import annotations

import random
import re
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gguf_files import (
    LLAMA_KEYS,
    TENSOR_TYPES,
    TensorOf,
    Typed,
    data_bytes,
    gguf_bytes,
    gguf_header,
    llama_tensors,
    padded,
    vocabulary,
    write_gguf,
)
from kvtax.architectures.gguf.keys import read_shape
from kvtax.dtypes import DTYPES
from kvtax.errors import ConfigError
from kvtax.sources.byte_source import BytesInMemory, LocalFile
from kvtax.sources.gguf import DTYPE_OF_TYPE, REMOVED_TYPES, GgufFile, is_gguf, is_projector, read_gguf


class CountedBytes(BytesInMemory):
    """Says how often and where it was read; like a server, it may not say its length."""

    def __init__(self, data: bytes, sized: bool = True, size: int | None = None) -> None:
        super().__init__(data)
        self.size = (len(data) if size is None else size) if sized else None  # type: ignore[assignment]
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, length: int) -> bytes:
        data = super().read(start, length)
        self.reads.append((start, start + len(data)))
        return data


def read(data: bytes, **options: Any) -> GgufFile:
    return read_gguf(BytesInMemory(data), **options)


def test_a_small_model() -> None:
    tensors = llama_tensors()
    data = gguf_bytes({**LLAMA_KEYS, **vocabulary(300, 100)}, tensors)
    assert is_gguf(data[:16])
    found = read(data)
    assert found.version == 3
    assert found.alignment == 32
    assert found.file_bytes == len(data) == found.data_offset + found.data_bytes
    assert [tensor[:3] for tensor in found.tensors] == [tensor[:3] for tensor in tensors]
    assert [tensor.bytes for tensor in found.tensors] == [tensor.bytes for tensor in tensors]
    assert found.tensor_bytes == sum(tensor.bytes for tensor in tensors)
    assert found.keys["llama.feed_forward_length"] == (512, 768)
    assert found.keys["llama.attention.sliding_window_pattern"] == (True, False)
    assert found.keys["llama.attention.layer_norm_rms_epsilon"] == struct.unpack("<f", struct.pack("<f", 1e-5))[0]
    assert found.keys["general.tags"] == ("text-generation", "test")
    assert found.lengths["tokenizer.ggml.tokens"] == 300
    assert found.lengths["tokenizer.ggml.merges"] == 100
    assert not is_projector(found)
    assert read_shape(found.keys).head_count_kv == 2


def test_the_tokenizer_is_not_kept() -> None:
    found = read(gguf_bytes({**LLAMA_KEYS, **vocabulary(20, 10), "tokenizer.chat_template.tool_use": "{{ 7 * 7 }}"}))
    assert {key for key in found.keys if key.startswith("tokenizer.")} == {
        "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.eos_token_id",
    }  # fmt: skip
    assert found.keys["tokenizer.ggml.eos_token_id"] == 2


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_alone_is_a_file(version: int) -> None:
    data = gguf_bytes(LLAMA_KEYS, version=version)
    found = read(data)
    assert (found.version, found.tensors, found.data_bytes) == (version, (), 0)
    assert found.data_offset == len(data)
    assert read(gguf_bytes({}, version=version)).keys == {}


def test_a_projector_is_told_apart() -> None:
    keys = {"general.architecture": "clip", "clip.has_vision_encoder": True, "clip.vision.image_size": 896}
    found = read(gguf_bytes(keys, [TensorOf("mm.0.weight", (64, 32), "float16")]))
    assert is_projector(found)
    assert found.keys["clip.has_vision_encoder"] is True


def test_every_value_type() -> None:
    values = {
        "u8": 255, "i8": -128, "u16": 65535, "i16": -32768, "u32": 2**32 - 1, "i32": -(2**31), "f32": 0.5, "bool": True,
        "text": "ñ \x00 \n", "u64": 2**64 - 1, "i64": -(2**63), "f64": 1e300,
    }  # fmt: skip
    keys: dict[str, Any] = {f"x.{kind}": Typed(kind, value) for kind, value in values.items()}
    keys |= {f"x.array.{kind}": Typed(kind, [value] * 3) for kind, value in values.items()}
    keys |= {f"x.empty.{kind}": Typed(kind, []) for kind in values}
    found = read(gguf_bytes(keys))
    for kind, value in values.items():
        assert found.keys[f"x.{kind}"] == value
        assert found.keys[f"x.array.{kind}"] == (value,) * 3
        assert found.keys[f"x.empty.{kind}"] == ()
        assert (found.lengths[f"x.array.{kind}"], found.lengths[f"x.empty.{kind}"]) == (3, 0)


@pytest.mark.parametrize("dtype", TENSOR_TYPES)
def test_every_tensor_type(dtype: str) -> None:
    number, block, size = TENSOR_TYPES[dtype]
    assert DTYPE_OF_TYPE[number] == dtype
    found = read(gguf_bytes({}, [TensorOf("a", (3 * block, 5, 2), dtype), TensorOf("b", (block,), dtype)]))
    assert [tensor.bytes for tensor in found.tensors] == [30 * size, size]
    with pytest.raises(ConfigError) as caught:
        read(gguf_bytes({}, [TensorOf("a", (block // 2 or 0, 4), dtype)]))
    assert caught.value.code == "invalid-shape"


def test_the_table_of_types_is_whole() -> None:
    assert set(DTYPE_OF_TYPE.values()) == set(TENSOR_TYPES) <= set(DTYPES)
    assert set(range(43)) == set(DTYPE_OF_TYPE) | REMOVED_TYPES | {9, 15}


def test_per_layer_arrays_are_kept_and_longer_ones_are_not() -> None:
    keys = {"a.kept": list(range(4096)), "a.long": list(range(4097)), "a.words": ["x"] * 4097, "a.after": 7}
    found = read(gguf_bytes(keys))
    assert found.keys == {"a.kept": tuple(range(4096)), "a.after": 7}
    assert found.lengths == {"a.kept": 4096, "a.long": 4097, "a.words": 4097}


def test_overlong_texts_of_other_keys_are_passed_over() -> None:
    found = read(gguf_bytes({"x.readme": "r" * (2**20 + 1), "x.kept": "r" * 2**20, "x.after": 7}))
    assert set(found.keys) == {"x.kept", "x.after"}


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096, 2**20])
def test_alignment(alignment: int) -> None:
    keys = {"general.alignment": alignment}
    tensors = [TensorOf("a", (3,), "float16"), TensorOf("b", (5, 7), "int8"), TensorOf("c", (1,))]
    found = read(gguf_bytes(keys, tensors))
    assert found.alignment == alignment
    assert found.data_bytes == sum(padded(size, alignment) for size in (6, 35, 4))
    assert found.tensor_bytes == 45


def test_the_last_tensor_need_not_be_padded_and_more_may_follow() -> None:
    data = gguf_header({}, [TensorOf("a", (3,))])
    assert read(data + bytes(12)).tensor_bytes == 12
    assert read(data + bytes(1000)).data_bytes == 32
    with pytest.raises(ConfigError) as caught:
        read(data + bytes(11))
    assert caught.value.code == "tensor-outside-file"


def test_a_tensor_without_dimensions_has_one_element() -> None:
    assert read(gguf_bytes({}, [TensorOf("a", ())])).tensors[0][1:] == ((1,), "float32", 0, 4)


@pytest.fixture(scope="module")
def large_header() -> bytes:
    return gguf_header({**LLAMA_KEYS, **vocabulary(152_000, 151_000)}, llama_tensors())


@pytest.fixture(scope="module")
def largest_header() -> bytes:
    return gguf_header({**vocabulary(262_144, 514_906, 6), **LLAMA_KEYS}, llama_tensors())


def test_a_large_vocabulary_is_quick(large_header: bytes, largest_header: bytes) -> None:
    """151,000 merges and 152,000 tokens (6 MB), and Gemma 4's numbers (16 MB)."""
    for header, megabytes, seconds in ((large_header, 6, 0.5), (largest_header, 15, 1.0)):
        assert megabytes <= len(header) / 1e6 < megabytes + 3
        data = header + bytes(data_bytes({}, llama_tensors()))
        start = time.process_time()
        found = read(data)
        assert time.process_time() - start < seconds
        assert len(found.tensors) == 12


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("first_read_bytes", [2**20, 8 * 2**20])
def test_a_large_header_costs_few_reads(largest_header: bytes, sized: bool, first_read_bytes: int) -> None:
    source = CountedBytes(largest_header + bytes(40 * 2**20), sized)
    found = read_gguf(source, first_read_bytes)
    assert len(found.tensors) == 12
    assert len(source.reads) <= (6 if first_read_bytes == 2**20 else 3)
    for before, after in zip(source.reads, source.reads[1:], strict=False):
        assert before[1] <= after[0]
    assert source.reads[-1][1] < 2.1 * len(largest_header)


def test_a_small_header_of_a_large_file_is_one_read(tmp_path: Path) -> None:
    tensors = [TensorOf(f"blk.{index}.ffn_up.weight", (8192, 28672), "q4_k") for index in range(40)]
    path = write_gguf(tmp_path / "model.gguf", LLAMA_KEYS, tensors)
    found = read_gguf(LocalFile(str(path)))
    assert found.tensor_bytes == 40 * 8192 * 28672 // 256 * 144
    assert found.file_bytes == path.stat().st_size > 4 * 2**30
    source = CountedBytes(LocalFile(str(path)).read(0, 2**20 + 5), size=path.stat().st_size)
    assert read_gguf(source).tensors == found.tensors
    assert source.reads == [(0, 2**20)]


def test_memory_is_that_of_a_window(largest_header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(largest_header + bytes(data_bytes({}, llama_tensors())))
    tracemalloc.start()
    try:
        read_gguf(LocalFile(str(path)))
        assert tracemalloc.get_traced_memory()[1] < 40 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("first_read_bytes", [1, 64, 65, 100, 1000])
@pytest.mark.parametrize("sized", [True, False])
def test_the_size_of_reads_changes_nothing(first_read_bytes: int, sized: bool) -> None:
    keys = {
        **LLAMA_KEYS,
        **vocabulary(200, 90),
        "x.long": [7] * 5000,
        "x.words": ["w" * 300] * 4100,
        "x.last": "z" * 5000,
    }
    for tensors in (llama_tensors(), []):
        data = gguf_bytes(keys, tensors)
        assert read_gguf(CountedBytes(data, sized), first_read_bytes)[:6] == read(data)[:6]


@pytest.mark.parametrize("sized", [True, False])
def test_a_header_that_is_cut_anywhere_is_an_error(sized: bool) -> None:
    keys = {**LLAMA_KEYS, **vocabulary(30, 5), "x.long": [7] * 4097, "tokenizer.chat_template": "c" * 300}
    tensors = llama_tensors(1)
    data = gguf_header(keys, tensors)
    whole = read(data + bytes(data_bytes(keys, tensors)))
    end = whole.data_offset - 32
    for length in [*range(0, 1500, 7), *range(end - 600, end)]:
        with pytest.raises(ConfigError) as caught:
            read_gguf(CountedBytes(data[:length], sized), 64)
        assert caught.value.code in ("header-cut", "count-beyond-file")


def test_metadata_that_ends_in_what_is_passed_over_is_cut_too() -> None:
    data = gguf_header({"x.a": 1, "tokenizer.chat_template": "c" * 5000})
    for sized in (True, False):
        assert read_gguf(CountedBytes(data, sized), 64).keys == {"x.a": 1}
        with pytest.raises(ConfigError) as caught:
            read_gguf(CountedBytes(data[:-1], sized), 64)
        assert caught.value.code == "header-cut"


# ---- what is written is what is read ----

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
numbers = st.sampled_from(["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"]).flatmap(
    lambda kind: st.tuples(st.just(kind), st.integers(*_range(kind)))
)
values = st.one_of(
    numbers.map(lambda pair: Typed(*pair)),
    numbers.flatmap(
        lambda pair: st.lists(st.integers(*_range(pair[0])), max_size=5).map(lambda found: Typed(pair[0], found))
    ),
    st.floats(allow_nan=False).map(lambda value: Typed("f64", value)),
    st.booleans().map(lambda value: Typed("bool", value)),
    names.map(lambda value: Typed("text", value)),
    st.lists(names, max_size=4).map(lambda value: Typed("text", value)),
)


def _range(kind: str) -> tuple[int, int]:
    bits = int(kind[1:])
    return (0, 2**bits - 1) if kind[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@given(
    st.dictionaries(names.map("x.".__add__), values, max_size=6),
    st.dictionaries(
        names,
        st.tuples(st.sampled_from(sorted(TENSOR_TYPES)), st.lists(st.integers(1, 6), min_size=1, max_size=4)),
        max_size=5,
    ),
    st.sampled_from([1, 8, 32, 128]),
)
def test_round_trip(keys: dict[str, Typed], shapes: dict[str, Any], alignment: int) -> None:
    tensors = [
        TensorOf(name, (rows[0] * TENSOR_TYPES[dtype][1], *rows[1:]), dtype) for name, (dtype, rows) in shapes.items()
    ]
    all_keys = {**keys, "general.alignment": alignment}
    found = read(gguf_bytes(all_keys, tensors), first_read_bytes=64)
    assert [tensor[:3] for tensor in found.tensors] == [tensor[:3] for tensor in tensors]
    assert [tensor.bytes for tensor in found.tensors] == [tensor.bytes for tensor in tensors]
    for key, (_, value) in keys.items():
        assert found.keys[key] == (tuple(value) if isinstance(value, list) else value)


def test_the_writer_of_ggml_agrees(tmp_path: Path) -> None:
    """Differential: ggml's own Python package writes, kvtax reads (and its reader reads what the builder here writes)."""
    gguf = pytest.importorskip("gguf")
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_head_count_kv([2, 1])
    writer.add_rope_freq_base(10000.0)
    writer.add_token_list(["a", "b", "é"])
    writer.add_tensor("a.weight", numpy.zeros((3, 64), numpy.float16))
    writer.add_tensor("b.weight", numpy.zeros((5, 34), numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read_gguf(LocalFile(str(path)))
    assert found.keys["llama.attention.head_count_kv"] == (2, 1)
    assert found.lengths["tokenizer.ggml.tokens"] == 3
    assert [(tensor.shape, tensor.dtype, tensor.bytes) for tensor in found.tensors] == [
        ((64, 3), "float16", 384), ((32, 5), "q8_0", 170),
    ]  # fmt: skip

    ours = write_gguf(tmp_path / "ours.gguf", {**LLAMA_KEYS, **vocabulary(30, 20)}, llama_tensors())
    theirs, found = gguf.GGUFReader(ours), read_gguf(LocalFile(str(ours)))
    assert theirs.data_offset == found.data_offset
    for tensor, other in zip(found.tensors, theirs.tensors, strict=True):
        assert (tensor.name, tensor.shape, tensor.bytes) == (
            other.name,
            tuple(map(int, other.shape)),
            int(other.n_bytes),
        )
        assert found.data_offset + tensor.offset == other.data_offset
    for key, value in found.keys.items():
        content = theirs.get_field(key).contents()
        assert (tuple(content) if isinstance(content, list) else content) == value


def test_tensors_in_another_order_are_refused() -> None:
    """Tensors stand in the file as they are named: anything else ggml does not load."""
    tensors = [TensorOf(f"t{index}", (8,), offset=32 * index) for index in range(4)]
    random.Random(1).shuffle(tensors)
    with pytest.raises(ConfigError) as caught:
        read(gguf_bytes({}, tensors))
    assert re.fullmatch("tensor-(gap|overlap)", caught.value.code)
