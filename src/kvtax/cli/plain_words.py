"""Plain command lines read without typer, whose import costs more than the answer.

Plain means: every option is known and written out, each with its value in a word of its own or after `=`. Whatever else a line
holds (`--help`, a typing error, `-nVALUE`, `--`, a value that starts with a dash) is left to typer, which gives the same values for
every line that is read here; a test holds that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvtax.cli.options import FLAG, MANY, Command, Option


def read_plainly(command: Command, words: Sequence[str]) -> dict[str, Any] | None:
    """The values of a plain line by name, or None where it is for typer.

    Args:
        command: whose words they are.
        words: after the command's name.

    Returns:
        A value for every option and argument: text, a tuple of texts, True, False, or None where it is not given.
    """
    by_flag: dict[str, tuple[Option, bool]] = {}
    values: dict[str, Any] = {argument.name: () if argument.many else None for argument in command.arguments}
    for option in command.options:
        values[option.name] = () if option.kind == MANY else None
        by_flag.update(dict.fromkeys(option.flags + option.also, (option, True)))
        by_flag.update(dict.fromkeys(option.off, (option, False)))
    free = [argument.name for argument in command.arguments if not argument.many]
    rest = next((argument.name for argument in command.arguments if argument.many), None)
    waiting = list(reversed(words))
    while waiting:
        word = waiting.pop()
        if word == "-" or not word.startswith("-"):
            if free:
                values[free.pop(0)] = word
            elif rest is not None:
                values[rest] = (*values[rest], word)
            else:
                return None
            continue
        flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if flag not in by_flag:
            return None
        option, says = by_flag[flag]
        if option.kind == FLAG and equals:
            return None
        if option.kind == FLAG:
            values[option.name] = says
            continue
        if not equals:
            if not waiting or (waiting[-1].startswith("-") and waiting[-1] != "-"):
                return None
            value = waiting.pop()
        values[option.name] = (*values[option.name], value) if option.kind == MANY else value
    if any(argument.required and argument.name in free for argument in command.arguments):
        return None
    return values
