"""The formats say what the budget says."""

import csv
import io
import re

import pytest

import kvtax
from kvtax.planning.levers import levers
from kvtax.views import csv_form
from kvtax.views.explain import explain
from kvtax.views.notices import INFORMATIVE
from kvtax.views.sheet import make_sheet
from kvtax.views.table import bar, table_text

CASES = {
    "fits": {"model": "llama-3-8b", "gpu": "a100-80", "max_model_len": 8192},
    "over_budget": {"model": "llama-3-8b", "gpu": "a100-80", "max_model_len": 8192, "concurrency": 500},
    "kv_too_small": {"model": "llama-3-8b", "gpu": "l4", "max_model_len": 8192, "kv_cache_memory_bytes": "512MiB"},
    "out_of_memory": {"model": "llama-3-70b", "gpu": "l4"},
    "refused": {"model": "llama-3-8b", "gpu": "t4", "dtype": "bfloat16"},
}


@pytest.mark.parametrize("verdict", CASES)
def test_the_parts_add_up_to_the_card(verdict):
    budget = kvtax.budget(**CASES[verdict])
    assert budget.verdict == verdict
    sheet = make_sheet(budget)
    assert sum(part.bytes for part in sheet.parts if not part.level) == sheet.total_bytes
    small = sum(part.bytes for part in sheet.parts if part.level)
    assert 0 <= budget.weights_bytes - small <= 5 * 2**20
    assert sheet.sentence.endswith(".")


def test_parts_without_an_engine_add_up_too():
    sheet = make_sheet(kvtax.budget(model="llama-3-8b", gpu="m3-max", max_model_len=8192))
    assert sum(part.bytes for part in sheet.parts if not part.level) == sheet.total_bytes
    assert "without an engine" in sheet.concurrency.label.lower()
    assert "no engine rule" in sheet.about_engine


def test_every_word_of_a_verdict_shows_without_colour():
    for verdict, fields in CASES.items():
        text = table_text(make_sheet(kvtax.budget(**fields)), width=100, colour=False)
        assert verdict.replace("_", " ").upper() in text
        assert "\x1b" not in text


def test_a_bar_is_as_long_as_its_share():
    assert bar(0.5, 10, unicode=True) == "\u2588" * 5
    assert bar(0.5, 10, unicode=False) == "#" * 5
    assert bar(-1, 10, unicode=True) == ""
    assert bar(9, 10, unicode=True) == "\u2588" * 10
    assert bar(0.003, 10, unicode=True) == "\u258f"


def test_a_table_in_ascii_is_ascii():
    assert table_text(make_sheet(kvtax.budget(**CASES["fits"])), width=80, colour=False, unicode=False).isascii()


@pytest.mark.parametrize("verdict", CASES)
def test_the_numbers_that_explain_prints_give_the_result(verdict):
    for block in explain(kvtax.budget(**CASES[verdict])).strip().split("\n\n"):
        lines = block.splitlines()
        symbols, numbers, result = (line.strip() for line in lines[1:4])
        assert all(line.startswith("= ") for line in (symbols, numbers, result))
        value = float(result[2:].split(" ")[0])
        assert eval(numbers[2:], {"__builtins__": {}}) == value  # noqa: S307
        assert lines[-1].strip().startswith("source: ")
        assert all(" from " in line for line in lines[4:-1])


def test_csv_has_a_stable_header_and_whole_bytes():
    budget = kvtax.budget(**CASES["fits"])
    row = next(csv.DictReader(io.StringIO(csv_form.csv_rows([("a100-80", budget)]))))
    assert tuple(row) == csv_form.COLUMNS
    assert int(row["weights_bytes"]) == budget.weights_bytes
    assert int(row["kv_pool_bytes"]) == budget.kv_pool_bytes
    assert row["verdict"] == "fits"
    assert row["requested"] == ""


def test_a_notebook_gets_html():
    fragment = kvtax.budget(**CASES["fits"])._repr_html_()
    assert fragment.startswith("<div")
    assert "FITS" in fragment


def test_remedies_are_shown_with_what_they_give():
    budget = kvtax.budget(**CASES["over_budget"])
    sheet = make_sheet(budget, levers(budget))
    assert 1 <= len(sheet.remedies) <= 3
    text = table_text(sheet, width=100, colour=False)
    for remedy in sheet.remedies:
        assert re.search(rf"{re.escape(remedy.flags)} +{re.escape(remedy.gives)}", text)


def test_the_notices_that_strict_lets_pass_are_few():
    assert sorted(INFORMATIVE) == [
        "cards-idle", "class-defaults", "dtype-falls-back", "mmproj-beside", "num-ctx", "own-gpu", "own-model", "remote-code", "size-taken",
        "slots-limit", "token-sent", "weights-by-size",
    ]  # fmt: skip
