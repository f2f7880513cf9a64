"""Hostile stores and folders: names that climb, manifests that lie, files that are none; one line, bounded time, nothing opened."""

from __future__ import annotations

import json
import os
import random
import sys
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

from kvtax.errors import KvtaxError
from kvtax.sources import ollama
from kvtax.sources.folder import scan, sort_files
from kvtax.sources.gguf_folder import choices, pick, sort_gguf
from kvtax.sources.listing import MAXIMUM_ENTRIES, list_folder
from kvtax.sources.lm_studio import find_lm_studio, list_lm_studio, lm_studio_stores
from kvtax.sources.ollama import find_ollama, list_ollama
from stores import blob, layer, manifest_path, usual_layers, write_manifest
from strategies import json_values

ZERO = "0" * 64
posix = pytest.mark.skipif(sys.platform == "win32", reason="FIFOs, links and control characters in names are POSIX's")


def one(**values: Any) -> Callable[[Path], Any]:
    """A manifest whose one layer has these values in place of right ones."""
    return lambda store: [{**layer(store, "model", b"GGUF"), **values}]


def params(data: bytes, times: int = 1) -> Callable[[Path], Any]:
    return lambda store: [layer(store, "model", b"GGUF"), *[layer(store, "params", data)] * times]


RAW = [
    ("empty", b"", "invalid-json"),
    ("not JSON", b"hello", "invalid-json"),
    ("a list", b"[]", "invalid-json"),
    ("cut", b'{"layers": [{"mediaType": ', "invalid-json"),
    ("deep lists", b'{"layers": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "invalid-json"),
    ("deep objects", b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "invalid-json"),
    ("NaN", b'{"layers": [], "size": NaN}', "invalid-json"),
    ("5,000 digits", b'{"layers": [{"size": ' + b"1" * 5000 + b"}]}", "invalid-json"),
    ("not UTF-8", b'{"layers": "\xff"}', "invalid-json"),
    ("UTF-16", '{"layers": []}'.encode("utf-16"), "invalid-json"),
    ("too large", b'{"layers": "' + b"x" * 2**20 + b'"}', "file-too-large"),
    ("no layers", b"{}", "invalid-manifest"),
    ("layers is an object", b'{"layers": {}}', "invalid-manifest"),
    ("layers of numbers", b'{"layers": [1, 2]}', "invalid-manifest"),
    ("a layer without anything", b'{"layers": [{}]}', "invalid-manifest"),
    ("many empty layers", b'{"layers": [' + b"{}," * 340_000 + b"{}]}", "invalid-manifest"),
    ("a deep digest", b'{"layers": [{"mediaType": "m", "size": 1, "digest": ' + b"[" * 900 + b"]" * 900 + b"}]}", "invalid-digest"),
    ("a deep size", b'{"layers": [{"mediaType": "m", "digest": "sha256:' + ZERO.encode() + b'", "size": ' + b"[" * 900 + b"]" * 900 + b"}]}",
     "invalid-manifest"),
    ("config with a wrong digest", b'{"config": {"mediaType": "m", "digest": "sha256:x", "size": 1}, "layers": []}', "invalid-digest"),
    ("config that is missing", b'{"config": {"mediaType": "m", "digest": "sha256:' + ZERO.encode() + b'", "size": 1}, "layers": []}',
     "missing-blob"),
]  # fmt: skip

LAYERS = [
    ("a digest that climbs", one(digest="sha256:../../../../etc/passwd"), "invalid-digest"),
    ("a digest that climbs, 64 long", one(digest="sha256:" + "../" * 21 + "x"), "invalid-digest"),
    ("a digest with a dash", one(digest="sha256-" + ZERO), "invalid-digest"),
    ("a digest that is short", one(digest="sha256:" + "0" * 63), "invalid-digest"),
    ("a digest that is long", one(digest="sha256:" + "0" * 65), "invalid-digest"),
    ("a digest with a line end", one(digest="sha256:" + ZERO + "\n"), "invalid-digest"),
    ("a digest in other digits", one(digest="sha256:" + "٠" * 64), "invalid-digest"),
    ("another hash", one(digest="sha512:" + ZERO), "invalid-digest"),
    ("no digest", one(digest=""), "invalid-digest"),
    ("a digest with escapes", one(digest="\x1b[2J\u202e"), "invalid-digest"),
    ("a number as digest", one(digest=7), "invalid-digest"),
    ("a negative size", one(size=-1), "invalid-manifest"),
    ("a huge size", one(size=10**30), "invalid-manifest"),
    ("true as size", one(size=True), "invalid-manifest"),
    ("a text as size", one(size="4"), "invalid-manifest"),
    ("a fraction as size", one(size=4.0), "invalid-manifest"),
    ("a number as media type", one(mediaType=4), "invalid-manifest"),
    ("a list as name", one(name=["x"]), "invalid-manifest"),
    ("a long name", one(name="x" * 1025), "invalid-manifest"),
    ("another size", one(size=5), "size-mismatch"),
    ("a blob that is missing", one(digest="sha256:" + ZERO), "missing-blob"),
    ("no weights", lambda store: [layer(store, "template", b"x")], "no-weights"),
    ("nothing", lambda store: [], "no-weights"),
    ("a kind with escapes", one(mediaType="\x1b[2J"), "no-weights"),
    ("params that are no JSON", params(b"num_ctx 8192"), "invalid-json"),
    ("params that are a list", params(b"[1]"), "invalid-json"),
    ("params that nest", params(b'{"a":' * 50_000 + b"1" + b"}" * 50_000), "invalid-json"),
    ("params with NaN", params(b'{"num_ctx": NaN}'), "invalid-json"),
    ("a text as num_ctx", params(b'{"num_ctx": "8192"}'), "invalid-parameter"),
    ("true as num_ctx", params(b'{"num_ctx": true}'), "invalid-parameter"),
    ("a list as num_ctx", params(b'{"num_ctx": ' + b"[" * 500 + b"]" * 500 + b"}"), "invalid-parameter"),
    ("a huge num_ctx", params(b'{"num_ctx": 1e300}'), "invalid-parameter"),
    ("30 digits as num_ctx", params(b'{"num_ctx": ' + b"9" * 30 + b"}"), "invalid-parameter"),
    ("params without end", params(b"{}", 17), "invalid-manifest"),
]  # fmt: skip


def environment(store: Path) -> dict[str, str]:
    return {"OLLAMA_MODELS": str(store), "HOME": str(store)}


def failure(call: Callable[[], object]) -> KvtaxError:
    """The error of a call, which must be one line and quick."""
    start = time.process_time()
    with pytest.raises(KvtaxError) as caught:
        call()
    assert time.process_time() - start < 0.5
    line = f"{caught.value} {caught.value.hint}"
    assert line.isprintable()
    assert len(line) < 900
    return caught.value


@pytest.mark.parametrize(("data", "code"), [case[1:] for case in RAW], ids=[case[0] for case in RAW])
def test_each_manifest_has_its_own_error(tmp_path: Path, data: bytes, code: str) -> None:
    manifest_path(tmp_path).write_bytes(data)
    assert failure(lambda: find_ollama("llama3.1:8b", environment(tmp_path))).code == code


@pytest.mark.parametrize(("layers", "code"), [case[1:] for case in LAYERS], ids=[case[0] for case in LAYERS])
def test_each_layer_has_its_own_error(tmp_path: Path, layers: Callable[[Path], Any], code: str) -> None:
    write_manifest(tmp_path, layers(tmp_path))
    assert failure(lambda: find_ollama("llama3.1:8b", environment(tmp_path))).code == code


def test_memory_stays_a_small_multiple_of_the_file(tmp_path: Path) -> None:
    manifest_path(tmp_path).write_bytes(b'{"layers": [' + b"{}," * 340_000 + b"{}]}")
    tracemalloc.start()
    with pytest.raises(KvtaxError):  # slower than usual, as every allocation is counted
        find_ollama("llama3.1:8b", environment(tmp_path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * 2**20


@pytest.mark.parametrize(
    "name",
    ["../../../etc/passwd", "../x/y:z", "a/../b", "/etc/passwd", "x:../../y", "..", "x/y/../../z", "\x1b[2J", "C:\\x"],
)
def test_no_name_leads_out_of_the_store(tmp_path: Path, name: str) -> None:
    (tmp_path / "models" / "manifests").mkdir(parents=True)
    (tmp_path / "secret").write_text("{}")
    assert failure(lambda: find_ollama(name, environment(tmp_path / "models"))).code == "invalid-model-name"


def special_files(path: Path) -> list[tuple[str, Callable[[], None]]]:
    return [
        ("a FIFO", lambda: os.mkfifo(path)),
        ("a device", lambda: path.symlink_to("/dev/zero")),
        ("a loop of links", lambda: path.symlink_to(path)),
        ("a link to nowhere", lambda: path.symlink_to(path.parent / "gone")),
        ("a folder", path.mkdir),
    ]


SPECIAL = [name for name, _ in special_files(Path("x"))]


@posix
@pytest.mark.parametrize("kind", SPECIAL)
def test_a_manifest_that_is_no_file(tmp_path: Path, kind: str) -> None:
    dict(special_files(manifest_path(tmp_path)))[kind]()
    assert failure(lambda: find_ollama("llama3.1:8b", environment(tmp_path))).code == "unreadable-file"
    assert list_ollama(environment(tmp_path)) == ()


@posix
@pytest.mark.parametrize("kind", SPECIAL)
def test_a_blob_that_is_no_file(tmp_path: Path, kind: str) -> None:
    layers = usual_layers(tmp_path)
    path = tmp_path / "blobs" / layers[0]["digest"].replace(":", "-")
    path.unlink()
    dict(special_files(path))[kind]()
    write_manifest(tmp_path, layers)
    assert failure(lambda: find_ollama("llama3.1:8b", environment(tmp_path))).code == "missing-blob"


@posix
def test_a_blob_may_be_a_link_out_of_the_store(tmp_path: Path) -> None:
    """People keep blobs on another disk; its header is read like any file's."""
    store = tmp_path / "store"
    layers = usual_layers(store)
    path = store / "blobs" / layers[0]["digest"].replace(":", "-")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    write_manifest(store, layers)
    assert find_ollama("llama3.1:8b", environment(store)).model_bytes == 100


@posix
def test_texts_of_the_model_are_never_read(tmp_path: Path) -> None:
    """A template may be missing or a FIFO: nobody looks."""
    layers = usual_layers(tmp_path)
    for kind in layers[1:4]:
        path = tmp_path / "blobs" / kind["digest"].replace(":", "-")
        path.unlink()
        os.mkfifo(path)
    write_manifest(tmp_path, layers)
    assert find_ollama("llama3.1:8b", environment(tmp_path)).parameters["num_ctx"] == 8192


@posix
def test_folders_of_manifests_that_link_to_themselves(tmp_path: Path) -> None:
    write_manifest(tmp_path, usual_layers(tmp_path))
    (tmp_path / "manifests" / "loop").symlink_to(tmp_path / "manifests")
    (tmp_path / "manifests" / "loop2").symlink_to("loop2")
    start = time.process_time()
    assert "llama3.1:8b" in list_ollama(environment(tmp_path))
    assert time.process_time() - start < 1


@posix
def test_names_in_the_store_are_checked_before_they_are_shown(tmp_path: Path) -> None:
    write_manifest(tmp_path, usual_layers(tmp_path), "registry.ollama.ai/library/evil\x1b[2J/latest")
    write_manifest(tmp_path, usual_layers(tmp_path))
    assert list_ollama(environment(tmp_path)) == ("llama3.1:8b",)
    assert failure(lambda: find_ollama("evil", environment(tmp_path))).code == "unknown-model"


@posix
def test_too_many_entries(tmp_path: Path) -> None:
    for number in range(MAXIMUM_ENTRIES + 1):
        (tmp_path / f"{number}").touch()
    assert failure(lambda: list_folder(str(tmp_path))).code == "too-many-files"
    assert failure(lambda: scan(str(tmp_path))).code == "too-many-files"
    (tmp_path / "deep").mkdir()
    for number in range(2, MAXIMUM_ENTRIES, 2):
        (tmp_path / f"{number}").rename(tmp_path / "deep" / f"{number}")
    assert failure(lambda: scan(str(tmp_path))).code == "too-many-files"
    (tmp_path / "deeper").mkdir()
    for number in range(2, MAXIMUM_ENTRIES // 2, 2):  # no folder alone holds too much of what is left
        (tmp_path / "deep" / f"{number}").rename(tmp_path / "deeper" / f"{number}")
    assert failure(lambda: scan(str(tmp_path))).code == "too-many-files"
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "manifests").symlink_to(tmp_path)
    assert list_ollama(environment(tmp_path / "models")) == ()


@posix
@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", ["model.safetensors", "m-Q4_K_M.gguf", "pytorch_model.bin", "config.json"])
def test_what_is_called_like_weights_and_is_no_file(tmp_path: Path, name: str, kind: str) -> None:
    dict(special_files(tmp_path / name))[kind]()
    found = scan(str(tmp_path))
    assert not (found.weights or found.configs or found.gguf.choices)
    assert found.unreadable == (() if kind == "a folder" else (name,))


@posix
def test_a_folder_that_links_to_itself(tmp_path: Path) -> None:
    (tmp_path / "m-Q4_0.gguf").write_bytes(b"GGUF")
    (tmp_path / "again").symlink_to(tmp_path)
    assert len(scan(str(tmp_path)).gguf.choices) == 2  # one folder down and no further


@pytest.mark.parametrize("path", ["", "\x00", "x\x00y", "gone", "a\x1b[2J", "/dev/null", "x" * 5000])
def test_paths_that_are_no_folder(path: str) -> None:
    assert failure(lambda: scan(path)).code == "unreadable-folder"


def test_names_are_shown_escaped() -> None:
    evil = "\x1b[2J\u202e"
    found = choices({f"{evil}a.gguf": 1, f"{evil}b.gguf": 2, "m-\udcff.gguf": 3})
    assert all(choice.label.isprintable() for choice in found)
    for wanted in ("nothing", evil):
        assert failure(lambda wanted=wanted: pick(found, wanted)).code == "unknown-quantization"
    many = choices({f"x/{evil}{number}-Q4_0.gguf": 1 for number in range(200)})
    assert failure(lambda: pick(many, "Q4_0")) is not None


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/x.safetensors", "a/b.safetensors", "a\\b.safetensors", "model.bin", "", ".safetensors", "x\x00.safetensors",
             "x" * 2000 + ".safetensors", "model.safetensors\n"],
)  # fmt: skip
def test_an_index_may_name_only_files_beside_it(name: str) -> None:
    files = {"model.safetensors.index.json": 1, "model.safetensors": 1}
    assert failure(lambda: sort_files(files, [name])).code == "invalid-shard-name"


def test_a_name_may_claim_many_shards() -> None:
    start = time.process_time()
    found = sort_files({"model-00001-of-999999.safetensors": 1, "m-Q4_0-00001-of-99999.gguf": 1})
    assert len(found.missing) == MAXIMUM_ENTRIES
    assert not found.gguf.choices[0].complete
    assert failure(lambda: pick(found.gguf.choices, "Q4_0")).code == "missing-shard"
    assert time.process_time() - start < 0.2


def test_long_lists_and_long_names_take_linear_time() -> None:
    start = time.process_time()
    files = {f"m{number}-Q4_K_M-00001-of-00002.gguf": 1 for number in range(10_000)}
    assert len(sort_files(files).gguf.choices) == 10_000
    assert time.process_time() - start < 2
    start = time.process_time()
    for text in (
        "Q4_0" * 5000,
        "-" * 20_000,
        "_K" * 10_000,
        "q4" + "_0" * 10_000,
        "f" * 20_000,
        "mtp-" * 5000,
        "-00001-of" * 2000,
    ):
        sort_gguf({f"{text[:1000]}.gguf": 1, f"{text}.gguf": 1, f"{text}/x.gguf": 1, text: 1})
        sort_files({f"{text[:1000]}.safetensors": 1, f"{text}.safetensors": 1})
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a/../../b", "a/b/../../../c.gguf", "a/b/\x1b[2J.gguf", "a\x00/b"]
)
def test_no_name_leads_out_of_lm_studios_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / ".lmstudio" / "models").mkdir(parents=True)
    assert failure(lambda: find_lm_studio(name, {"HOME": str(tmp_path)})).code == "invalid-model-name"


@posix
def test_lm_studios_own_files_may_be_anything(tmp_path: Path) -> None:
    models = tmp_path / ".lmstudio" / "models"
    (models / "a\x1b[2J" / "b").mkdir(parents=True)
    os.mkfifo(tmp_path / ".lmstudio-home-pointer")
    (tmp_path / ".lmstudio" / "settings.json").symlink_to("/dev/zero")
    home = {"HOME": str(tmp_path)}
    assert lm_studio_stores(home) == (str(models),)
    assert list_lm_studio(home) == ("a\\x1b[2J/b",)
    assert failure(lambda: find_lm_studio("x/y", home)).code == "unknown-model"


@cache
def fuzz_store() -> tuple[TemporaryDirectory[str], Path, str]:
    """One store for all tries, with a blob of the size 4 that any manifest may name."""
    folder = TemporaryDirectory()
    store = Path(folder.name)
    digest, _ = blob(store, b"GGUF")
    return folder, store, digest


def read_manifest(data: bytes) -> None:
    _, store, _ = fuzz_store()
    manifest_path(store).write_bytes(data)
    try:
        found = find_ollama("llama3.1:8b", environment(store))
        assert found.model_bytes >= 0
        assert all(os.path.dirname(path) == str(store / "blobs") for path in found.model_paths)
    except KvtaxError as error:
        assert f"{error} {error.hint}".isprintable()


@given(st.binary(max_size=2000))
def test_bytes_of_a_manifest_give_a_result_or_a_kvtax_error(data: bytes) -> None:
    read_manifest(data)


layer_values = st.fixed_dictionaries(
    {},
    optional={
        "mediaType": json_values | st.sampled_from([ollama._MEDIA + kind for kind in ("model", "params", "tensor", "json", "projector")]),
        "digest": json_values | st.builds(lambda: fuzz_store()[2]),
        "size": json_values | st.just(4),
        "name": json_values,
    },
)  # fmt: skip


@given(st.lists(layer_values, max_size=4) | json_values, json_values)
def test_layers_give_a_result_or_a_kvtax_error(layers: Any, config: Any) -> None:
    read_manifest(json.dumps({"layers": layers, "config": config}).encode())


@given(
    st.binary(max_size=200)
    | st.dictionaries(st.sampled_from(ollama._INTEGERS), json_values).map(lambda found: json.dumps(found).encode())
)
def test_parameters_give_integers_or_a_kvtax_error(data: bytes) -> None:
    _, store, digest = fuzz_store()
    own = "sha256:" + ZERO
    (store / "blobs" / f"sha256-{ZERO}").write_bytes(data)
    layers = [
        {"mediaType": ollama._MEDIA + "model", "digest": digest, "size": 4},
        {"mediaType": ollama._MEDIA + "params", "digest": own, "size": len(data)},
    ]
    manifest_path(store).write_text(json.dumps({"layers": layers}))
    try:
        found = find_ollama("llama3.1:8b", environment(store))
        assert all(type(value) is int and abs(value) <= 2**31 for value in found.parameters.values())
    except KvtaxError as error:
        assert f"{error} {error.hint}".isprintable()


def test_mutated_manifests() -> None:
    """A byte flipped, a cut, a repeat: a result or a KvtaxError."""
    _, _, digest = fuzz_store()
    layers = [{"mediaType": ollama._MEDIA + "model", "digest": digest, "size": 4, "name": "x"}] * 3
    good = json.dumps({"schemaVersion": 2, "config": {}, "layers": layers}).encode()
    chance = random.Random(4)
    for _ in range(1000):
        data = bytearray(good)
        for _ in range(chance.choice((1, 1, 2, 8))):
            place, end = sorted(chance.choices(range(len(data)), k=2))
            match chance.randrange(4):
                case 0:
                    data[place] = chance.randrange(256)
                case 1:
                    del data[place:end]
                case 2:
                    data[place:place] = data[place:end][:200]
                case _:
                    data[place : place + 1] = chance.choice((b"9" * 30, b"null", b"[[", b"-", b'"', b"\x00"))
            if not data:
                break
        read_manifest(bytes(data))


listings = st.dictionaries(
    st.text(max_size=40) | st.from_regex(r"\A[a-z./_-]{0,12}(-0000\d-of-0000\d)?\.(gguf|safetensors|bin|pth)\Z"), st.none() | st.integers(), max_size=12
)  # fmt: skip


@given(listings, st.none() | st.lists(st.text(max_size=20), max_size=3))
def test_any_listing_is_sorted(files: dict[str, int | None], shards: list[str] | None) -> None:
    try:
        found = sort_files(files, shards)
        assert found.bytes is None or found.bytes >= 0
    except KvtaxError as error:
        assert str(error).isprintable()
