"""--plot and --chart from the outside."""

import json
import os

import pytest

from kvtax.views.plot_files import plot_bytes
from runner import run_here

ONE = ("budget", "-m", "llama-3-8b", "-g", "a100-80")
SEVERAL = (*ONE, "-g", "l4", "-g", "no-such-card")


@pytest.fixture
def here(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words, **more: run_here(capsys, monkeypatch, *words, **more)


@pytest.mark.parametrize("words", [ONE, SEVERAL, ("inspect", "gemma-3-27b")])
@pytest.mark.parametrize("name", ["a.svg", "a.png", "a.html"])
def test_a_plot_stands_beside_the_usual_answer(here, words, name):
    usual, ran = here(*words), here(*words, "--plot", name)
    assert (ran.code, ran.out, ran.err) == (usual.code, usual.out, usual.err)
    assert os.path.getsize(name) > 4000
    assert os.listdir() == [name]


def test_a_plot_goes_with_any_format(here):
    ran = here(*ONE, "--plot", "a.svg", "--json")
    assert json.loads(ran.out)["verdict"] == "fits"
    assert os.path.exists("a.svg")


def test_the_plot_of_the_command_is_the_chart_of_the_budgets(here):
    import kvtax
    from kvtax.views.budget_charts import budget_charts

    here(*ONE, "--plot", "a.svg")
    named = [("a100-80gb-sxm", kvtax.budget(model="llama-3-8b", gpu="a100-80"))]
    with open("a.svg", "rb") as file:
        assert file.read() == plot_bytes(budget_charts(named), "svg")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((*ONE, "--plot", "a.pdf"), "plot-format"),
        ((*ONE, "--plot", "a"), "plot-format"),
        ((*ONE, "--plot", "none/a.svg"), "cannot-write"),
        ((*ONE, "--plot", "a.svg", "-o", "a.svg"), "usage"),
        ((*ONE, "--chart", "--format", "csv"), "usage"),
        (("inspect", "falcon-mamba-7b", "--plot", "a.svg"), "nothing-to-plot"),
        (("budget", "-m", "llama-3-8b", "-g", "none-1", "-g", "none-2", "--plot", "a.svg"), "nothing-to-plot"),
    ],
)
def test_what_cannot_be_plotted_is_one_error_and_no_file(here, words, code):
    ran = here(*words, "-o", "out.txt") if "-o" not in words else here(*words)
    assert ran.code == 2 and ran.out == ""
    assert ran.err.startswith("error: ") and "Traceback" not in ran.err
    assert os.listdir() == []
    as_json = here(*words, "--json")
    if "--format" not in words and "-o" not in words:
        assert json.loads(as_json.out or as_json.err)["error"]["code"] == code


def test_without_the_extra_the_work_is_not_begun(here, monkeypatch):
    monkeypatch.setattr("kvtax.views.plot_files.find_extra", lambda: False)
    ran = here(*ONE, "--plot", "a.svg")
    assert ran.code == 2 and ran.out == ""
    assert "pip install 'kvtax[plot]'" in ran.err
    assert os.listdir() == []


@pytest.mark.parametrize("words", [ONE, SEVERAL])
def test_charts_stand_below_the_table(here, words):
    usual, ran = here(*words), here(*words, "--chart")
    assert ran.out.startswith(usual.out + "\n") and ran.code == usual.code
    below = ran.out[len(usual.out) :]
    assert "memory of one GPU" in below and "maximum concurrency against context" in below
    page = here(*words, "--chart", "--format", "html").out
    assert page.count("<svg") == 4 and "<script" not in page


@pytest.mark.parametrize(
    "words", [("inspect", "gpt-oss-20b"), ("gpus", "h100"), ("models", "moe"), ("engines",), ("engines", "vllm")]
)
def test_every_page_is_a_document_that_loads_nothing(here, words):
    ran = here(*words, "--format", "html")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("<!doctype html>") and ran.out.count("<html") == 1 and "default-src 'none'" in ran.out
    for loads in ("<script", "<link", "<img", "<iframe", "src=", "href=", "url(", "@import"):
        assert loads not in ran.out
