"""`kvtax inspect` from the outside: every format says the same, and all of it adds up."""

import csv
import io
import json
import pathlib

import jsonschema
import pytest

import kvtax
from kvtax.sources.models import list_models
from runner import run, run_here

SCHEMA = pathlib.Path(kvtax.__file__).parent / "views" / "schemas" / "inspect.schema.json"
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
SHOWN = [
    "llama-3-8b",
    "gemma-3-27b",
    "deepseek-v3.2",
    "qwen3-next-80b",
    "gpt-oss-20b",
    "llama-3.2-11b-vision",
    "deepseek-v4-flash",
    "falcon-mamba-7b",
]


@pytest.fixture
def here(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words, **more: run_here(capsys, monkeypatch, "inspect", *words, **more)


@pytest.fixture
def document(here):
    def read(*words):
        ran = here(*words, "--json")
        assert (ran.code, ran.err) == (0, "")
        return json.loads(ran.out)

    return read


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("llama-3-8b",), 0),
        (("-m", "meta-llama/Meta-Llama-3-8B"), 0),
        ((), 2),
        (("llama-3-8b", "-m", "llama-3-8b"), 2),
        (("no-such-model",), 2),
        (("llama-3-8b", "--format", "xml"), 2),
        (("llama-3-8b", "--kv-cache-dtype", "fp7"), 2),
        (("llama-3-8b", "--context", "0"), 2),
        (("no/such/config.json",), 2),
        (("some-org/some-model",), 3),
        (("--help",), 0),
    ],
)
def test_exit_codes(here, words, code):
    ran = here(*words)
    assert ran.code == code
    assert bool(ran.out) == (code == 0)
    assert code == 0 or ran.err.startswith("error: ")


@pytest.mark.parametrize("name", SHOWN)
def test_the_document_follows_its_schema_and_adds_up(document, name):
    found = document(name)
    jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))
    architecture = kvtax.architecture(name)
    model, kv = found["model"], found["kv"]
    loaded = [part for part in found["weights"] if part["loaded"] and part["component"] != "buffers"]
    assert sum(part["parameters"] for part in loaded) == model["parameters"] == architecture.parameters
    assert sum(part["bytes"] for part in loaded) == model["weight_bytes"] == architecture.weight_bytes()
    assert sum(t["bytes"] for t in found["tensors"] if t["in_checkpoint"]) == model["checkpoint_bytes"]
    assert sum(group["bytes_per_request"] for group in found["layers"]) == kv["bytes_per_request"]
    assert sum(group["bytes_per_token"] for group in found["layers"]) == kv["bytes_per_token"]
    assert sum(group["source_bytes"] for group in found["layers"]) == kv["cross_attention_bytes_per_request"]
    assert found["growth"][-1] == {
        **found["growth"][-1],
        "tokens": kv["at_context"],
        "bytes": architecture.kv_bytes(kv["at_context"], kv["dtype"]),
    }
    assert all(sum(length["by_kind"].values()) == length["bytes"] for length in found["growth"])


def test_every_model_of_the_catalogue_fits_the_width():
    from kvtax.planning.anatomy import dissect
    from kvtax.sources.resolve import find
    from kvtax.views.inspect_page import inspect_page
    from kvtax.views.page_text import Style, page_text

    for entry in list_models():
        model = find(entry.id)
        page = inspect_page(model, dissect(model.architecture), model.notices, tensors=True)
        for style in (Style(80), Style(80, unicode=False), Style(120)):
            text = page_text(page, style)
            assert max(map(len, text.splitlines())) <= style.width, entry.id
            assert style.unicode or text.isascii()


def test_windows_stop_growing(document):
    found = document("gemma-3-27b")
    kinds = {group["kind"]: group for group in found["layers"]}
    assert {kind: group["count"] for kind, group in kinds.items()} == {"sliding_window": 52, "full_attention": 10}
    assert kinds["sliding_window"]["bytes_per_token"] == 0
    assert kinds["sliding_window"]["bytes_per_request"] == 52 * 1024 * 2 * 16 * 128 * 2
    assert found["growth"][-1]["without_windows"] == 62 * 131072 * 2 * 16 * 128 * 2


def test_ranks_replicate_heads_and_latents(document):
    ranks = {rank["tensor_parallel_size"]: rank for rank in document("qwen3-next-80b")["tensor_parallel"]}
    assert ranks[4]["bytes_per_token"] == ranks[8]["bytes_per_token"] == 12288
    assert ranks[8]["remarks"] == ["KV heads on 4 ranks each"]
    ranks = {rank["tensor_parallel_size"]: rank for rank in document("deepseek-v3.2")["tensor_parallel"]}
    assert [ranks[tp]["kv_copies"] for tp in (1, 2, 4, 8)] == [1, 2, 4, 8]
    assert all(rank["weights_bytes"] * tp >= ranks[1]["weights_bytes"] for tp, rank in ranks.items())


def test_heads_that_do_not_divide_are_said(document):
    ranks = document("whisper-large-v3")["tensor_parallel"]
    assert [rank["refused"] for rank in ranks] == [False, False, False, True]
    assert ranks[3]["remarks"] == ["refused: 20 query heads do not divide"]


def test_cross_attention_stands_apart(document):
    kv = document("whisper-large-v3")["kv"]
    assert kv["cross_attention_bytes_per_request"] == 32 * 1500 * 2 * 20 * 64 * 2
    assert kv["bytes_per_request"] == 32 * 448 * 2 * 20 * 64 * 2


def test_context_and_kv_dtype(document):
    found = document("llama-3-8b", "--context", "4k", "--kv-cache-dtype", "fp8")
    assert found["kv"]["at_context"] == 4096
    assert found["kv"]["bytes_per_request"] == 4096 * 65536
    assert found["kv_dtypes"][0]["dtype"] == "fp8_e4m3"
    assert [notice["code"] for notice in found["notices"] if notice["code"] == "size-taken"] == ["size-taken"]
    found = document("llama-3-8b", "--context", "16384")
    assert "context-above-limit" in [notice["code"] for notice in found["notices"]]


def test_class_defaults_are_listed(document, here):
    assert document("gemma-3-27b")["class_defaults"]["tie_word_embeddings"] is True
    assert "tie_word_embeddings=true" in here("gemma-3-27b").out


def test_a_config_from_a_path_a_directory_and_stdin(here, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    wanted = json.loads(here("llama-3-8b", "--json").out)["weights"]
    for words in ((str(tmp_path / "config.json"),), (str(tmp_path),)):
        assert json.loads(here(*words, "--json").out)["weights"] == wanted
    ran = run("inspect", "-", "--json", stdin=json.dumps(LLAMA).encode())
    assert json.loads(ran.out)["weights"] == wanted
    assert json.loads(ran.out)["model"]["id"] == "(stdin)"


def test_an_unknown_architecture_says_what_is_missing(here, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-type"}), encoding="utf-8")
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 3 * 2**30}}), encoding="utf-8"
    )
    ran = here(str(tmp_path), "--json")
    assert ran.code == 3
    error = json.loads(ran.out)["error"]
    assert error["code"] == "unsupported-architecture"
    assert "no-such-type" in error["message"]
    assert "3 GiB" in error["hint"]


def test_tensors_are_those_of_the_checkpoint(document, here):
    names = {tensor["name"]: tensor for tensor in document("llama-3-8b")["tensors"]}
    assert names["model.layers.*.self_attn.k_proj.weight"] == {
        "name": "model.layers.*.self_attn.k_proj.weight", "shape": [1024, 4096], "dtype": "bfloat16", "count": 32, "elements": 2**27,
        "bytes": 2**28, "component": "attention", "loaded": True, "in_checkpoint": True, "parameter": True, "scale": False,
    }  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(here("llama-3-8b", "--tensors", "--format", "csv").out)))
    assert {row["name"]: int(row["bytes"]) for row in rows} == {name: tensor["bytes"] for name, tensor in names.items()}
    assert "model.layers.*.self_attn.k_proj.weight" in here("llama-3-8b", "--tensors").out
    assert "k_proj" not in here("llama-3-8b").out


def test_csv_and_plain_hold_exact_bytes(here):
    rows = list(csv.reader(io.StringIO(here("gpt-oss-20b", "--format", "csv").out)))
    assert rows[0] == ["section", "name", "field", "value"]
    assert ["model", "parameters", "", "20914757184"] in rows
    assert "parameters: 20914757184\n" in here("gpt-oss-20b", "--format", "plain").out


def test_colour_only_where_it_is_asked_for(here):
    assert "\x1b[" not in here("gemma-3-27b").out
    coloured = here("gemma-3-27b", "--color", "always").out
    assert "\x1b[1m" in coloured
    import re

    assert re.sub(r"\x1b\[\d+m", "", coloured) == here("gemma-3-27b").out


def test_stdout_without_unicode(here):
    ran = run("inspect", "gemma-3-27b", env={"PYTHONIOENCODING": "ascii"})
    assert ran.out.isascii()
    assert "\\u" not in ran.out
    assert "*****" in ran.out


HOSTILE = "\x1b]8;;http://evil\x07x\u202e|<b>`\n=1"


@pytest.mark.parametrize("form", ["table", "plain", "markdown", "csv", "json"])
def test_names_of_a_config_are_only_text(here, tmp_path, form):
    config = {**LLAMA, "architectures": [HOSTILE], "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    ran = here(str(tmp_path), "--format", form)
    assert ran.code == 0
    assert all(letter == "\n" or letter.isprintable() for letter in ran.out)
    if form == "csv":
        assert all(len(row) == 4 for row in csv.reader(io.StringIO(ran.out)))
    if form == "json":
        assert json.loads(ran.out)["model"]["architecture"] == HOSTILE


def test_output_goes_to_a_file(here, tmp_path):
    ran = here("llama-3-8b", "--output", "anatomy.md", "--format", "markdown")
    assert (ran.code, ran.out) == (0, "")
    assert (tmp_path / "anatomy.md").read_text(encoding="utf-8").startswith("### meta-llama/")
