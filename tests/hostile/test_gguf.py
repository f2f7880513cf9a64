"""Hostile GGUF files: each lie gives its own error, in bounded time and memory, whatever the bytes are."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gguf_files import (
    LLAMA_KEYS,
    TensorOf,
    Typed,
    gguf_bytes,
    gguf_header,
    key_value,
    llama_tensors,
    text,
    u32,
    u64,
    vocabulary,
)
from kvtax.errors import KvtaxError
from kvtax.sources.byte_source import BytesInMemory
from kvtax.sources.gguf import GgufFile, is_gguf, is_projector, read_gguf
from kvtax.sources.gguf_split import join

ARRAY = 9


def header(*parts: bytes, keys: int = 1, tensors: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + u32(version) + u64(tensors) + u64(keys) + b"".join(parts)


def array(key: str, kind: int, count: int, body: bytes = b"") -> bytes:
    return text(key) + u32(ARRAY) + u32(kind) + u64(count) + body


def tensor(name: str | bytes, dimensions: int, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + u32(dimensions) + b"".join(map(u64, shape)) + u32(kind) + u64(offset)


def of_tensors(*infos: bytes, data: int = 4096) -> bytes:
    return header(*infos, keys=0, tensors=len(infos)) + bytes(data)


THE_TEN = [
    ("an array of 2^63 entries in 49 bytes", header(array("x", 4, 2**63)), "count-beyond-file"),
    ("2^63 keys", header(keys=2**63), "count-beyond-file"),
    ("2^63 tensors", header(keys=0, tensors=2**63), "count-beyond-file"),
    ("2^32 - 1 dimensions", of_tensors(tensor("a", 2**32 - 1, (1, 1))), "too-many-dimensions"),
    ("a text of 2^63 bytes", header(text("x") + u32(8) + u64(2**63) + b"abc"), "header-cut"),
    ("nested arrays", header(array("x", ARRAY, 1, (u32(ARRAY) + u64(1)) * 5000)), "nested-array"),
    ("a key that is not UTF-8", header(key_value(b"\xff\xfe", 1)), "header-not-utf8"),
    ("alignment 0", header(key_value("general.alignment", 0)), "invalid-alignment"),
    ("a key that stands twice", header(key_value("x", 1), key_value("x", 2), keys=2), "duplicate-key"),
    ("elements that wrap at 2^64", of_tensors(tensor("a", 4, (2**32, 2**16, 2**15, 2**1))), "invalid-shape"),
]

CASES = [
    *THE_TEN,
    # ---- the first bytes ----
    ("empty", b"", "header-cut"),
    ("the magic alone", b"GGUF", "header-cut"),
    ("not GGUF", b"GGML" + bytes(60), "not-gguf"),
    ("lower case", b"gguf" + bytes(60), "not-gguf"),
    ("zeros", bytes(4096), "not-gguf"),
    ("a zip", b"PK\x03\x04" + bytes(60), "not-gguf"),
    ("a pointer of Git LFS", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n", "not-gguf"),
    ("version 0", header(version=0, keys=0), "unsupported-gguf-version"),
    ("version 1", header(version=1, keys=0), "unsupported-gguf-version"),
    ("version 4", header(version=4, keys=0), "unsupported-gguf-version"),
    ("version 2^32 - 1", header(version=2**32 - 1, keys=0), "unsupported-gguf-version"),
    ("big-endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian-gguf"),
    # ---- counts ----
    ("one key more than there are", gguf_header(LLAMA_KEYS, key_count=len(LLAMA_KEYS) + 1), "header-cut"),
    ("a key more, the first tensor", gguf_bytes(LLAMA_KEYS, llama_tensors(), key_count=15), "invalid-tensor-name"),
    ("a key less than there are", gguf_bytes(LLAMA_KEYS, llama_tensors(), key_count=12), "too-many-dimensions"),
    ("a tensor more than there are", gguf_bytes(LLAMA_KEYS, llama_tensors(), tensor_count=13), "invalid-tensor-name"),
    ("keys that just do not fit", header(bytes(14 * 8), keys=9), "count-beyond-file"),
    ("65,537 keys", header(bytes(14 * 65537), keys=65537), "too-many-keys"),
    ("131,073 tensors", header(bytes(25 * 131073), keys=0, tensors=131073), "too-many-tensors"),
    ("keys and tensors swapped", header(key_value("x", 1), keys=0, tensors=1), "count-beyond-file"),
    # ---- keys ----
    ("a key without a name", header(key_value("", 1)), "invalid-key"),
    ("a key of 65,536 bytes", header(key_value("k" * 65536, 1)), "invalid-key"),
    ("a key of 2^64 - 1 bytes", header(u64(2**64 - 1) + bytes(64)), "invalid-key"),
    ("a key that is cut", header(u64(40) + b"x" * 39), "header-cut"),
    ("a surrogate in a key", header(key_value(b"\xed\xa0\x80", 1)), "header-not-utf8"),
    ("an overlong form in a key", header(key_value(b"\xc0\xaf", 1)), "header-not-utf8"),
    ("a value of type 13", header(text("x") + u32(13) + bytes(8)), "unknown-value-type"),
    ("a value of type 2^32 - 1", header(text("x") + u32(2**32 - 1) + bytes(8)), "unknown-value-type"),
    ("a number that is cut", header(text("x") + u32(10) + bytes(7)), "header-cut"),
    ("twice, with other types", header(key_value("x", 1), key_value("x", "a"), keys=2), "duplicate-key"),
    ("twice, both passed over", header(*[key_value("tokenizer.x", "a")] * 2, keys=2), "duplicate-key"),
    ("twice, both arrays", header(*[key_value("tokenizer.x", [1])] * 2, keys=2), "duplicate-key"),
    ("escapes in a key", header(text("\x1b[2J\u202e") + u32(13) + bytes(8)), "unknown-value-type"),
    # ---- texts ----
    ("a text that is not UTF-8", header(text("general.name") + u32(8) + text(b"\xff")), "header-not-utf8"),
    ("a name of 1 MiB and a byte", header(key_value("general.name", "n" * (2**20 + 1))), "text-too-long"),
    ("a name of 2^64 - 1 bytes", header(text("general.name") + u32(8) + u64(2**64 - 1)), "text-too-long"),
    ("a template of 2^64 - 1 bytes", header(text("tokenizer.chat_template") + u32(8) + u64(2**64 - 1)), "header-cut"),
    ("a text that is cut", header(text("x") + u32(8) + u64(100) + b"short"), "header-cut"),
    ("17 texts of 1 MiB", header(*[key_value(f"x{n}", "n" * 2**20) for n in range(17)], keys=17), "text-too-long"),
    # ---- arrays ----
    ("an array of 2^61 + 1 numbers", header(array("x", 10, 2**61 + 1, bytes(8))), "count-beyond-file"),
    ("an array of 2^64 - 1 bytes", header(array("x", 0, 2**64 - 1)), "count-beyond-file"),
    ("an array of 2^64 - 1 texts", header(array("tokenizer.x", 8, 2**64 - 1)), "count-beyond-file"),
    ("a number less than is said", header(array("x", 4, 3, bytes(11))), "count-beyond-file"),
    ("a byte less, in the tokenizer", header(array("tokenizer.x", 4, 5000, bytes(19999))), "count-beyond-file"),
    ("an array of type 13", header(array("x", 13, 1, bytes(8))), "unknown-value-type"),
    ("an empty array of type 13", header(array("x", 13, 0)), "unknown-value-type"),
    ("an empty array of arrays", header(array("x", ARRAY, 0)), "nested-array"),
    ("nested arrays in the tokenizer", header(array("tokenizer.x", ARRAY, 2, bytes(64))), "nested-array"),
    ("a token of 2^64 - 1 bytes", header(array("tokenizer.x", 8, 2, u64(2**64 - 1) + bytes(99))), "header-cut"),
    ("a token of 2^63 bytes", header(array("tokenizer.x", 8, 1, u64(2**63) + bytes(99))), "header-cut"),
    ("the last token is cut", header(array("tokenizer.x", 8, 2, text("ab") + u64(3) + b"ab")), "header-cut"),
    ("the length of a token is cut", header(array("tokenizer.x", 8, 2, text("abcdefgh") + bytes(7))), "header-cut"),
    ("8 million and one empty tokens", header(array("tokenizer.x", 8, 2**23 + 1, bytes(8 * 2**23 + 8))), "array-too-long"),
    ("an entry that is not UTF-8", header(array("general.tags", 8, 1, text(b"\x80"))), "header-not-utf8"),
    ("an entry of 2^63 bytes", header(array("general.tags", 8, 1, u64(2**63) + bytes(8))), "text-too-long"),
    # ---- alignment ----
    ("alignment 24", header(key_value("general.alignment", 24)), "invalid-alignment"),
    ("alignment 2 MiB", header(key_value("general.alignment", 2**21)), "invalid-alignment"),
    ("alignment 2^31", header(key_value("general.alignment", 2**31)), "invalid-alignment"),
    ("alignment as a text", header(key_value("general.alignment", "32")), "invalid-alignment"),
    ("alignment as u64", header(key_value("general.alignment", Typed("u64", 32))), "invalid-alignment"),
    ("alignment as NaN", header(key_value("general.alignment", float("nan"))), "invalid-alignment"),
    ("alignment as true", header(key_value("general.alignment", True)), "invalid-alignment"),
    ("alignment -32", header(key_value("general.alignment", -32)), "invalid-alignment"),
    ("alignment as an array", header(key_value("general.alignment", [32])), "invalid-alignment"),
    ("alignment as a long array", header(key_value("general.alignment", [32] * 5000)), "invalid-alignment"),
    # ---- tensors ----
    ("a tensor without a name", of_tensors(tensor("", 1, (1,))), "invalid-tensor-name"),
    ("a name of 1,025 bytes", of_tensors(tensor("n" * 1025, 1, (1,))), "invalid-tensor-name"),
    ("a name of 2^63 bytes", of_tensors(u64(2**63) + bytes(40)), "invalid-tensor-name"),
    ("a name that is not UTF-8", of_tensors(tensor(b"\xfe", 1, (1,))), "header-not-utf8"),
    ("two tensors of one name", of_tensors(tensor("a", 1, (8,)), tensor("a", 1, (8,), 0, 32)), "duplicate-tensor"),
    ("five dimensions", of_tensors(tensor("a", 5, (1, 1, 1, 1, 1))), "too-many-dimensions"),
    ("a dimension of 0", of_tensors(tensor("a", 2, (8, 0))), "invalid-shape"),
    ("rows of 0", of_tensors(tensor("a", 2, (0, 8), 12)), "invalid-shape"),
    ("a dimension of 2^64 - 1", of_tensors(tensor("a", 1, (2**64 - 1,))), "invalid-shape"),
    ("2^63 elements", of_tensors(tensor("a", 2, (2**62, 2))), "invalid-shape"),
    ("2^256 elements", of_tensors(tensor("a", 4, (2**64 - 1,) * 4)), "invalid-shape"),
    ("2^62 elements", of_tensors(tensor("a", 2, (2**61, 2))), "tensor-outside-file"),
    ("bytes that wrap at 2^64", of_tensors(tensor("a", 1, (2**62 + 1,))), "tensor-outside-file"),
    ("rows that are no whole blocks", of_tensors(tensor("a", 1, (255,), 12)), "invalid-shape"),
    ("NVFP4 rows of 32", of_tensors(tensor("a", 1, (32,), 40)), "invalid-shape"),
    ("type 4, removed", of_tensors(tensor("a", 1, (256,), 4)), "unknown-dtype"),
    ("type 9 (q8_1)", of_tensors(tensor("a", 1, (256,), 9)), "unknown-dtype"),
    ("type 15 (q8_k)", of_tensors(tensor("a", 1, (256,), 15)), "unknown-dtype"),
    ("type 43", of_tensors(tensor("a", 1, (256,), 43)), "unknown-dtype"),
    ("type 2^32 - 1", of_tensors(tensor("a", 1, (256,), 2**32 - 1)), "unknown-dtype"),
    ("offset 2^64 - 1", of_tensors(tensor("a", 1, (8,), 0, 2**64 - 1)), "tensor-outside-file"),
    ("offset 2^64 - 32", of_tensors(tensor("a", 1, (8,), 0, 2**64 - 32)), "tensor-outside-file"),
    ("an offset that is not aligned", of_tensors(tensor("a", 1, (8,), 0, 4)), "tensor-misaligned"),
    ("the same bytes twice", of_tensors(tensor("a", 1, (8,)), tensor("b", 1, (8,))), "tensor-overlap"),
    ("half over each other", of_tensors(tensor("a", 1, (16,)), tensor("b", 1, (8,), 0, 32)), "tensor-overlap"),
    ("a hole", of_tensors(tensor("a", 1, (8,)), tensor("b", 1, (8,), 0, 64)), "tensor-gap"),
    ("a hole in front", of_tensors(tensor("a", 1, (8,), 0, 32)), "tensor-gap"),
    ("offsets in another order", of_tensors(tensor("a", 1, (8,), 0, 32), tensor("b", 1, (8,))), "tensor-gap"),
    ("weights that are cut", gguf_bytes(LLAMA_KEYS, llama_tensors())[:-32], "tensor-outside-file"),
    ("no weights at all", gguf_header(LLAMA_KEYS, llama_tensors()), "tensor-outside-file"),
    ("no padding, no weights", of_tensors(tensor("a", 1, (1,)), data=0), "tensor-outside-file"),
    ("escapes in a tensor", of_tensors(tensor("\x1b[2J\u202e\n", 9, (1,))), "too-many-dimensions"),
    ("a tensor that is cut", header(u64(30) + b"name" + bytes(20), keys=0, tensors=1), "header-cut"),
]  # fmt: skip


def read(data: bytes, first_read_bytes: int = 2**20) -> GgufFile:
    return read_gguf(BytesInMemory(data, "model\x1b.gguf"), first_read_bytes)


@pytest.mark.parametrize(("data", "code"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_lie_has_its_own_error(data: bytes, code: str) -> None:
    start = time.process_time()
    with pytest.raises(KvtaxError) as caught:
        read(data)
    assert time.process_time() - start < 0.2
    assert caught.value.code == code
    assert caught.value.exit_code == 2
    line = f"{caught.value} {caught.value.hint}"
    assert line.isprintable()
    assert str(caught.value).startswith("model\\x1b.gguf: ")
    assert len(line) < 400


def test_there_are_ten_and_all_ids_differ() -> None:
    assert len(THE_TEN) == 10
    assert len({case[0] for case in CASES}) == len(CASES)
    assert len(THE_TEN[0][1]) == 49


@pytest.mark.parametrize("data", [case[1] for case in CASES if case[2] != "tensor-outside-file"])
def test_a_lie_is_no_better_behind_a_server(data: bytes) -> None:
    """Where the length of the file is not known beforehand, the bounds are those of the header."""

    class Unsized(BytesInMemory):
        def __init__(self) -> None:
            super().__init__(data)
            self.size = None  # type: ignore[assignment]

    start = time.process_time()
    with pytest.raises(KvtaxError):
        read_gguf(Unsized(), 64)
    assert time.process_time() - start < 0.2


@pytest.mark.parametrize("name", [case[0] for case in CASES if len(case[1]) < 5000])
def test_memory_is_not_what_a_file_claims(name: str) -> None:
    data = next(case[1] for case in CASES if case[0] == name)
    tracemalloc.start()
    try:
        with pytest.raises(KvtaxError):
            read(data)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


class Endless:
    """A server whose file never ends, or that says it is a terabyte."""

    name = "endless"

    def __init__(self, start: bytes, filler: bytes, size: int | None) -> None:
        self.start, self.filler, self.size, self.bytes_read = start, filler, size, 0

    def read(self, start: int, length: int) -> bytes:
        self.bytes_read += length
        head = self.start[start : start + length]
        filled = length - len(head)
        skipped = max(start - len(self.start), 0) % len(self.filler)
        return head + (self.filler * (filled // len(self.filler) + 2))[skipped : skipped + filled]


@pytest.mark.parametrize("size", [None, 2**40])
@pytest.mark.parametrize(
    ("start", "filler", "most_bytes"),
    [
        (header(keys=2**16), b"\x08" + bytes(7), 2**25),
        (header(array("tokenizer.x", 8, 2**23)), u64(2**20) + bytes(2**20), 2**29),
        (header(array("tokenizer.x", 8, 2**23)), u64(300) + bytes(300), 2**29),
        (header(array("tokenizer.x", 0, 2**28)), b"\0", 2**21),
        (header(text("tokenizer.x") + u32(8) + u64(2**28)), b"\0", 2**21),
        (header(text("tokenizer.x") + u32(8) + u64(2**28 - 96), keys=2), b"\x20\0\0\0\0\0\0\0", 2**22),
    ],
    ids=["keys", "long tokens", "tokens", "numbers", "a text beyond the bound", "a text up to the bound"],
)
def test_a_header_that_never_ends_is_left(start: bytes, filler: bytes, most_bytes: int, size: int | None) -> None:
    source = Endless(start, filler, size)
    began = time.process_time()
    with pytest.raises(KvtaxError) as caught:
        read_gguf(source)
    assert time.process_time() - began < 2
    assert caught.value.code in ("header-too-large", "unknown-value-type")
    assert source.bytes_read <= most_bytes


def test_a_source_that_gives_less_than_it_says() -> None:
    """The length that was said was a lie, or the file was cut while it was read."""
    data = gguf_header(LLAMA_KEYS)
    source = BytesInMemory(data[:200])
    source.size = len(data)
    with pytest.raises(KvtaxError) as caught:
        read_gguf(source)
    assert caught.value.code == "count-beyond-file"


# ---- any bytes ----


def outcome(data: bytes) -> None:
    """A result whose figures can be had, or a KvtaxError."""
    try:
        found = read(data, 64)
        assert 0 <= found.tensor_bytes <= found.data_bytes
        assert found.data_offset <= len(data)
        assert is_gguf(data)
        is_projector(found)
        join([found])
    except KvtaxError as error:
        assert error.exit_code == 2
        assert f"{error}{error.hint}".isprintable()
        assert error.code != "error"


@given(st.binary(max_size=2000))
@settings(deadline=None)
def test_bytes_give_a_result_or_a_kvtax_error(data: bytes) -> None:
    outcome(data)
    outcome(b"GGUF" + u32(3) + data)


items = st.one_of(
    st.binary(max_size=12),
    st.integers(0, 12).map(u32),
    st.one_of(st.integers(0, 40), st.sampled_from([2**31, 2**32, 2**62, 2**63, 2**64 - 1])).map(u64),
    st.text(max_size=6).map(text),
    st.tuples(st.text(max_size=4), st.integers(0, 99)).map(lambda pair: key_value(*pair)),
    st.tuples(st.text(max_size=4), st.lists(st.text(max_size=3), max_size=4)).map(lambda pair: key_value(*pair)),
)


@given(st.integers(0, 4), st.integers(0, 4), st.lists(items, max_size=12).map(b"".join))
@settings(deadline=None)
def test_nearly_valid_headers_give_a_result_or_a_kvtax_error(keys: int, tensors: int, body: bytes) -> None:
    outcome(header(body, keys=keys, tensors=tensors) + bytes(64))


def flip(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] = chance.choice((0, 1, 4, 8, 9, 13, 32, 127, 128, 255, chance.randrange(256)))


def cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(4, len(data)) :]


def drop(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(4, len(data))
    del data[start : start + chance.choice((1, 4, 8, 30))]


def repeat(data: bytearray, chance: random.Random) -> None:
    start, length = chance.randrange(len(data)), chance.choice((1, 8, 40))
    data[start:start] = data[start : start + length]


def swap_counts(data: bytearray, chance: random.Random) -> None:
    data[8:24] = data[16:24] + data[8:16]


def number(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(4, max(len(data) - 8, 5))
    value = chance.choice((0, 1, 5, 2**20, 2**31 - 1, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1))
    data[start : start + 8] = u64(value)


MUTATIONS: tuple[Callable[[bytearray, random.Random], Any], ...] = (flip, flip, flip, cut, drop, repeat, swap_counts, number, number)  # fmt: skip
VALID = (
    gguf_bytes({**LLAMA_KEYS, **vocabulary(12, 6)}, [*llama_tensors(1)[:1], TensorOf("a", (3,)), TensorOf("b", (64,), "nvfp4")]),
    gguf_bytes({**LLAMA_KEYS, "general.alignment": 8}, [TensorOf("a.b", (2, 3), "float16"), TensorOf("c", (1,))]),
    gguf_bytes({**vocabulary(40, 9), "x.all": Typed("f64", [0.5] * 3), "split.no": Typed("u16", 0)}),
    gguf_bytes({"general.architecture": "clip"}, [TensorOf(f"v.{index}", (32, 2), "q8_0") for index in range(6)], version=2),
)  # fmt: skip


def mutated(chance: random.Random) -> bytes:
    data = bytearray(chance.choice(VALID))
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        if len(data) > 24:
            chance.choice(MUTATIONS)(data, chance)
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_files(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(2500):
        data = mutated(chance)
        try:
            outcome(data)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {data!r:.2000}") from error


def test_valid_files_before_they_are_mutated() -> None:
    for data in VALID:
        assert read(data).version in (2, 3)


def test_a_fuzzer_can_drive_the_property_test() -> None:
    fuzz = test_bytes_give_a_result_or_a_kvtax_error.hypothesis.fuzz_one_input  # type: ignore[attr-defined]
    for data in VALID:
        fuzz(data)
