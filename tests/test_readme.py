"""README shows what kvtax prints, and names every command and exit code."""

from __future__ import annotations

import pytest

import readme
from kvtax.cli import COMMANDS
from kvtax.cli.exits import Exit

TEXT = readme.README.read_text(encoding="utf-8")
BLOCKS = list(readme.blocks(TEXT))


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_outputs_are_real(command: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert readme.run(command) == shown


def test_the_main_job_is_shown() -> None:
    assert any(command == "kvtax budget --model llama-3-8b --gpu a100-80" for command, _ in BLOCKS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_named(name: str) -> None:
    assert f"kvtax {name}" in TEXT


CODES = {name: code for name, code in vars(Exit).items() if name.isupper()}


@pytest.mark.parametrize("code", CODES.values(), ids=list(CODES))
def test_every_exit_code_is_named(code: int) -> None:
    assert f"| {code} |" in TEXT
