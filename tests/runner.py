"""Run `kvtax` as users do, in a process of its own, or in this one where that is enough."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NamedTuple

from kvtax.cli import main

CLEAN = {
    "NO_COLOR": "",
    "FORCE_COLOR": "",
    "TERM": "xterm",
    "COLUMNS": "100",
    "PYTHONIOENCODING": "utf-8",
    "PYTHONUTF8": "0",
}


class Ran(NamedTuple):
    """How a run went."""

    code: int
    out: str
    err: str


def run(*words: str, stdin: bytes = b"", env: dict[str, str] | None = None, cwd: str | None = None) -> Ran:
    """`python -m kvtax WORDS` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "kvtax", *words],
        input=stdin,
        capture_output=True,
        env={**os.environ, **CLEAN, **(env or {})},
        cwd=cwd,
        check=False,
    )
    return Ran(
        done.returncode,
        done.stdout.decode("utf-8").replace("\r\n", "\n"),
        done.stderr.decode("utf-8").replace("\r\n", "\n"),
    )


def run_here(capsys, monkeypatch, *words: str, env: dict[str, str] | None = None) -> Ran:
    """`kvtax WORDS` in this process."""
    for name, value in {**CLEAN, **(env or {})}.items():
        monkeypatch.setenv(name, value)
    capsys.readouterr()
    code = main(words)
    out, err = capsys.readouterr()
    return Ran(code, out, err)
