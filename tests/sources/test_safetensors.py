"""Headers of safetensors files and their indexes, against files made in code and the tensors of published checkpoints."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtax.dtypes import DTYPES
from kvtax.errors import ConfigError
from kvtax.sources.byte_source import BytesInMemory, LocalFile
from kvtax.sources.safetensors import FIRST_READ_BYTES, FileTensor, Header, read_header
from kvtax.sources.safetensors_index import Index, compare, read_index
from safetensors_files import BITS, Sparse, build, entries, whole, with_length
from safetensors_mutations import NAMES, mutated

CHECKPOINTS = Path(__file__).parent.parent / "data" / "checkpoints"
TAGS = {dtype.safetensors: dtype.name for dtype in DTYPES.values() if dtype.safetensors}
THREE = [("a", "F32", (2, 2)), ("b", "BF16", (4,)), ("c", "U8", (3,))]


def read(tensors: list[tuple[str, str, tuple[int, ...]]], metadata: dict[str, str] | None = None) -> Header:
    return read_header(BytesInMemory(whole(tensors, metadata)))


def read_text(text: str, tensor_bytes: int) -> Header:
    return read_header(BytesInMemory(with_length(text.encode()) + b"\0" * tensor_bytes))


def test_a_header() -> None:
    found = read(THREE, {"format": "pt"})
    assert found.tensors == (
        FileTensor("a", "float32", (2, 2), 16),
        FileTensor("b", "bfloat16", (4,), 8),
        FileTensor("c", "uint8", (3,), 3),
    )
    assert found.metadata == {"format": "pt"}
    assert found.tensor_bytes == 27
    assert found.file_bytes == found.header_bytes + 27
    assert found.notices == ()


def test_every_tag_of_the_format_is_known_with_its_bits() -> None:
    assert {tag: DTYPES[name].bits for tag, name in TAGS.items()} == BITS
    found = read([(tag, tag, (8, 3)) for tag in BITS])
    assert {tensor.name: tensor.bytes for tensor in found.tensors} == {tag: 3 * bits for tag, bits in BITS.items()}
    assert found.notices == ()


def test_a_scalar_and_tensors_without_elements() -> None:
    found = read([("none", "F32", (0, 2**40)), ("scalar", "F32", ()), ("empty", "BF16", (7, 0))])
    assert [tensor.bytes for tensor in found.tensors] == [0, 4, 0]
    assert read([]).tensors == ()
    assert read([]).file_bytes == 10


def test_an_unknown_dtype_has_the_bytes_of_its_offsets() -> None:
    header = entries([("a", "F32", (4,)), ("b", "F32", (6,))])
    header["a"]["dtype"] = "F5_E2M2"
    found = read_text(json.dumps(header), 40)
    assert found.tensors[0] == FileTensor("a", "unknown:f5_e2m2", (4,), 16)
    assert [notice.code for notice in found.notices] == ["unknown-dtype"]
    assert "1 tensors" in found.notices[0].message
    assert "f5_e2m2" in found.notices[0].message


def test_an_unknown_dtype_is_safe_to_show() -> None:
    header = entries([("\x1b[2J", "U8", (4,))])
    header["\x1b[2J"]["dtype"] = "\x1b]0;x\x07"
    found = read_text(json.dumps(header), 4)
    assert found.tensors[0].name == "\x1b[2J"
    assert found.tensors[0].dtype.isprintable()
    assert found.notices[0].message.isprintable()


def test_entries_in_any_order_and_any_spelling() -> None:
    text = """{ "b" : {"data_offsets":[4,\t6], "shape":[ 1 , 2 ],
        "dtype":"U8", "extra": {"x": [1.5, null]}} , "__metadata__" : {"\\u0066ormat":"p\\u0074", "x":"\\ud83d\\ude00"},
        "a\\u002fb": {"dtype":"F32","shape":[],"data_offsets":[0,4]}}\r\n  """
    found = read_text(text, 6)
    assert found.tensors == (FileTensor("b", "uint8", (1, 2), 2), FileTensor("a/b", "float32", (), 4))
    assert found.metadata == {"format": "pt"}


def test_only_a_few_short_keys_of_the_metadata_are_kept() -> None:
    metadata = {"format": "pt", "ss_tag_frequency": "x" * 5000, "base_model": "y" * 1025, "other": "z"}
    assert read(THREE, metadata).metadata == {"format": "pt"}
    assert read(THREE, {"base_model": "\x1b[1m"}).metadata == {"base_model": "\\x1b[1m"}
    assert read_text('{"__metadata__":null}', 0).metadata == {}


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("header_bytes", [*range(99_980, 100_021), 10**6])
def test_headers_around_the_first_read(header_bytes: int, told: bool) -> None:
    head, size = build(THREE, {"format": "pt"}, header_bytes)
    source = Sparse(head, size, told)
    found = read_header(source)
    assert (found.header_bytes, found.file_bytes, len(found.tensors)) == (header_bytes, size, 3)
    expected = [(0, FIRST_READ_BYTES)]
    if header_bytes > FIRST_READ_BYTES:
        expected.append((FIRST_READ_BYTES, header_bytes - FIRST_READ_BYTES))
    assert source.reads == expected


@pytest.mark.parametrize("header_bytes", [*range(99_985, 100_015)])
def test_text_that_ends_around_the_first_read(header_bytes: int) -> None:
    """Not padded: names are cut by the first read, inside a character of two bytes too."""
    tensors = [(f"{each:04}ä", "U8", (1,)) for each in range(1500)]
    missing = header_bytes - len(build(tensors)[0])
    tensors = [(name + "ä" * (missing // 3000) + "x" * (each < missing % 3000 // 2), *rest) for each, (name, *rest) in enumerate(tensors)]  # fmt: skip
    head, size = build(tensors)
    last = (tensors[-1][0] + "y" * (header_bytes - len(head)), "U8", (1,))
    head, size = build([*tensors[:-1], last])
    assert len(head) == header_bytes
    source = Sparse(head, size)
    assert [tensor.name for tensor in read_header(source).tensors] == [name for name, *_ in [*tensors[:-1], last]]
    assert len(source.reads) == 1 + (header_bytes > FIRST_READ_BYTES)


def test_a_size_that_nobody_tells() -> None:
    head, size = build(THREE, None, 150_000)
    assert read_header(Sparse(head, None)).file_bytes == size
    text = json.dumps(entries(THREE)).replace("[16, 24]", "[17, 25]").encode().ljust(150_000)
    with pytest.raises(ConfigError) as caught:
        read_header(Sparse(with_length(text), None))
    assert caught.value.code == "tensor-hole"


def test_a_file_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(whole(THREE))
    assert read_header(LocalFile(str(path))).tensor_bytes == 27


def checkpoint(name: str) -> tuple[list[tuple[str, str, tuple[int, ...]]], int]:
    """The tensors of a published checkpoint, each under a name of its own, and its bytes."""
    described = json.loads((CHECKPOINTS / name).read_text())
    return [
        (group["name"].replace("*", str(number)), group["dtype"], tuple(group["shape"]))
        for group in described["tensors"]
        for number in range(group["count"])
    ], described["bytes"]


PUBLISHED = sorted(path.name for path in CHECKPOINTS.glob("[!v]*.json"))


@pytest.mark.parametrize("name", [name for name in PUBLISHED if "DeepSeek-V3" not in name and "Next" not in name])
def test_bytes_of_published_checkpoints(name: str) -> None:
    tensors, total = checkpoint(name)
    head, size = build(tensors, {"format": "pt"})
    assert read_header(Sparse(head, size)).tensor_bytes == total


def test_a_header_of_ninety_thousand_tensors_takes_under_a_second() -> None:
    tensors, total = checkpoint("deepseek-ai--DeepSeek-V3.json")
    head, size = build(tensors, {"format": "pt"})
    start = time.process_time()
    found = read_header(Sparse(head, size))
    assert time.process_time() - start < 1
    assert (len(found.tensors), found.tensor_bytes) == (91_991, total)


SHAPES = st.lists(st.integers(0, 2**40), max_size=5).map(tuple)
TENSORS = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(NAMES), st.sampled_from(sorted(BITS)), SHAPES),
    max_size=8,
    unique_by=lambda tensor: tensor[0],
)  # fmt: skip


@given(TENSORS, st.booleans())
def test_what_is_built_is_what_is_read(tensors: list[tuple[str, str, tuple[int, ...]]], compact: bool) -> None:
    tensors = [
        (name, tag, (*shape, 4) if BITS[tag] < 8 else shape) for name, tag, shape in tensors if name != "__metadata__"
    ]
    total = 0
    kept = []
    for name, tag, shape in tensors:
        elements = 1
        for each in shape:
            elements *= each
        if total + elements * 8 < 2**62 and (elements or len(shape) < 3):
            total += elements * BITS[tag] // 8
            kept.append((name, tag, shape))
    head, size = build(kept, compact=compact)
    found = read_header(Sparse(head, size))
    assert [(tensor.name, tensor.dtype, tensor.shape) for tensor in found.tensors] == [(name, TAGS[tag], shape) for name, tag, shape in kept]  # fmt: skip
    assert found.tensor_bytes == total == sum(tensor.bytes for tensor in found.tensors)


def test_the_format_s_own_reader_agrees() -> None:
    """What both accept is the same.

    Kvtax alone takes dtypes of the future; the other alone takes a key twice and a space at the beginning, which the
    format forbids, and sizes above 2^48.
    """
    theirs = pytest.importorskip("safetensors")
    chance = random.Random(7)
    both = 0
    for _ in range(20_000):
        data = mutated(chance)
        try:
            expected = {name: (tuple(view["shape"]), len(view["data"])) for name, view in theirs.deserialize(data)}
        except theirs.SafetensorError:
            expected = None
        try:
            header = read_header(BytesInMemory(data))
        except ConfigError as error:
            narrower = error.code == "duplicate-key" or data[8:9].isspace() or "2^48" in str(error)
            assert expected is None or narrower, (data, error.code)
            continue
        if expected is None:
            assert header.notices, data
            continue
        both += 1
        assert {tensor.name: (tensor.shape, tensor.bytes) for tensor in header.tensors} == expected, data
    assert both > 2_000


INDEX = {"metadata": {"total_size": 27}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "2.safetensors"}}  # fmt: skip
FILES = {"1.safetensors": read(THREE[:1]), "2.safetensors": read(THREE[1:])}


def codes(index: Index, headers: dict[str, Header]) -> dict[str, str]:
    return {notice.code: notice.message for notice in compare(index, headers)}


def test_an_index() -> None:
    found = read_index(json.dumps(INDEX, indent=2).encode() + b"\n", "index.json")
    assert found.files == ("1.safetensors", "2.safetensors")
    assert found.weight_map == INDEX["weight_map"]
    assert found.total_bytes == 27
    assert compare(found, FILES) == []
    assert read_index(b"\xef\xbb\xbf" + json.dumps(INDEX).encode(), "index.json") == found


@pytest.mark.parametrize(
    ("metadata", "total"),
    [({}, None), ({"total_size": 27.0}, 27), ({"total_size": 27.5}, None), ({"total_size": "27"}, None), ({"total_size": -1}, None),
     ({"total_size": True}, None), ({"total_size": 10**30}, None), (None, None), ([], None)],
)  # fmt: skip
def test_a_total_that_is_a_number(metadata: object, total: int | None) -> None:
    assert read_index(json.dumps({**INDEX, "metadata": metadata}).encode(), "index.json").total_bytes == total


def test_an_index_without_metadata() -> None:
    assert read_index(b'{"weight_map": {"a": "x.safetensors"}, "other": [1]}', "index.json") == Index(
        ("x.safetensors",), {"a": "x.safetensors"}, None
    )


def test_where_an_index_and_its_files_disagree() -> None:
    index = read_index(json.dumps(INDEX).encode(), "index.json")
    lacking = index._replace(weight_map={**index.weight_map, "d": "1.safetensors", "e": "1.safetensors"})
    assert codes(lacking, FILES) == {"index-names-missing": "2 tensors of the index are in no file (first: 'd')"}
    fewer = index._replace(weight_map={"a": "1.safetensors", "c": "2.safetensors"})
    assert codes(fewer, FILES) == {"index-names-extra": "1 tensors of the files are not in the index (first: 'b')"}
    moved = index._replace(weight_map={**index.weight_map, "b": "1.safetensors"})
    assert list(codes(moved, FILES)) == ["index-names-elsewhere"]
    assert codes(index._replace(total_bytes=28), FILES) == {
        "index-total-size": "the index says 28 bytes of tensors, the files have 27"
    }
    assert codes(index._replace(total_bytes=None), FILES) == {}


def test_an_index_of_another_model() -> None:
    index = read_index(json.dumps(INDEX).encode(), "index.json")
    for headers in ({"1.safetensors": read([("z", "U8", (27,))])}, {}):
        with pytest.raises(ConfigError) as caught:
            compare(index, headers)
        assert caught.value.code == "index-mismatch"
    assert compare(Index((), {}, None), {}) == []


def test_a_large_index_is_read_in_time() -> None:
    names = {
        f"model.layers.{each // 400}.mlp.experts.{each % 400}.down_proj.weight": f"model-{each // 1000:05}-of-00100.safetensors"
        for each in range(100_000)
    }
    data = json.dumps({"metadata": {}, "weight_map": names}, indent=2).encode()
    start = time.process_time()
    found = read_index(data, "index.json")
    assert time.process_time() - start < 1.5
    assert found.weight_map == names
