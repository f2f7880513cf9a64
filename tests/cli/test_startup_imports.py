"""Which modules the common path does not import: exact, where a timer would be a guess."""

import subprocess
import sys

import pytest

QUESTION = ["budget", "--model", "llama-3-8b", "--gpu", "a100-80"]
NEVER = {
    "pydantic", "huggingface_hub", "yaml", "numpy", "asyncio", "importlib.metadata", "importlib.resources", "typer", "click", "inspect", "ast",
    "dataclasses", "tomllib", "urllib.request", "http.client", "ssl", "socket", "subprocess", "tempfile", "shutil", "sqlite3", "csv", "html",
    "argparse", "logging", "pathlib", "fractions", "decimal", "random", "statistics",
}  # fmt: skip
BROUGHT_BY_RICH = {
    "inspect",
    "ast",
    "dataclasses",
    "pathlib",
    "shutil",
    "logging",
    "fractions",
    "decimal",
    "random",
    "html",
    "importlib.metadata",
}
SCRIPT = """
import sys
from kvtax.cli import main
code = main(sys.argv[1:])
print(code, *sorted(sys.modules), file=sys.stderr)
"""


def imported(*words: str) -> tuple[int, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, encoding="utf-8", check=True
    )
    code, *modules = done.stderr.split()
    return int(code), set(modules)


@pytest.mark.parametrize("form", [["--json"], ["--format", "plain"]])
def test_neither_typer_nor_rich_nor_anything_heavy_for_json_and_plain(form):
    code, modules = imported(*QUESTION, *form)
    assert code == 0
    assert not modules & (NEVER | {"rich"})


def test_rich_and_nothing_else_heavy_for_the_table():
    code, modules = imported(*QUESTION)
    assert code == 0
    assert "rich.table" in modules
    assert not modules & (NEVER - BROUGHT_BY_RICH)
    assert not {
        module
        for module in modules
        if module.startswith(("rich.markdown", "rich.progress", "rich.traceback", "pygments"))
    }


@pytest.mark.parametrize("words", [QUESTION, [*QUESTION, "--chart"], ["inspect", "llama-3-8b", "--format", "html"]])
def test_no_plotting_library_without_a_plot(words):
    code, modules = imported(*words)
    assert code == 0
    assert not modules & {"matplotlib", "numpy", "PIL"}


def test_only_the_command_that_runs_is_imported():
    _, modules = imported(*QUESTION, "--json")
    assert {module for module in modules if module.startswith("kvtax.cli.")} == {
        "kvtax.cli.budget",
        "kvtax.cli.exits",
        "kvtax.cli.network",
        "kvtax.cli.engine_options",
        "kvtax.cli.options",
        "kvtax.cli.outlet",
        "kvtax.cli.plain_words",
        "kvtax.cli.plots",
        "kvtax.cli.words",
    }


def test_the_version_needs_next_to_nothing():
    _, modules = imported("--version")
    assert not modules & (NEVER | {"rich", "json", "kvtax.budgets"})
