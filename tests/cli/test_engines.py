"""`kvtax engines` from the outside."""

import json
import pathlib

import jsonschema
import pytest

import kvtax
from kvtax.engines.registry import PLANS
from runner import run_here

SCHEMA = pathlib.Path(kvtax.__file__).parent / "views" / "schemas" / "engines.schema.json"


@pytest.fixture
def here(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words, **more: run_here(capsys, monkeypatch, "engines", *words, **more)


def test_every_engine_is_listed_with_the_starts_it_was_held_against(here):
    found = json.loads(here("--json").out)
    jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))
    by_name = {engine["name"]: engine for engine in found["engines"]}
    assert set(by_name) == set(PLANS)
    assert by_name["vllm"]["starts"] > 80
    assert by_name["vllm"]["errors"][0]["pool"]["starts"] > 50
    assert all(rule["source"] for engine in found["engines"] for rule in engine["rules"])


def test_one_engine_shows_its_rules_and_margins(here):
    out = here("vllm").out
    assert "gpu_memory_utilization" in out
    assert "90 % interval" in out


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("words", [(), ("vllm",)])
def test_no_line_is_wider_than_the_terminal(here, width, words):
    out = here(*words, env={"COLUMNS": str(width)}).out
    assert max(map(len, out.splitlines())) <= width


def test_an_engine_that_is_not_known_is_an_error(here):
    ran = here("vlm")
    assert ran.code == 2
    assert "sglang" in ran.err
