"""The outputs in README.md are real: this writes them, and tests/test_readme.py checks them.

    python tests/readme.py --write

A block stands behind a comment such as `<!-- output: kvtax budget ... -->`; `| head -N` at its end keeps the first N lines.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
_BLOCK = re.compile(r"(<!-- output: (?P<command>[^\n]+?) -->\n```text\n)(?P<text>.*?)(```)", re.DOTALL)
WIDTH = "88"


def run(command: str) -> str:
    """What a command prints, without colour, 88 columns wide."""
    from kvtax.cli import main

    command, _, head = command.partition(" | head -")
    os.environ.update(COLUMNS=WIDTH, NO_COLOR="1")
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main(shlex.split(command)[1:])
    out.flush()
    lines = [line.rstrip() for line in raw.getvalue().decode().splitlines()]
    if head:
        lines = lines[: int(head)]
    return "\n".join(lines).strip("\n") + "\n"


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Each command and the output that README shows for it."""
    for found in _BLOCK.finditer(text):
        yield found["command"], found["text"]


def main() -> None:
    """Write the outputs."""
    text = README.read_text(encoding="utf-8")
    fresh = _BLOCK.sub(lambda found: f"{found[1]}{run(found['command'])}{found[4]}", text)
    if "--write" in sys.argv:
        README.write_text(fresh, encoding="utf-8")
    elif fresh != text:
        raise SystemExit("README.md is out of date: python tests/readme.py --write")


if __name__ == "__main__":
    main()
