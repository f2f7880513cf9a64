"""`kvtax gpus` from the outside."""

import csv
import io
import json
import pathlib

import jsonschema
import pytest

import kvtax
from kvtax.sources.gpus import list_gpus
from runner import run_here

SCHEMA = pathlib.Path(kvtax.__file__).parent / "views" / "schemas" / "gpus.schema.json"


@pytest.fixture
def here(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words, **more: run_here(capsys, monkeypatch, "gpus", *words, **more)


@pytest.fixture
def document(here):
    def read(*words):
        ran = here(*words, "--json")
        assert ran.code == 0
        found = json.loads(ran.out)
        jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))
        return found

    return read


def test_all_variants_of_a_card_with_usable_memory_and_source(document, here):
    found = {gpu["id"]: gpu for gpu in document("h100")["gpus"]}
    assert set(found) == {"h100-sxm", "h100-pcie", "h100-nvl", "h100-96gb"}
    assert found["h100-sxm"]["total_bytes"] == 85018877624
    assert all(gpu["total_source"] and gpu["date"] for gpu in found.values())
    out = here("h100").out
    assert "79.18" in out
    assert "85,018,877,624 bytes usable" in out
    assert "looked up 2026-11-30" in out


def test_estimates_are_marked_and_the_mark_is_explained(here):
    lines = here("h100").out.splitlines()
    assert any(line.startswith("h100-pcie") and "~79.18" in line for line in lines)
    assert any(line.startswith("h100-sxm") and "~" not in line for line in lines)
    assert "~ estimated, or from one weak source" in lines


def test_slices_only_where_they_are_asked_for(document):
    assert not [gpu for gpu in document()["gpus"] if gpu["parent"]]
    assert [gpu for gpu in document("--mig")["gpus"] if gpu["parent"]]
    named = [gpu["id"] for gpu in document("h100", "1g.10gb")["gpus"]]
    assert "h100-sxm-1g.10gb" in named
    assert len(document("--mig")["gpus"]) == len(list_gpus())


def test_prices(document, here):
    assert document("h100-sxm")["gpus"][0]["prices"]
    assert "USD an hour" not in here("h100-sxm").out
    out = here("h100-sxm", "--prices").out
    assert "USD an hour once at " in out
    assert "never a quote" in out


def test_the_whole_list_is_grouped_by_maker(here):
    out = here().out
    order = [out.index(f"\n{vendor} ") for vendor in ("AMD", "Intel", "Apple", "Google", "AWS")]
    assert out.startswith("NVIDIA ")
    assert order == sorted(order)


@pytest.mark.parametrize("words", [(), ("h100",), ("--mig", "--prices")])
@pytest.mark.parametrize("width", [80, 120])
def test_lines_keep_to_the_width(here, words, width):
    out = here(*words, env={"COLUMNS": str(width)}).out
    assert max(map(len, out.splitlines())) <= width


def test_other_spellings_are_found(document):
    assert [gpu["id"] for gpu in document("NVIDIA A100-SXM4-80GB")["gpus"]] == ["a100-80gb-sxm"]


def test_nothing_found_names_the_closest_three(here, document):
    ran = here("h1000")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("no GPU has 'h1000' in its name; the closest are ")
    assert len(document("h1000")["closest"]) == 3


def test_csv_plain_and_markdown(here):
    rows = list(csv.DictReader(io.StringIO(here("--format", "csv").out)))
    assert {row["id"]: int(row["total_bytes"]) for row in rows}["a100-80gb-sxm"] == 85094039552
    assert "gpus t4: total_bytes 15633680957, " in here("t4", "--format", "plain").out
    table = [line for line in here("h100", "--format", "markdown").out.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 4
    assert len({line.count("|") for line in table}) == 1


@pytest.mark.parametrize("form", ["table", "plain", "markdown", "csv"])
def test_cards_of_ones_own_come_first_and_their_text_is_only_text(here, tmp_path, form):
    (tmp_path / "own.toml").write_text(
        '[[gpu]]\nid = "lab-card"\nname = "=x\\u001b[31m\\u202e|y"\nmemory = "46.5GiB"\nvendor = "a\\u009b"\nsource = "@b"\n'
    )
    ran = here("lab", "--catalogue", "own.toml", "--format", form)
    assert ran.code == 0
    assert "lab-card" in ran.out
    assert all(letter == "\n" or letter.isprintable() or letter == "\u2060" for letter in ran.out)
