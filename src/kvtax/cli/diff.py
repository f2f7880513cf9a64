"""`kvtax diff`: two budgets, saved or made now, and why they differ."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvtax.cli.engine_options import ENGINE_OPTIONS
from kvtax.cli.exits import Exit, UsageError
from kvtax.cli.network import settle_network
from kvtax.cli.options import (
    CATALOGUE,
    LOAD_OPTIONS,
    MODEL_OPTIONS,
    OFFLINE,
    ONE_CARD_OPTIONS,
    Argument,
    Command,
    deployment_fields,
)
from kvtax.cli.outlet import choose_look, open_outlet
from kvtax.cli.pages import PAGE_FORMATS, PAGE_OPTIONS, drawn
from kvtax.cli.whatif import one_card
from kvtax.cli.words import read_catalogue, read_model

if TYPE_CHECKING:
    from kvtax.planning.diff import Side

AS_IT_IS = "-"
"""The side that has the shared options alone."""


def run(values: Mapping[str, Any]) -> int:
    """Answer one command line.

    Args:
        values: by option name.

    Returns:
        The exit code: 0 where B fits or A does not either, 1 where A fits and B no longer does.
    """
    with open_outlet(values) as outlet:
        look = choose_look(values, outlet, PAGE_FORMATS)
        models, gpus = read_catalogue(values)
        settle_network(values)
        fields = deployment_fields(values)
        read_model(fields, values)
        fields["gpu"] = one_card(values)
        from kvtax.planning.diff import diff
        from kvtax.views import diff_page as view

        sides = [_side(word, fields, models, gpus) for word in _two(values)]
        found = diff(*sides, models=models, gpus=gpus)
        outlet.write(drawn(look, lambda: view.diff_page(found), found.to_dict))
    one, other = (side.figures.verdict == "fits" for side in sides)
    return Exit.DOES_NOT_FIT if one and not other else Exit.OK


def _two(values: Mapping[str, Any]) -> Sequence[str]:
    words: Sequence[str] = values.get("sides") or ()
    if len(words) != 2:
        raise UsageError(
            f"two budgets are compared, and {len(words)} {'is' if len(words) == 1 else 'are'} named",
            hint="kvtax diff before.json after.json, or kvtax diff -m llama-3-8b -g l4 engine_version=0.19 engine_version=0.33",
        )
    return words


def _side(word: str, fields: Mapping[str, Any], models: Any, gpus: Any) -> Side:
    """A saved budget, or the shared options with changes."""
    from kvtax.planning.diff import make_side, saved_side

    if word != AS_IT_IS and (os.path.exists(word) or word.endswith(".json") or "=" not in word):
        from kvtax.sources.saved_budget import read_saved

        return saved_side(read_saved(word), models=models, gpus=gpus)
    from kvtax.planning.grid import read_change
    from kvtax.planning.variants import whole_change

    given = {name: value for name, value in fields.items() if value is not None}
    change = {} if word == AS_IT_IS else dict(read_change(part) for part in word.split())
    name = "as it is" if word == AS_IT_IS else word
    return make_side(name, {**given, **whole_change(given, change)}, models=models, gpus=gpus)


COMMAND = Command(
    "diff",
    "Two budgets and why they differ: which part of the memory, which changed field, which release of the engine.\n\n"
    "A and B are files written by kvtax budget --json, or changes of the options given beside them (FIELD=VALUE, several in quotes), "
    "or - for these options as they are.\n\n"
    "Exit code: 0, 1 where A fits and B does not, 2 wrong usage or bad input, 3 could not be found out.",
    (Argument("sides", "A B", "A file of kvtax budget --json, FIELD=VALUE, or -.", many=True),),
    (*MODEL_OPTIONS, OFFLINE, *ONE_CARD_OPTIONS, *LOAD_OPTIONS, *ENGINE_OPTIONS, CATALOGUE, *PAGE_OPTIONS),
    (
        ("two engine versions", "kvtax diff -m llama-3-8b -g a100-80 engine_version=0.19 engine_version=0.33"),
        ("two deployments", "kvtax diff -m qwen3-32b --context 16k gpu=h100-sxm 'gpu=l40s tensor_parallel_size=2'"),
        ("a budget that was saved, against today's", "kvtax diff before.json after.json --format markdown"),
    ),
    run,
)
