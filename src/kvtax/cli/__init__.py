"""The `kvtax` command: each command is a module of its own, imported only when it runs.

Adding a command is one line in COMMANDS and one module in this folder with a `COMMAND` (see `options.Command`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvtax.cli.exits import Exit, closed_pipe, explain_failure, say

if TYPE_CHECKING:
    from kvtax.cli.options import Command

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module, what it does in one line)
    "budget": ("kvtax.cli.budget", "Where the memory of a GPU goes, and how many requests fit."),
    "whatif": ("kvtax.cli.whatif", "What changes would do: memory, tokens, requests, and every lever that helps."),
    "concurrency": ("kvtax.cli.concurrency", "How many requests fit: models x GPUs, or any two axes."),
    "fit": ("kvtax.cli.fit", "The cards that carry a model and a need, or the models that a card carries."),
    "diff": ("kvtax.cli.diff", "Two budgets, saved or not, and why they differ."),
    "inspect": ("kvtax.cli.inspect", "The anatomy of a model: layers, weights, and how its KV grows."),
    "models": ("kvtax.cli.models", "The models of the catalogue, and the architectures that are understood."),
    "gpus": ("kvtax.cli.gpus", "The cards of the catalogue, with the memory that engines see."),
    "engines": ("kvtax.cli.engines", "The engines whose rules are known, and how far real servers lay from them."),
    "gguf": ("kvtax.cli.gguf", "The GGUF quantisations of a repository or folder, and which of them fit a card."),
    "sweep": ("kvtax.cli.sweep", "Many budgets: a file or a grid of deployments in, one result a line out."),
    "cache": ("kvtax.cli.cache", "Where answers of the hub are kept, and how to remove them."),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code (see `exits.Exit`).

    Args:
        argv: the words after the program's name; None: those of this process.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    _forgive_encodings()
    try:
        code = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        say("interrupted")
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001  the one place where a failure becomes a line and an exit code
        if closed_pipe(error):
            return Exit.OK
        try:
            code = explain_failure(error, words)
            sys.stdout.flush()
        except OSError as second:
            return Exit.OK if closed_pipe(second) else Exit.USAGE
    return code


def _run(words: list[str]) -> int:
    """The exit code of one command line: read plainly where it is plain, by typer where it is not."""
    import os

    if words and words[0] in COMMANDS and "_KVTAX_COMPLETE" not in os.environ:
        from kvtax.cli.plain_words import read_plainly

        command = load_command(words[0])
        values = read_plainly(command, words[1:])
        if values is not None:
            return command.run(values)
    elif "--version" in words and set(words) <= {"--version", "--json"}:
        from kvtax.cli.version import show_version

        return show_version("--json" in words)
    from kvtax.cli.app import run_app

    return run_app(words)


def load_command(name: str) -> Command:
    """The command called `name`; its module is imported now."""
    from importlib import import_module

    command: Command = import_module(COMMANDS[name][0]).COMMAND
    return command


def _open_streams() -> None:
    """Give a process that was started without stdout or stderr (`>&-`, pythonw) a place to write to: the exit code still answers."""
    import os

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  stays open as long as the process


def _forgive_encodings() -> None:
    """Let a terminal that cannot show a character show its code instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
