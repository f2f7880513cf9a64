"""Hostile safetensors files and indexes: each kind of lie has its own code, one line, in bounded time and memory; nothing gives anything else."""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvtax.errors import ConfigError, KvtaxError
from kvtax.sources import safetensors, safetensors_index
from kvtax.sources.byte_source import BytesInMemory
from kvtax.sources.safetensors import FIRST_READ_BYTES, REMOTE_HEADER_BYTES, Header, read_header
from kvtax.sources.safetensors_index import MAXIMUM_INDEX_BYTES, read_index
from safetensors_files import Sparse, entries, whole, with_length
from safetensors_mutations import mutated

GOOD = entries([("a", "F32", (2, 2)), ("b", "BF16", (4,)), ("c", "U8", (3,))])
SIZE = 27


def file(text: bytes, size: int = SIZE) -> bytes:
    return with_length(text) + b"\0" * size


def changed(name: str, **values: Any) -> bytes:
    return file(json.dumps({**GOOD, name: {**GOOD[name], **values}}).encode())


def without(name: str, key: str) -> bytes:
    return file(json.dumps({**GOOD, name: {each: GOOD[name][each] for each in GOOD[name] if each != key}}).encode())


def added(name: str, value: Any) -> bytes:
    return file(json.dumps({**GOOD, name: value}).encode())


def text(old: str, new: str) -> bytes:
    return file(json.dumps(GOOD).replace(old, new, 1).encode())


def one(value: bytes) -> bytes:
    return file(b'{"a":' + value + b"}", 1)


def offsets(*pairs: tuple[int, int]) -> bytes:
    """Tensors of unsigned bytes between these offsets, in a file of 8 bytes of tensors."""
    found = {
        str(index): {"dtype": "U8", "shape": [max(0, end - begin)], "data_offsets": [begin, end]}
        for index, (begin, end) in enumerate(pairs)
    }
    return file(json.dumps(found).encode(), 8)


PLAIN = json.dumps(GOOD).encode()
VALID = file(PLAIN)
RANGE = b'"dtype":"U8","shape":[1],"data_offsets":[0,1]'
CASES = [
    # the length
    ("empty", b"", "header-cut"),
    ("seven bytes", b"\2\0\0\0\0\0\0", "header-cut"),
    ("only a length", (2).to_bytes(8, "little"), "header-cut"),
    ("length 2^62", (2**62).to_bytes(8, "little") + PLAIN, "header-too-large"),
    ("length 2^64 - 1", b"\xff" * 8 + PLAIN, "header-too-large"),
    ("length 300 MB", (300 * 10**6).to_bytes(8, "little") + PLAIN, "header-too-large"),
    ("length 99 MB in a small file", (99 * 10**6).to_bytes(8, "little") + PLAIN, "header-cut"),
    ("length big-endian", len(PLAIN).to_bytes(8, "big") + PLAIN, "header-too-large"),
    ("one byte more than the file", (len(PLAIN) + 1).to_bytes(8, "little") + PLAIN, "header-cut"),
    ("length cuts the header", (len(PLAIN) - 1).to_bytes(8, "little") + PLAIN, "header-not-json"),
    ("a page of HTML", b"<!DOCTYPE html><html>not found</html>", "header-too-large"),
    ("a pointer of Git LFS", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "header-too-large"),
    ("a ZIP file", b"PK\3\4" + b"\0" * 60, "header-cut"),
    # the text
    ("no text", file(b"", 0), "header-not-json"),
    ("spaces", file(b"   ", 0), "header-not-json"),
    ("a space before it", file(b" {}", 0), "header-not-json"),
    ("a byte order mark", file(b"\xef\xbb\xbf{}", 0), "header-not-json"),
    ("a list", file(b"[]", 0), "header-not-json"),
    ("a string", file(b'"a"', 0), "header-not-json"),
    ("null", file(b"null", 0), "header-not-json"),
    ("not closed", file(b"{", 0), "header-not-json"),
    ("a comma at the end", file(b'{"a":{' + RANGE + b"},}", 1), "header-not-json"),
    ("no comma", file(b'{"a":{' + RANGE + b'}"b":{}}', 1), "header-not-json"),
    ("two objects", file(PLAIN + b"{}"), "header-not-json"),
    ("zero bytes behind it", file(PLAIN + b"\0\0"), "header-not-json"),
    ("a form feed behind it", file(PLAIN + b"\x0c"), "header-not-json"),
    ("not UTF-8", file(b'{"\xff":{' + RANGE + b"}}", 1), "header-not-utf8"),
    ("a surrogate in UTF-8", file(b'{"\xed\xa0\x80":{' + RANGE + b"}}", 1), "header-not-utf8"),
    ("overlong UTF-8", file(b'{"\xc0\xaf":{' + RANGE + b"}}", 1), "header-not-utf8"),
    ("UTF-8 cut at the end", file(PLAIN + b"\xc3"), "header-not-utf8"),
    ("UTF-16", file(json.dumps(GOOD).encode("utf-16")), "header-not-utf8"),
    ("half a surrogate pair in a name", file(b'{"\\ud800":{' + RANGE + b"}}", 1), "header-not-json"),
    ("half a surrogate pair in a value", one(b'{"x":"\\udc00",' + RANGE + b"}"), "header-not-json"),
    ("a wrong escape", file(b'{"\\x41":{' + RANGE + b"}}", 1), "header-not-json"),
    ("a line end in a name", file(b'{"a\nb":{' + RANGE + b"}}", 1), "header-not-json"),
    ("a name without quotes", file(b"{a:{" + RANGE + b"}}", 1), "header-not-json"),
    ("a name without end", file(b'{"a', 0), "header-not-json"),
    ("deep lists", one(b"[" * 100_000 + b"]" * 100_000), "header-not-json"),
    ("deep lists in few bytes", one(b'{"x":' + b"[" * 1500 + b"]" * 1500 + b"," + RANGE + b"}"), "header-not-json"),
    ("deep objects", one(b'{"a":' * 50_000 + b"1" + b"}" * 50_000), "header-not-json"),
    ("a value of 5,000 bytes", one(b'{"x":"' + b"y" * 5000 + b'",' + RANGE + b"}"), "header-not-json"),
    ("NaN", one(b'{"x":NaN,' + RANGE + b"}"), "header-not-json"),
    ("1e999", one(b'{"x":1e999,' + RANGE + b"}"), "header-not-json"),
    ("400 digits", one(b'{"x":' + b"9" * 400 + b"," + RANGE + b"}"), "header-not-json"),
    ("a zero before a number", text("[2, 2]", "[02, 2]"), "header-not-json"),
    # keys
    ("a tensor twice", file(PLAIN[:-1] + b"," + PLAIN[1:]), "duplicate-key"),
    ("a tensor twice by an escape", file(b'{"a":{' + RANGE + b'},"\\u0061":{' + RANGE + b"}}", 1), "duplicate-key"),
    ("a key twice in a tensor", one(b"{" + RANGE + b',"dtype":"I8"}'), "duplicate-key"),
    ("metadata twice", file(b'{"__metadata__":{},"__metadata__":{}}', 0), "duplicate-key"),
    ("a key twice in the metadata", file(b'{"__metadata__":{"a":"1","\\u0061":"2"}}', 0), "duplicate-key"),
    ("a name of 1,025 characters", file(b'{"' + b"n" * 1025 + b'":{' + RANGE + b"}}", 1), "name-too-long"),
    ("a name of 5,000 escapes", file(b'{"' + b"\\u0041" * 5000 + b'":{' + RANGE + b"}}", 1), "name-too-long"),
    ("a name of a megabyte", file(b'{"' + b"n" * 10**6 + b'":{' + RANGE + b"}}", 1), "name-too-long"),
    # metadata
    ("metadata is a list", added("__metadata__", []), "invalid-metadata"),
    ("metadata is a string", added("__metadata__", "pt"), "invalid-metadata"),
    ("metadata is a tensor", added("__metadata__", GOOD["a"]), "invalid-metadata"),
    ("a number in the metadata", added("__metadata__", {"step": 1}), "invalid-metadata"),
    ("null in the metadata", added("__metadata__", {"format": None}), "invalid-metadata"),
    ("an object in the metadata", added("__metadata__", {"format": {}}), "invalid-metadata"),
    ("half a surrogate pair in the metadata", file(b'{"__metadata__":{"format":"\\ud800"}}', 0), "header-not-json"),
    ("metadata without end", file(b'{"__metadata__":{"format":"pt"', 0), "header-not-json"),
    # entries
    ("a tensor is a number", added("d", 7), "invalid-tensor"),
    ("a tensor is null", added("d", None), "invalid-tensor"),
    ("a tensor is a string", added("d", "F32"), "invalid-tensor"),
    ("a tensor is a list", one(b'["U8",[1],[0,1]]'), "invalid-tensor"),
    ("an empty tensor entry", added("d", {}), "invalid-tensor"),
    ("no dtype", without("a", "dtype"), "invalid-tensor"),
    ("no shape", without("a", "shape"), "invalid-tensor"),
    ("no data_offsets", without("a", "data_offsets"), "invalid-tensor"),
    ("dtype is a number", changed("a", dtype=4), "invalid-tensor"),
    ("dtype is a list", changed("a", dtype=["F32"]), "invalid-tensor"),
    ("shape is a number", changed("a", shape=4), "invalid-shape"),
    ("shape is null", changed("a", shape=None), "invalid-shape"),
    ("shape is a string", changed("a", shape="2,2"), "invalid-shape"),
    ("a negative size", changed("a", shape=[-2, -2]), "invalid-shape"),
    ("minus zero", text("[2, 2]", "[-0, 2]"), "invalid-shape"),
    ("a float", changed("a", shape=[2.0, 2]), "invalid-shape"),
    ("true", changed("a", shape=[True, 4]), "invalid-shape"),
    ("a string in the shape", changed("a", shape=["2", 2]), "invalid-shape"),
    ("a list in the shape", changed("a", shape=[[2], 2]), "invalid-shape"),
    ("a size above 2^48", changed("a", shape=[2**48 + 1, 0]), "invalid-shape"),
    ("a size of 30 digits", changed("a", shape=[10**30]), "invalid-shape"),
    ("a product above 2^64", changed("a", shape=[2**40, 2**40, 0]), "invalid-shape"),
    ("a product that wraps to 4", changed("a", shape=[2**32, 2**32 + 1]), "invalid-shape"),
    # offsets
    ("offsets is a number", changed("a", data_offsets=16), "invalid-offsets"),
    ("one offset", changed("a", data_offsets=[16]), "invalid-offsets"),
    ("three offsets", changed("a", data_offsets=[0, 16, 16]), "invalid-offsets"),
    ("a negative offset", changed("a", data_offsets=[-16, 0]), "invalid-offsets"),
    ("a float as offset", changed("a", data_offsets=[0, 16.0]), "invalid-offsets"),
    ("true as offset", changed("c", data_offsets=[24, True]), "invalid-offsets"),
    ("a string as offset", changed("a", data_offsets=["0", "16"]), "invalid-offsets"),
    ("an offset of 2^63", changed("a", data_offsets=[0, 2**63]), "invalid-offsets"),
    ("an offset of 30 digits", changed("a", data_offsets=[0, 10**30]), "invalid-offsets"),
    ("backwards", changed("a", data_offsets=[16, 0]), "invalid-offsets"),
    ("backwards by one, unknown dtype", changed("a", dtype="F5", data_offsets=[1, 0]), "invalid-offsets"),
    ("10^18", changed("a", data_offsets=[0, 10**18]), "size-mismatch"),
    ("a byte too many", changed("a", data_offsets=[0, 17]), "size-mismatch"),
    ("another dtype", changed("a", dtype="F64"), "size-mismatch"),
    ("another shape", changed("a", shape=[2, 3]), "size-mismatch"),
    ("half a byte", changed("c", dtype="F4", shape=[5]), "size-mismatch"),
    ("an overlap", offsets((0, 4), (2, 6), (6, 8)), "tensor-overlap"),
    ("the same place twice", offsets((0, 8), (0, 8)), "tensor-overlap"),
    ("an empty tensor inside another", offsets((0, 8), (4, 4)), "tensor-overlap"),
    ("a hole", offsets((0, 4), (5, 8)), "tensor-hole"),
    ("a hole at the beginning", offsets((1, 8)), "tensor-hole"),
    ("a hole, out of order", offsets((5, 8), (0, 4)), "tensor-hole"),
    ("beyond the file", offsets((0, 9)), "tensor-outside-file"),
    ("a tensor of 10^14 bytes", offsets((0, 8), (8, 10**14)), "tensor-outside-file"),
    ("a tensor of unknown dtype beyond the file", changed("c", dtype="F5", data_offsets=[24, 2**62]), "tensor-outside-file"),
    ("the file is cut", VALID[:-1], "tensor-outside-file"),
    ("a byte behind the tensors", VALID + b"\0", "trailing-bytes"),
    ("another file behind the tensors", VALID + VALID, "trailing-bytes"),
    ("no tensors, but bytes", file(b"{}", 1), "trailing-bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "code"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_lie_has_its_own_error(data: bytes, code: str) -> None:
    start = time.process_time()
    with pytest.raises(ConfigError) as caught:
        read_header(BytesInMemory(data, "model.safetensors"))
    assert time.process_time() - start < 0.2
    assert caught.value.code == code
    line = f"{caught.value} {caught.value.hint}"
    assert line.isprintable()
    assert len(line) < 400
    assert line.startswith("model.safetensors: ")


def test_the_file_that_the_lies_are_made_of_is_fine() -> None:
    assert read_header(BytesInMemory(VALID)).tensor_bytes == SIZE


def index(**weight_map: Any) -> bytes:
    return json.dumps({"metadata": {"total_size": 27}, "weight_map": weight_map}).encode()


INDEX_CASES = [
    ("empty", b"", "invalid-json"),
    ("a list", b"[]", "invalid-json"),
    ("cut", index(a="x.safetensors")[:-5], "invalid-json"),
    ("not UTF-8", b'{"weight_map": {"\xff": "x.safetensors"}}', "invalid-json"),
    ("too large", b'{"weight_map": {}}' + b" " * MAXIMUM_INDEX_BYTES, "file-too-large"),
    ("something behind it", index() + b"x", "invalid-json"),
    ("deep", b'{"metadata": ' + b"[" * 60_000, "invalid-json"),
    ("no weight_map", b'{"metadata": {}}', "invalid-index"),
    ("weight_map is a list", b'{"weight_map": []}', "invalid-index"),
    ("weight_map is null", b'{"weight_map": null}', "invalid-index"),
    ("a number as shard", index(a=1), "invalid-index"),
    ("an object as shard", index(a={}), "invalid-index"),
    ("weight_map twice", b'{"weight_map": {}, "weight_map": {}}', "duplicate-key"),
    ("a tensor twice", b'{"weight_map": {"a": "x.safetensors", "\\u0061": "y.safetensors"}}', "duplicate-key"),
    ("a key twice in the metadata", b'{"metadata": {"a": 1, "a": 2}, "weight_map": {}}', "duplicate-key"),
    ("a parent folder", index(a="../x.safetensors"), "invalid-shard-name"),
    ("two dots", index(a="..x.safetensors"), "invalid-shard-name"),
    ("an absolute path", index(a="/etc/x.safetensors"), "invalid-shard-name"),
    ("a folder", index(a="sub/x.safetensors"), "invalid-shard-name"),
    ("a backslash", index(a="C:\\x.safetensors"), "invalid-shard-name"),
    ("another repository", index(a="https://example.org/x.safetensors"), "invalid-shard-name"),
    ("a pickle", index(a="pytorch_model.bin"), "invalid-shard-name"),
    ("only the ending", index(a=".safetensors"), "invalid-shard-name"),
    ("no name", index(a=""), "invalid-shard-name"),
    ("escapes", index(a="\x1b[2J.safetensors"), "invalid-shard-name"),
    ("a zero byte", index(a="x\0.safetensors"), "invalid-shard-name"),
    ("text that runs backwards", index(a="x\u202e.safetensors"), "invalid-shard-name"),
    ("a name of 256 characters", index(a="x" * 244 + ".safetensors"), "invalid-shard-name"),
    ("a tensor's name of 1,025 characters", index(**{"n" * 1025: "x.safetensors"}), "name-too-long"),
    ("4,097 shards", index(**{str(each): f"{each}.safetensors" for each in range(4097)}), "too-many-shards"),
]


@pytest.mark.parametrize(("data", "code"), [case[1:] for case in INDEX_CASES], ids=[case[0] for case in INDEX_CASES])
def test_each_lie_of_an_index_has_its_own_error(data: bytes, code: str) -> None:
    start = time.process_time()
    with pytest.raises(ConfigError) as caught:
        read_index(data, "index.json")
    assert time.process_time() - start < 0.2
    assert caught.value.code == code
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_the_counts_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safetensors, "MAXIMUM_TENSORS", 2)
    monkeypatch.setattr(safetensors, "MAXIMUM_METADATA_PAIRS", 2)
    monkeypatch.setattr(safetensors_index, "MAXIMUM_NAMES", 2)
    for data, code in ((VALID, "too-many-tensors"), (whole([], {"a": "", "b": "", "c": ""}), "metadata-too-large")):
        with pytest.raises(ConfigError) as caught:
            read_header(BytesInMemory(data))
        assert caught.value.code == code
    with pytest.raises(ConfigError) as caught:
        read_index(index(a="x.safetensors", b="x.safetensors", c="x.safetensors"), "index.json")
    assert caught.value.code == "too-many-tensors"
    assert len(read_header(BytesInMemory(whole([("a", "U8", ()), ("b", "U8", ())], {"a": "", "b": ""}))).tensors) == 2


@pytest.mark.parametrize("claimed", [REMOTE_HEADER_BYTES + 1, 10**9, 2**63])
def test_a_claimed_length_is_never_fetched(claimed: int) -> None:
    """A server that says nothing of the size: the cap is looked at before the second read."""
    source = Sparse(claimed.to_bytes(8, "little") + b"{" * FIRST_READ_BYTES, None)
    with pytest.raises(ConfigError) as caught:
        read_header(source, REMOTE_HEADER_BYTES)
    assert caught.value.code == "header-too-large"
    assert source.reads == [(0, FIRST_READ_BYTES)]


def test_a_source_that_ends_early_is_a_cut_header() -> None:
    source = Sparse((200_000).to_bytes(8, "little") + b"{" * 150_000, 10**6)
    with pytest.raises(ConfigError) as caught:
        read_header(source)
    assert caught.value.code == "header-cut"
    assert source.reads == [(0, FIRST_READ_BYTES), (FIRST_READ_BYTES, 100_008)]


LARGE = 2_000_000
LARGE_CASES = [
    ("spaces", b"{" + b" " * LARGE + b"}"),
    ("empty objects", b'{"a":[' + b"{}," * (LARGE // 3) + b"{}]}"),
    ("open brackets", b'{"a":' + b"[" * LARGE),
    ("open names", b'{"' * (LARGE // 2)),
    ("escapes in the metadata", b'{"__metadata__":{"a":"' + b'\\"' * (LARGE // 2) + b'"}}'),
    ("half a string of escapes", b'{"__metadata__":{"a":"' + b"\\\\" * (LARGE // 2)),
    ("pairs in the metadata", b'{"__metadata__":{' + b",".join(b'"%d":""' % each for each in range(40_000)) + b"}}"),
    ("digits", b'{"a":{"dtype":"U8","shape":[' + b"1" * LARGE + b"]"),
    ("sizes", b'{"a":{"dtype":"U8","shape":[' + b"1," * (LARGE // 2) + b"1]"),
    ("one character outside the basic plane", b'{"__metadata__":{"a":"\xf0\x9f\x98\x80' + b"a" * LARGE + b'"}}'),
    ("distinct shapes", b"{" + b",".join(b'"%d":{"dtype":"U8","shape":[0,%d],"data_offsets":[0,0]}' % (each, each) for each in range(LARGE // 80)) + b"}"),
    ("distinct unknown dtypes", b"{" + b",".join(b'"%d":{"dtype":"X%d","shape":[],"data_offsets":[0,0]}' % (each, each) for each in range(LARGE // 80)) + b"}"),
]  # fmt: skip


@pytest.mark.parametrize("text", [case[1] for case in LARGE_CASES], ids=[case[0] for case in LARGE_CASES])
def test_memory_and_time_stay_a_small_multiple_of_what_is_there(text: bytes) -> None:
    """`json.loads` makes 26 times its bytes of a header of `{}`; this reader a few, most of them the tensors it gives."""
    data = with_length(text)
    start = time.process_time()
    outcome(data)
    assert time.process_time() - start < 1.5
    tracemalloc.start()
    try:
        outcome(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(data)


def outcome(data: bytes) -> Header | str:
    """The header or the code of the error; anything else is raised."""
    try:
        return read_header(BytesInMemory(data, "model.safetensors"))
    except KvtaxError as error:
        assert str(error).isprintable()
        assert len(str(error)) < 400
        return error.code


def check(data: bytes) -> None:
    found = outcome(data)
    if isinstance(found, Header):
        assert found.file_bytes == len(data)
        assert sum(tensor.bytes for tensor in found.tensors) == found.tensor_bytes
        assert len({tensor.name for tensor in found.tensors}) == len(found.tensors)


WORDS = st.sampled_from([
    b'{"a":{', b'"dtype":"U8"', b'"shape":[', b'"data_offsets":[0,', b"]", b"}", b",", b'"__metadata__":{', b'"format":"pt"', b"0", b"1", b"\\",
    b'"', b" ", b"\xff", b'{"weight_map":{', b'"x.safetensors"',
])  # fmt: skip


@given(st.one_of(st.binary(max_size=400), st.lists(st.one_of(WORDS, st.binary(max_size=4)), max_size=30).map(b"".join)), st.booleans())  # fmt: skip
@settings(deadline=None)
def test_bytes_give_a_header_or_a_kvtax_error(data: bytes, framed: bool) -> None:
    check(with_length(data) if framed else data)


@given(st.randoms(use_true_random=False))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_mutated_files_give_a_header_or_a_kvtax_error(chance: random.Random) -> None:
    check(mutated(chance))


@pytest.mark.parametrize("seed", range(4))
def test_many_mutated_files(seed: int) -> None:
    chance = random.Random(seed)
    codes = set()
    for _ in range(2_500):
        data = mutated(chance)
        check(data)
        found = outcome(data)
        codes.add("" if isinstance(found, Header) else found)
    assert {"", "header-not-json", "size-mismatch", "tensor-overlap", "tensor-outside-file", "trailing-bytes"} <= codes


@given(st.one_of(st.binary(max_size=400), st.lists(WORDS, max_size=12).map(b"".join)))  # fmt: skip
@settings(deadline=None)
def test_bytes_give_an_index_or_a_kvtax_error(data: bytes) -> None:
    try:
        found = read_index(data, "index.json")
    except KvtaxError as error:
        assert str(error).isprintable()
    else:
        assert set(found.files) == set(found.weight_map.values())
