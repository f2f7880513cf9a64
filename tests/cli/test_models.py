"""`kvtax models` from the outside."""

import csv
import io
import json
import pathlib
import subprocess
import sys
import time

import jsonschema
import pytest

import kvtax
from kvtax.architectures.registry import FAMILIES
from kvtax.sources.models import list_models
from runner import run_here

SCHEMA = pathlib.Path(kvtax.__file__).parent / "views" / "schemas" / "models.schema.json"


@pytest.fixture
def here(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words, **more: run_here(capsys, monkeypatch, "models", *words, **more)


@pytest.fixture
def document(here):
    def read(*words):
        ran = here(*words, "--json")
        assert ran.code == 0
        found = json.loads(ran.out)
        jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))
        return found

    return read


def test_all_words_must_be_there(document):
    found = [model["id"] for model in document("qwen3", "moe")["models"]]
    assert "Qwen/Qwen3-30B-A3B" in found
    assert "Qwen/Qwen3-8B" not in found
    assert found == [model["id"] for model in document("qwen3 moe")["models"]]


def test_the_whole_catalogue_is_listed_and_fast(document):
    assert len(document()["models"]) == len(list_models())
    started = time.process_time()
    document()
    assert time.process_time() - started < 1.5


def test_a_model_says_what_it_is(document):
    (model,) = document("gemma-3-27b")["models"]
    assert model["parameters"] == 27432406640
    assert (model["kv_bytes_per_token"], model["kv_bytes_per_token_before_windows_fill"]) == (81920, 507904)
    assert model["kind"] == "reconstructed"
    assert model["source"]
    assert model["aliases"] == ["gemma-3-27b"]


def test_few_results_show_their_source_and_reconstructed_ones_are_marked(here):
    ran = here("gemma-3-27b")
    assert "also called gemma-3-27b" in ran.out
    assert "reconstructed: " in ran.out
    assert "~ put together from published dimensions" in ran.out


@pytest.mark.parametrize("width", [80, 120, 160])
def test_lines_keep_to_the_width(here, width):
    out = here(env={"COLUMNS": str(width)}).out
    assert max(map(len, out.splitlines())) <= width
    assert out.count("\n") >= len(list_models())


def test_nothing_found_names_the_closest_three(here, document):
    ran = here("lamma-3-8b")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("no model has 'lamma-3-8b' in its name; the closest are llama-3-8b, ")
    found = document("lamma-3-8b")
    assert found["models"] == []
    assert len(found["closest"]) == 3
    assert here("lamma-3-8b", "--quiet").err == ""


def test_families(document, here):
    assert {row["family"]: tuple(row["model_types"]) for row in document("--families")["families"]} == FAMILIES
    assert "deepseek_v32" in here("--families").out
    assert here("--families", "llama").code == 2


def test_csv_has_every_field(here):
    rows = list(csv.DictReader(io.StringIO(here("--format", "csv").out)))
    assert len(rows) == len(list_models())
    assert all(row["source"] and row["kind"] for row in rows)
    assert {row["kv_bytes_per_token"].isdecimal() for row in rows} == {True}


def test_plain_and_markdown(here):
    assert here("llama-3-70b", "--format", "plain").out.startswith("models meta-llama/Meta-Llama-3-70B")
    lines = here("llama-3.1-70b", "--format", "markdown").out.splitlines()
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1


def test_models_of_ones_own_come_first(here, tmp_path):
    (tmp_path / "own.toml").write_text(
        '[[model]]\nname = "acme/private"\nconfig = "config.json"\n[[model]]\nname = "acme/odd"\nconfig = {model_type = "odd"}\n'
    )
    (tmp_path / "config.json").write_text(
        json.dumps(json.loads(pathlib.Path(_config("Meta-Llama-3-8B")).read_text(encoding="utf-8")))
    )
    found = json.loads(here("--catalogue", "own.toml", "--json").out)["models"]
    assert [(model["id"], model["kind"]) for model in found[:2]] == [("acme/private", "user"), ("acme/odd", "user")]
    assert found[0]["parameters"] == 8030261248
    assert "odd" in found[1]["problem"]
    assert "acme/private" in here("--catalogue", "own.toml", "private").out


def _config(name):
    from kvtax.sources.data_files import configs_dir

    return f"{configs_dir()}/models/meta-llama--{name}.json"


@pytest.mark.parametrize("form", ["table", "plain", "markdown", "csv"])
def test_names_of_a_catalogue_are_only_text(here, tmp_path, form):
    (tmp_path / "own.toml").write_text(
        '[[model]]\nname = "=x\\u001b[31m\\u202e|y"\nconfig = {model_type = "a\\u001b"}\n'
    )
    ran = here("x", "--catalogue", "own.toml", "--format", form)
    assert ran.code == 0
    assert all(letter == "\n" or letter.isprintable() for letter in ran.out)
    assert form != "csv" or "\n'=x" in ran.out


def test_what_it_imports():
    script = "import sys; from kvtax.cli import main; main(['models', 'llama', '--json']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"typer", "rich", "pydantic", "huggingface_hub", "numpy"} & set(done.stderr.split())
