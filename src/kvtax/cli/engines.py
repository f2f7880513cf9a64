"""`kvtax engines`: the engines whose rules are known, and how far real servers lay from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvtax.cli.exits import Exit
from kvtax.cli.options import Argument, Command
from kvtax.cli.outlet import choose_look, open_outlet
from kvtax.cli.pages import PAGE_FORMATS, PAGE_OPTIONS, drawn


def run(values: Mapping[str, Any]) -> int:
    """Answer one command line.

    Args:
        values: by option name.

    Returns:
        The exit code: 0.

    Raises:
        InputError: no such engine.
    """
    name = values.get("name")
    with open_outlet(values) as outlet:
        look = choose_look(values, outlet, PAGE_FORMATS)
        if name is not None:
            from kvtax.deployment import find_engine

            name = find_engine(name)
        from kvtax.planning.engine_summaries import summarise_engines
        from kvtax.views import engines_page as view

        found = summarise_engines(name)
        text = drawn(
            look,
            lambda: view.engine_page(found[0]) if name is not None else view.engines_page(found),
            lambda: view.engines_to_dict(found),
        )
        outlet.write(text)
    return Exit.OK


COMMAND = Command(
    "engines",
    "The engines that --engine takes: the versions whose rules are known, the real starts that they were held against, and the errors "
    "found (median / 90th percentile).\n\n"
    "With a name: errors by kind of start, the margins of its 90 % intervals, and each rule that changed, with its source.",
    (Argument("name", "ENGINE", "One engine, with its rules. Left out: all of them."),),
    PAGE_OPTIONS,
    (
        ("how far off each engine's figures are", "kvtax engines"),
        ("what changed in vLLM from release to release", "kvtax engines vllm"),
        ("the same for a program", "kvtax engines --json"),
    ),
    run,
)
