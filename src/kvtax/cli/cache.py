"""`kvtax cache`: where answers of the hub are kept, and how to remove them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kvtax.cli.exits import Exit, UsageError
from kvtax.cli.options import FORMAT_OPTIONS, Argument, Command
from kvtax.cli.outlet import choose_format, open_outlet

FORMATS = ("plain", "json")
ACTIONS = ("dir", "clear")
SCHEMA = "kvtax.cache/1"


def run(values: Mapping[str, Any]) -> int:
    """Answer one command line.

    Args:
        values: by option name.

    Returns:
        The exit code: 0, also where nothing is kept.

    Raises:
        UsageError: neither of the two actions.
    """
    action = values.get("action")
    if action not in ACTIONS:
        given = "no action is given" if action is None else f"there is no action {action[:64]!r}"
        raise UsageError(given, hint="kvtax cache dir shows the folder, kvtax cache clear removes what is kept in it")
    with open_outlet(values) as outlet:
        form = choose_format(values, FORMATS)
        from kvtax.sources.hub import answers

        # whole, so that it is the same folder wherever it is pasted, and begins with no dash
        folder = os.path.abspath(answers.cache_dir())
        if form == "json":
            outlet.write(_document(action, folder))
        elif action == "dir":
            outlet.write(f"{folder}\n")
        else:
            from kvtax.units import format_bytes

            count, freed = answers.clear()
            words = f"{count} answer{'' if count == 1 else 's'}"
            outlet.write(f"removed {words} ({format_bytes(freed)}) from {folder}\n")
    return Exit.OK


def _document(action: str, folder: str) -> str:
    """What was done, as `kvtax.cache/1`."""
    from kvtax.budget_result import catalogue_stamp
    from kvtax.sources.hub import answers
    from kvtax.views.json_text import json_text

    removed, freed = answers.clear() if action == "clear" else (0, 0)
    count, size = answers.kept()
    return json_text(
        {
            "schema": SCHEMA,
            **catalogue_stamp(),
            "dir": folder,
            "answers": count,
            "bytes": size,
            "removed": removed,
            "removed_bytes": freed,
        }
    )


COMMAND = Command(
    "cache",
    "What was read of models on the hub (configs and headers, never weights) is kept in small files, one a model and commit.\n\n"
    "dir prints the folder and nothing else; clear removes the answers in it, and no other file. KVTAX_CACHE_DIR sets the folder.",
    (Argument("action", "dir|clear", "dir: print the folder. clear: remove the answers."),),
    tuple(
        option._replace(help="plain or json [plain].") if option.name == "format" else option
        for option in FORMAT_OPTIONS
        if option.name != "color"
    ),
    (
        ("the folder, for a shell", "kvtax cache dir"),
        ("how much is kept", "kvtax cache dir --json"),
        ("ask the hub anew", "kvtax cache clear"),
    ),
    run,
)
