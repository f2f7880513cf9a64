"""`kvtax whatif`, `concurrency`, `fit` and `diff` from the outside: exit codes, JSON, CSV, files, words that make no sense."""

import csv
import io
import json

import pytest

from runner import run_here
from schemas import validate

LLAMA = ("llama-3-8b", "--context", "8192")


@pytest.fixture
def here(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words, **more: run_here(capsys, monkeypatch, *words, **more)


@pytest.fixture
def document(here):
    def answered(*words, code=0):
        ran = here(*words, "--json")
        assert ran.code == code, ran.err
        found = json.loads(ran.out)
        validate(found, words[0])
        return found

    return answered


@pytest.fixture
def budget(here):
    return lambda *words: json.loads(here("budget", *words, "--json").out)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("whatif", *LLAMA, "-g", "l4", "-s", "kv_cache_dtype=fp8"), 0),
        (("whatif", *LLAMA, "-g", "l4", "-n", "999", "-s", "kv_cache_dtype=fp8"), 1),
        (("whatif", *LLAMA, "-g", "l4"), 0),
        (("whatif", *LLAMA, "-g", "l4", "-n", "999"), 1),
        (("whatif", *LLAMA, "-g", "l4", "-s", "gpu=no-such-card"), 2),
        (("whatif", *LLAMA, "-g", "l4", "-s", "tp"), 2),
        (("whatif", *LLAMA, "-g", "l4", "-s", "colour=red"), 2),
        (("whatif", *LLAMA, "-g", "l4", "-g", "h100-sxm"), 2),
        (("whatif", *LLAMA), 2),
        (("whatif", *LLAMA, "-g", "l4", "--vary", "n=1,2,2"), 2),
        (("whatif", *LLAMA, "-g", "l4", "--vary", "n=" + ",".join(map(str, range(1, 102))), "--vary", "max_num_seqs=" + ",".join(map(str, range(1, 102)))), 2),
        (("concurrency", *LLAMA, "-g", "l4,h100-sxm"), 0),
        (("concurrency", *LLAMA, "-g", "l4,no-such-card"), 2),
        (("concurrency", *LLAMA, "-g", "l4", "-n", "999", "--strict"), 1),
        (("concurrency", *LLAMA, "--show", "colour"), 2),
        (("concurrency", "llama-3-8b", "qwen3-32b", "-g", "l4,t4", "--context", "1k,2k"), 2),
        (("concurrency",), 2),
        (("fit", *LLAMA, "-n", "40"), 0),
        (("fit", *LLAMA, "-n", "40000000"), 1),
        (("fit", "deepseek-v3", "-g", "l4"), 1),
        (("fit", *LLAMA, "--by", "price"), 2),
        (("fit", *LLAMA, "--by", "colour"), 2),
        (("fit", *LLAMA, "--prices", "no-such.toml"), 2),
        (("fit", "llama-3-8b", "--traffic", "4x"), 2),
        (("fit", *LLAMA, "--most", "none"), 2),
        (("fit", *LLAMA, "--search", "qwen"), 2),
        (("fit",), 2),
        (("fit", "-g", "l4", "--search", "mistral-7b", "--context", "4k"), 0),
        (("fit", "-g", "l4", "--vary", "tp=2"), 2),
        (("diff", *("-m", "llama-3-8b", "-g", "l4"), "-", "kv_cache_dtype=fp8"), 0),
        (("diff", *("-m", "llama-3-8b", "-n", "8", "--context", "8k"), "gpu=h100-sxm", "gpu=l4"), 1),
        (("diff", *("-m", "llama-3-8b", "-g", "l4"), "-"), 2),
        (("diff", "no-such.json", "other.json"), 2),
        (("diff", "-", "kv_cache_dtype=fp8"), 2),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else str(value),
)  # fmt: skip
def test_exit_codes(here, words, code):
    ran = here(*words)
    assert ran.code == code, ran.err
    assert "Traceback" not in ran.err
    if code == 2 and not ran.out:
        assert ran.err.startswith("error: ")


def test_whatif_holds_budgets(document, budget):
    found = document("whatif", *LLAMA, "-g", "l4", "-s", "kv_cache_dtype=fp8", "-s", "tp=2", "--explain")
    assert found["base"] == budget(*LLAMA, "-g", "l4")
    assert [change["set"] for change in found["changes"]] == [
        {"kv_cache_dtype": "fp8"},
        {"tensor_parallel_size": 2},
        {"kv_cache_dtype": "fp8", "tensor_parallel_size": 2},
    ]
    assert found["changes"][2]["budget"] == budget(*LLAMA, "-g", "l4", "--kv-cache-dtype", "fp8", "--tp", "2")
    fields = found["changes"][2]["causes"]["fields"]
    assert sum(share["kv_pool_bytes"] for share in fields) == sum(
        found["changes"][2]["causes"]["kv_pool_bytes"].values()
    )


def test_levers_say_what_they_cost(document):
    found = document("whatif", *LLAMA, "-g", "l4", "-n", "8", code=1)
    assert {change["cost"]["paid_with"] for change in found["changes"]} >= {"hardware", "quality", "speed"}


def test_whatif_shows_why(here):
    ran = here("whatif", *LLAMA, "-g", "l4", "-s", "kv_cache_dtype=fp8", "-s", "tp=2", "--explain")
    assert "KV pool +" in ran.out
    assert "of these: " in ran.out


def test_concurrency_holds_budgets(document, budget):
    found = document("concurrency", *LLAMA, "-g", "l4,h100-sxm")
    for cell in found["cells"]:
        one = budget(*LLAMA, "-g", cell["gpu"])
        assert (cell["max"], cell["interval"]) == (one["concurrency"]["max"], one["interval"])
        assert cell["max_model_len"] == 8192


def test_a_matrix_without_room_is_cut_or_turned(here):
    models = ("llama-3-8b", "qwen3-32b", "gpt-oss-20b", "gemma-3-27b", "deepseek-v3")
    ran = here("concurrency", *models, "--context", "8k", env={"COLUMNS": "60"})
    assert max(map(len, ran.out.splitlines())) <= 60
    for model in models:
        assert model in ran.out


def test_a_matrix_as_csv(here):
    ran = here("concurrency", *LLAMA, "-g", "l4,h100-sxm", "--interval", "--format", "csv")
    rows = list(csv.reader(io.StringIO(ran.out)))
    assert rows[0] == ["gpu", "llama-3-8b", "llama-3-8b low", "llama-3-8b high"] or rows[0][0] == "model"


def test_fit_holds_budgets(document, budget):
    found = document("fit", *LLAMA, "-n", "40", "--prices", "examples")
    for choice in found["choices"][:4]:
        words = [*LLAMA, "-n", "40", "-g", choice["set"]["gpu"], "--tp", str(choice["set"]["tensor_parallel_size"])]
        assert choice["budget"] == budget(*words)
        assert choice["deployment"] == choice["budget"]["deployment"]
    assert any(choice["price_per_hour"] for choice in found["choices"])


def test_fit_says_what_binds(document, here):
    found = document("fit", *LLAMA, "-n", "40000000", code=1)
    assert found["limit"]["what"] == "kv_pool"
    assert len(found["limit"]["nearest"]) >= 1
    ran = here("fit", *LLAMA, "-n", "40000000")
    assert "the KV pool binds" in ran.out
    assert "nearest" in ran.out


def test_fit_lists_models(document):
    found = document(
        "fit", "-g", "rtx-4090", "--engine", "llama.cpp", "--context", "64k", "--search", "qwen3", "--every"
    )
    assert found["choices"]
    for choice in found["choices"]:
        assert choice["budget"]["verdict"] == "fits"
        assert choice["longest_context"] >= 65536


def test_diff_of_files(here, document, tmp_path):
    for name, more in (("a.json", ()), ("b.json", ("--tp", "2"))):
        here("budget", *LLAMA, "-g", "l4", *more, "--json", "-o", name)
    found = document("diff", "a.json", "b.json")
    assert found["changes"] == {"tensor_parallel_size": 2}
    assert sum(found["causes"]["kv_pool_bytes"].values()) == found["difference"]["kv_pool_bytes"]
    (tmp_path / "c.json").write_text("{" * 100_000, encoding="utf-8")
    assert here("diff", "a.json", "c.json").code == 2


def test_diff_names_the_release(document):
    found = document("diff", "-m", "llama-3-8b", "-g", "a100-80", "engine_version=0.19", "engine_version=0.33")
    assert found["releases"]
    assert all(step["rules"] for step in found["releases"])
    assert sum(step["kv_pool_bytes"] for step in found["releases"]) == found["difference"]["kv_pool_bytes"]


@pytest.mark.parametrize("form", ["plain", "markdown", "csv", "html"])
@pytest.mark.parametrize(
    "words",
    [
        ("whatif", *LLAMA, "-g", "l4", "-s", "kv_cache_dtype=fp8"),
        ("concurrency", *LLAMA, "-g", "l4,h100-sxm"),
        ("fit", *LLAMA, "-n", "4"),
        ("fit", "-g", "l4", "--search", "mistral-7b", "--context", "4k"),
        ("diff", "-m", "llama-3-8b", "-g", "l4", "-", "kv_cache_dtype=fp8"),
    ],
    ids=lambda words: words[0],
)
def test_every_format_and_colour(here, words, form):
    ran = here(*words, "--format", form)
    assert ran.code == 0, ran.err
    assert ran.out.strip()
    assert "\x1b" not in ran.out
    assert "\x1b[" in here(*words, "--color", "always").out


@pytest.mark.parametrize("words", [("whatif", "-s", "tp=2"), ("fit",), ("concurrency",)], ids=lambda words: words[0])
def test_plots(here, words, tmp_path):
    command, *more = words
    ran = here(command, *LLAMA, "-g", "l4", *more, "--plot", "x.svg")
    assert ran.code == 0, ran.err
    assert (tmp_path / "x.svg").read_text(encoding="utf-8").count("</svg>") == 1
