"""`kvtax gguf` from the outside."""

import csv
import io
import json
import pathlib

import jsonschema
import pytest

import kvtax
from gguf_files import data_bytes, gguf_header, vocabulary, write_gguf
from kvtax.sources import recent
from kvtax.sources.hub import read
from runner import run_here
from tiny_models import COMMIT, CONFIG, GGUF_KEYS, HubInMemory, gguf_tensors, safetensors_folder

SCHEMA = pathlib.Path(kvtax.__file__).parent / "views" / "schemas" / "gguf.schema.json"
FORMATS = {"Q4_K_M": "q4_k", "Q8_0": "q8_0", "F16": "float16"}


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """Nothing of this machine is read, and nothing is remembered."""
    monkeypatch.setattr(recent, "_read", {})
    for name in ("HF_HUB_CACHE", "KVTAX_CACHE_DIR", "HF_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere" / name))
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def here(capsys, monkeypatch):
    return lambda *words, **more: run_here(capsys, monkeypatch, "gguf", *words, **more)


@pytest.fixture
def document(here):
    def answered(*words, code=0):
        ran = here(*words, "--json")
        assert ran.code == code, ran.err
        found = json.loads(ran.out)
        jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))
        return found

    return answered


@pytest.fixture
def budget(capsys, monkeypatch):
    def answered(*words):
        return json.loads(run_here(capsys, monkeypatch, "budget", "--engine", "llama.cpp", *words, "--json").out)

    return answered


@pytest.fixture
def folder(tmp_path):
    """Three quantisations, a split one that is not whole, one that is broken, and a projector."""
    made = tmp_path / "models"
    made.mkdir()
    for label, dtype in FORMATS.items():
        write_gguf(made / f"Tiny-{label}.gguf", GGUF_KEYS, gguf_tensors(dtype))
    write_gguf(made / "Tiny-BF16-00001-of-00002.gguf", GGUF_KEYS, gguf_tensors("bfloat16"))
    (made / "Tiny-Q2_K.gguf").write_bytes(b"GGUF and nothing else")
    (made / "mmproj-F16.gguf").write_bytes(b"GGUF" + bytes(996))
    return made


@pytest.fixture
def hub(monkeypatch):
    """A repository with the same, as the hub has it."""

    def serve(**more):
        files = {}
        for label, dtype in FORMATS.items():
            head = gguf_header(GGUF_KEYS, gguf_tensors(dtype))
            files[f"Tiny-{label}.gguf"] = (head, len(head) + data_bytes(GGUF_KEYS, gguf_tensors(dtype)))
        files["mmproj-F16.gguf"] = (b"GGUF", 1000)
        made = HubInMemory({"acme/Tiny-GGUF": {**files, **more}, "acme/Tiny": {"config.json": b"{}"}})
        monkeypatch.setattr(read, "Client", made)
        return made

    return serve


def rows(found):
    return {row["label"]: row for row in found["choices"]}


def test_a_folder_without_a_card(document, folder):
    found = document(str(folder))
    assert [row["label"] for row in found["choices"]] == ["Q2_K", "Q4_K_M", "Q8_0", "BF16", "F16"]
    for label in FORMATS:
        row = rows(found)[label]
        assert row["bytes"] == (folder / f"Tiny-{label}.gguf").stat().st_size
        assert row["bits_per_weight"] == round(8 * row["bytes"] / row["parameters"], 4)
        assert (row["verdict"], row["max_model_len"], row["longest_context"]) == (None, None, None)
    assert not rows(found)["BF16"]["complete"]
    assert found["projectors"] == [{"file": "mmproj-F16.gguf", "bytes": 1000}]
    assert found["gpu"] is None
    assert [notice["code"] for notice in found["notices"]] == ["not-sized", "not-sized"]


def test_on_a_card_each_answer_is_that_of_budget(document, budget, folder):
    memory = ("--vram", "330MiB")
    found = document(str(folder), *memory, "--context", "2k", "-n", "2", code=0)
    for label in FORMATS:
        row = rows(found)[label]
        asked = budget("-m", f"{folder}:{label}", *memory, "--context", "2k", "-n", "2")
        assert (row["verdict"], row["weights_bytes"]) == (asked["verdict"], asked["per_gpu"]["weights_bytes"])
        assert row["max_model_len"] == 2048
        assert not row["weights_are_upper_bound"]
        for tokens, verdicts in ((row["longest_context"], {"fits"}), (row["longest_context"] + 1, {"out_of_memory"})):
            if 0 < tokens <= 4096:
                assert budget("-m", f"{folder}:{label}", *memory, "--context", str(tokens))["verdict"] in verdicts
    assert (rows(found)["BF16"]["verdict"], rows(found)["Q2_K"]["verdict"]) == (None, None)


def test_the_largest_that_fits_is_marked_and_the_exit_code_says_whether_one_does(document, here, folder):
    assert document(str(folder), "-g", "l4")["largest_that_fits"] == "F16"
    tight = memory_for(document, folder, "Q8_0")
    found = document(str(folder), "--vram", tight, "--context", "2k")
    assert found["largest_that_fits"] == "Q8_0"
    assert {label: rows(found)[label]["verdict"] for label in FORMATS} == {
        "Q4_K_M": "fits", "Q8_0": "fits", "F16": "out_of_memory",
    }  # fmt: skip
    out = here(str(folder), "--vram", tight, "--context", "2k").out
    assert next(line for line in out.splitlines() if "the largest that does" in line).startswith("Q8_0")
    found = document(str(folder), "--vram", "64MiB", code=1)
    assert found["largest_that_fits"] is None


def memory_for(document, folder, label):
    """The least memory on which a quantisation fits [MiB]."""
    low, high = 64, 4096
    while low < high:
        middle = (low + high) // 2
        words = (f"{folder}:{label}", "--vram", f"{middle}MiB", "--context", "2k")
        try:
            document(*words)
            high = middle
        except AssertionError:
            low = middle + 1
    return f"{low}MiB"


def test_the_context_is_8k_or_the_limit(document, folder, tmp_path):
    assert {row["max_model_len"] for row in document(str(folder), "-g", "l4")["choices"]} == {4096, None}
    write_gguf(tmp_path / "Long-Q4_0.gguf", {**GGUF_KEYS, "llama.context_length": 2**17}, gguf_tensors("q4_0"))
    (row,) = document(str(tmp_path / "Long-Q4_0.gguf"), "-g", "l4")["choices"]
    assert (row["max_model_len"], row["longest_context"]) == (8192, 2**17)


def test_one_file_or_one_quantisation_alone(document, folder):
    for name in (f"{folder}:q8_0", str(folder / "Tiny-Q8_0.gguf")):
        assert [row["label"] for row in document(name)["choices"]] == ["Q8_0"]


def test_lm_studio(document, folder, monkeypatch, tmp_path):
    home = tmp_path / "home"
    (home / ".lmstudio" / "models" / "acme").mkdir(parents=True)
    folder.rename(home / ".lmstudio" / "models" / "acme" / "Tiny-GGUF")
    monkeypatch.setenv("HOME", str(home))
    found = document("lmstudio:acme/tiny-gguf")
    assert (found["model"], len(found["choices"])) == ("lmstudio:acme/Tiny-GGUF", 5)
    assert [row["label"] for row in document("lmstudio:acme/tiny-gguf:F16")["choices"]] == ["F16"]


def test_a_repository_is_listed_with_one_request(document, hub):
    served = hub()
    found = document("acme/Tiny-GGUF")
    assert [row["label"] for row in found["choices"]] == list(FORMATS)
    assert [row["bits_per_weight"] for row in found["choices"]] == [None] * 3
    assert found["projectors"] == [{"file": "mmproj-F16.gguf", "bytes": 1000}]
    assert len(served.asked) == 1


def test_a_card_takes_one_header_more(document, budget, hub):
    served = hub()
    found = document("acme/Tiny-GGUF", "-g", "l4", "--context", "2k")
    assert len(served.asked) == 2
    smallest, *others = found["choices"]
    exact = budget("-m", "acme/Tiny-GGUF:Q4_K_M", "-g", "l4", "--context", "2k")
    assert (smallest["weights_are_upper_bound"], smallest["weights_bytes"]) == (
        False,
        exact["per_gpu"]["weights_bytes"],
    )
    for row in others:
        exact = budget("-m", f"acme/Tiny-GGUF:{row['label']}", "-g", "l4", "--context", "2k")
        assert row["weights_are_upper_bound"]
        assert row["weights_bytes"] == row["bytes"] > exact["per_gpu"]["weights_bytes"]
        assert row["longest_context"] <= 4096
    assert {notice["code"] for notice in found["notices"]} >= {"weights-upper-bound", "mmproj-in-repository"}


def test_a_long_header_takes_a_few_reads_and_nothing_of_the_weights(document, hub):
    keys = {**GGUF_KEYS, **vocabulary(60_000, 60_000)}
    head = gguf_header(keys, gguf_tensors("q2_k"))
    served = hub(**{"Tiny-Q2_K.gguf": (head, len(head) + 10**7)})
    found = document("acme/Tiny-GGUF:Tiny-Q2_K.gguf", "-g", "l4")
    assert [row["label"] for row in found["choices"]] == ["Q2_K"]
    assert len(served.asked) <= 4


def test_what_the_hub_says_of_the_parameters(document, hub, monkeypatch):
    served = hub()
    real = served.get

    def told(path, limit_bytes, **more):
        reply = real(path, limit_bytes, **more)
        if path.startswith("api/"):
            body = json.dumps({**json.loads(reply.body), "gguf": {"total": 3_278_080, "architecture": "llama"}})
            return reply._replace(body=body.encode())
        return reply

    monkeypatch.setattr(served, "get", told)
    row = document("acme/Tiny-GGUF")["choices"][0]
    assert row["bits_per_weight"] == round(8 * row["bytes"] / 3_278_080, 4)


def test_offline_from_the_hubs_own_cache(document, here, folder, monkeypatch, tmp_path):
    root = tmp_path / "hub" / "models--acme--Tiny-GGUF"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    (root / "snapshots").mkdir()
    folder.rename(root / "snapshots" / COMMIT)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    found = document("acme/Tiny-GGUF:Q8_0", "-g", "l4", "--offline")
    assert (len(found["choices"]), found["largest_that_fits"]) == (1, "Q8_0")
    assert here("acme/Other-GGUF", "--offline").code == 3


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ((), 2, "usage"),
        (("x", "-m", "y"), 2, "usage"),
        (("models", "--context", "2k"), 2, "usage"),
        (("models", "-n", "2"), 2, "usage"),
        (("models", "-g", "no-such-card"), 2, "unknown-gpu"),
        (("models:Q6_K",), 2, "unknown-quantization"),
        (("acme/Tiny",), 2, "no-gguf"),
        (("acme/Tiny-GGUF", "-g", "l4+l4"), 2, "usage"),
        (("qwen3-8b-odd",), 2, "invalid-model-name"),
        (("ollama:llama3",), 2, "one-quantization"),
        (("./absent.gguf",), 2, "unreadable-file"),
        (("./absent",), 2, "no-gguf"),
        (("safetensors",), 2, "no-gguf"),
        (("broken",), 2, "header-cut"),
    ],
)
def test_errors_are_one_line(here, folder, hub, tmp_path, words, code, error):
    hub()
    safetensors_folder(tmp_path / "safetensors", CONFIG)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "x.gguf").write_bytes(b"GGUF\x03\0\0\0")
    ran = here(*words, "--json")
    assert (ran.code, json.loads(ran.out)["error"]["code"]) == (code, error), ran.err
    assert ran.err.count("\n") <= 2


def test_several_cards_share_files_on_this_disk(document, folder):
    assert document(str(folder), "-g", "l4+l4")["largest_that_fits"] == "F16"


@pytest.mark.parametrize("form", ["table", "plain", "markdown", "csv", "json"])
def test_names_of_files_are_only_text(here, tmp_path, form):
    made = tmp_path / "odd"
    made.mkdir()
    for name in ("=x\x1b[31m\u202e|y.gguf", "mmproj-\x1b]0;x\x07.gguf"):
        write_gguf(made / name, GGUF_KEYS, gguf_tensors())
    ran = here("odd", "-g", "l4", "--format", form)
    assert ran.code == 0
    assert all(letter == "\n" or letter.isprintable() for letter in ran.out + ran.err)


def test_formats(here, folder):
    table = list(csv.DictReader(io.StringIO(here(str(folder), "-g", "l4", "--format", "csv").out)))
    assert [row["label"] for row in table] == ["Q2_K", "Q4_K_M", "Q8_0", "BF16", "F16"]
    assert table[1]["verdict"] == "fits" and table[1]["longest_context"] == "4096"
    for width in (80, 120):
        out = here(str(folder), "-g", "l4", env={"COLUMNS": str(width)}).out
        assert max(map(len, out.splitlines())) <= width
    lines = here(str(folder), "--format", "markdown").out.splitlines()
    assert "| Q8_0 |" in "\n".join(lines).replace("\\", "")
    assert "kvtax gguf ./models" in here("--help").out


def test_two_cards_that_do_not_work_together_are_an_error(capsys, folder):
    from kvtax.cli import main

    assert main(["gguf", str(folder), "-g", "rtx-4090", "-g", "l4"]) == 2
    assert "several cards are given" in capsys.readouterr().err
