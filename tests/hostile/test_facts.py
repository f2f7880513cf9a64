"""Hostile facts files: whatever is in one, the answer is a model or one clear line."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gguf_files import gguf_bytes
from kvtax.errors import ConfigError, KvtaxError
from kvtax.sources.byte_source import BytesInMemory
from kvtax.sources.found import Found
from kvtax.sources.found_json import MAXIMUM_BYTES, from_json, parse_facts, read_facts, to_json
from kvtax.sources.found_model import model_of
from kvtax.sources.gguf import read_gguf
from kvtax.sources.safetensors import FileTensor, read_header
from kvtax.terms import Notice
from safetensors_files import whole
from strategies import json_values
from tiny_models import COMMIT, CONFIG, GGUF_KEYS, checkpoint, gguf_tensors


@cache
def good() -> dict[str, Found]:
    """What was found of a tiny model in each form."""
    header = read_header(BytesInMemory(whole(checkpoint())))
    gguf = read_gguf(BytesInMemory(gguf_bytes(GGUF_KEYS, gguf_tensors())))
    more: dict[str, Any] = {"limits": {"max_length": 512}, "notices": (Notice("a", "b", "c"),), "commit": COMMIT}
    return {
        "config": Found("acme/x", "file x", CONFIG, {"quantization": {}}, runner="pooling", sized_bytes=10**9, **more),
        "headers": Found(
            "acme/x", "hub", CONFIG, tensors=header.tensors, weights="header of model.safetensors", **more
        ),
        "gguf": Found(
            "acme/x", "file x", gguf=gguf, label="Q4_K_M", settings={"mmproj_bytes": 9, "num_ctx": 8}, **more
        ),
    }


def text(found: Found) -> bytes:
    return json.dumps(to_json(found)).encode()


def read(data: bytes) -> Found:
    return from_json(parse_facts(data, "x.json"), "x.json")


@pytest.mark.parametrize("form", good())
def test_what_is_written_is_read_again(form: str, tmp_path: Path) -> None:
    found = good()[form]
    (tmp_path / "x.json").write_bytes(text(found))
    again = read_facts(str(tmp_path / "x.json"))
    assert sorted(again.tensors or ()) == sorted(found.tensors or ())
    assert again._replace(tensors=found.tensors) == found
    one, other = model_of(again), model_of(found)
    assert one._replace(architecture=other.architecture) == other
    assert list(one.architecture.stored_tensors()) == list(other.architecture.stored_tensors())


@given(
    st.lists(
        st.tuples(st.text(st.sampled_from("ab.*0129 é\u0660"), max_size=24), st.sampled_from((("float32", 4), ("unknown:f3", 1)))),
        max_size=12,
    )
)  # fmt: skip
def test_names_of_tensors_survive_the_packing(rows: list[tuple[str, tuple[str, int]]]) -> None:
    tensors = tuple(FileTensor(name, dtype, (1,), size) for name, (dtype, size) in rows)
    found = good()["headers"]._replace(tensors=tensors)
    assert sorted(read(text(found)).tensors or ()) == sorted(tensors)


def test_what_json_cannot_hold_is_left_out() -> None:
    gguf = good()["gguf"].gguf
    assert gguf is not None
    odd = gguf._replace(keys={**gguf.keys, "a": float("inf"), "b": (float("nan"), 1.0), "c": (True, 2**63)})
    assert read(text(good()["gguf"]._replace(gguf=odd))).gguf == gguf._replace(keys={**gguf.keys, "c": (True, 2**63)})
    config = {**CONFIG, "time_step_limit": (0.0, float("inf"))}
    assert model_of(read(text(good()["config"]._replace(config=config)))).architecture.parameters


def put(form: str, *path: Any) -> Callable[[Any], bytes]:
    """A good file with one value changed."""

    def changed(value: Any) -> bytes:
        document = json.loads(text(good()[form]))
        place = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        return json.dumps(document).encode()

    return changed


RAW = [
    ("empty", b""), ("not JSON", b"hello"), ("a list", b"[]"), ("a number", b"1"), ("no keys", b"{}"), ("cut", b'{"schema": "kvtax.model/1", "id'),
    ("deep", b'{"a":' * 50_000), ("NaN", b'{"schema": NaN}'), ("5,000 digits", b'{"schema": ' + b"1" * 5000 + b"}"),
    ("not UTF-8", b'{"schema": "\xff"}'), ("UTF-16", '{"schema": 1}'.encode("utf-16")), ("another schema", b'{"schema": "kvtax.model/2"}'),
    ("an answer of the hub", b'{"schema": "kvtax.hub-answer/2"}'), ("many entries", b'{"a":[' + b"0," * 4_000_001 + b"0]}"),
]  # fmt: skip
SCALARS = (None, True, -1, 0.5, 2**64, 10**30, "x", "\ud800", "x" * 5000, [], [1], {}, {"x": 1})
PLACES: dict[str, tuple[Callable[[Any], bytes], tuple[Any, ...]]] = {
    **{key: (put("config", key), tuple(one for one in SCALARS if one != "x")) for key in ("id", "place", "weights", "label", "commit")},
    "config": (put("config", "config"), (None, True, 1, "x", [], [1])),
    "quant_config": (put("config", "quant_config"), (True, 1, "x", [])),
    "sized_bytes": (put("config", "sized_bytes"), (True, -1, 0.5, 2**64, "x", [], {})),
    "runner": (put("config", "runner"), (True, 1, "x", "generate", [], {})),
    "limits": (put("config", "limits"), (None, 1, "x", [], {"x": 1}, {"max_length": 0}, {"max_length": "1"}, {"max_length": True})),
    "settings": (put("config", "settings"), (None, [], {"gpu": 1}, {"num_ctx": -1}, {"num_ctx": 1.0}, {"num_ctx": 2**63})),
    "notices": (put("config", "notices"), (None, {}, [1], [["a"]], [["a", "b", 1]], [["a", "b", "c"]] * 4097, ["abc"])),
    "both": (put("config", "gguf"), (json.loads(text(good()["gguf"]))["gguf"],)),
    "tensors": (put("headers", "tensors"), (1, {}, [1], [[]], ["abcde"], [["a", "float32", [1], 4, []], 1])),
    "pattern": (put("headers", "tensors", 0, 0), (None, 1, "\udc00", "x" * 2049, "a.*.b")),
    "dtype": (put("headers", "tensors", 0, 1), (None, 1, "q4_k", "float31", "x" * 100, "float64")),
    "shape": (put("headers", "tensors", 0, 2), (None, 1, "x", [-1], [0.5], [True], [2**49], [1] * 65, [3])),
    "bytes": (put("headers", "tensors", 0, 3), (None, -1, 1.0, "x", 2**63, 7)),
    "names": (put("headers", "tensors", 0, 4), (None, 1, "x", [1], ["1"], ["1 2"], ["x" * 1025])),
    "gguf": (put("gguf", "gguf"), (None, 1, [], {}, "x")),
    "version": (put("gguf", "gguf", "version"), (None, 1, 4, True, "2")),
    "alignment": (put("gguf", "gguf", "alignment"), (None, 0, -32, 33, 2**21, True, 32.0)),
    "data_offset": (put("gguf", "gguf", "data_offset"), (None, -1, 2**63, "x")),
    "file_bytes": (put("gguf", "gguf", "file_bytes"), (-1, 2**63, "x", True)),
    "keys": (put("gguf", "gguf", "keys"), (None, [], {"a": None}, {"a": {}}, {"a": [[1]]}, {"a": 2**64}, {"a": [0] * 4097}, {"x" * 70_000: 1})),
    "lengths": (put("gguf", "gguf", "lengths"), (None, [], {"a": -1}, {"a": 2**63}, {"a": "1"})),
    "gguf tensors": (put("gguf", "gguf", "tensors"), (None, {}, [1], [[]], [["a", "q4_k", [256], 0]] * 2, ["abcd"])),
    "gguf name": (put("gguf", "gguf", "tensors", 0, 0), (None, 1, "x" * 1025, "\ud800")),
    "gguf dtype": (put("gguf", "gguf", "tensors", 0, 1), (None, 1, "q8_k", [], {}, "fp8")),
    "gguf shape": (put("gguf", "gguf", "tensors", 0, 2), (None, [], [0], [-1], [255], [256] * 5, [2**48] * 4, [True], 256)),
    "gguf offset": (put("gguf", "gguf", "tensors", 0, 3), (None, -1, 2**63, 0.0)),
}  # fmt: skip
WRONG = [
    (f"{name}: {json.dumps(value)[:40]}", change, value)
    for name, (change, values) in PLACES.items()
    for value in values
]


@pytest.mark.parametrize("data", [row[1] for row in RAW], ids=[row[0] for row in RAW])
def test_what_is_no_facts_file(data: bytes) -> None:
    refused(data)


@pytest.mark.parametrize(("change", "value"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_every_wrong_value_is_one_error(change: Callable[[Any], bytes], value: Any) -> None:
    refused(change(value))


def refused(data: bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        read(data)
    error = caught.value
    assert error.code == "invalid-facts"
    assert error.exit_code == 2
    assert error.where == "x.json"
    assert str(error).isprintable() and len(str(error)) < 300


def test_a_key_that_is_missing() -> None:
    for form, found in good().items():
        document = to_json(found)
        for key in document.keys() - {"quant_config", "tensors", "sized_bytes", "runner"}:
            if document[key] is not None:
                refused(json.dumps({name: value for name, value in document.items() if name != key}).encode())
        assert form


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(MAXIMUM_BYTES + 1)
    tracemalloc.start()
    with pytest.raises(ConfigError, match="64 MiB") as caught:
        read_facts(str(path))
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    assert caught.value.code == "invalid-facts"
    with pytest.raises(ConfigError) as caught:
        read_facts(str(tmp_path))
    assert caught.value.code == "invalid-facts"


def test_short_patterns_do_not_make_long_names() -> None:
    """A thousand characters times a million names would be a gigabyte."""
    document = to_json(good()["headers"])
    document["tensors"] = [["x" * 1000 + ".*", "float32", [1], 4, ["1"] * 900_000]]
    tracemalloc.start()
    refused(json.dumps(document).encode())
    assert tracemalloc.get_traced_memory()[1] < 300 * 2**20
    tracemalloc.stop()


def survives(data: bytes) -> None:
    """Bytes give a model or one of kvtax's own errors, in no time."""
    started = time.perf_counter()
    try:
        model = model_of(read(data))
    except KvtaxError:
        pass
    else:
        assert model.architecture.parameters >= 0
    assert time.perf_counter() - started < 5


@given(st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes(data: bytes) -> None:
    survives(data)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good file with a few values put in other places, or with its bytes cut, flipped or repeated."""
    document = json.loads(text(good()[draw(st.sampled_from(sorted(good())))]))
    for _ in range(draw(st.integers(0, 3))):
        place: Any = document
        while True:
            keys = sorted(place) if isinstance(place, dict) else range(len(place))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if not isinstance(place[key], (dict, list)) or draw(st.booleans()):
                place[key] = draw(json_values | st.sampled_from((0, -1, 2**62, 2**31, 1, [], {}, "x", 1.5, True)))
                break
            place = place[key]
    data = json.dumps(document).encode()
    if draw(st.booleans()):
        return data
    start, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
    return draw(
        st.sampled_from(
            (data[:start], data[:start] + data[end:], data[:end] + data[start:], data[:start] + b"\xff" + data[start:])
        )
    )


@given(mutated())
def test_mutated_files(data: bytes) -> None:
    survives(data)


@given(mutated())
def test_an_entry_with_a_mutated_file(data: bytes) -> None:
    """Through the user's catalogue, as the command line goes."""
    from kvtax.sources.resolve import find
    from kvtax.sources.user_catalogue import load_catalogue

    with TemporaryDirectory() as folder:
        (Path(folder) / "x.json").write_bytes(data)
        (Path(folder) / "kvtax.toml").write_text('[[model]]\nname = "acme/x"\nfacts = "x.json"\n')
        models, _ = load_catalogue(str(Path(folder) / "kvtax.toml"))
        try:
            assert find("acme/x", models).id == "acme/x"
        except KvtaxError as error:
            assert len(str(error)) < 2000
