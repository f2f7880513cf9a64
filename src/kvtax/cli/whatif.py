"""`kvtax whatif`: what changes would do to a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvtax.cli.engine_options import ENGINE_OPTIONS
from kvtax.cli.exits import Exit, UsageError, worst
from kvtax.cli.network import settle_network
from kvtax.cli.options import (
    CATALOGUE,
    EXPLAIN,
    LOAD_OPTIONS,
    MANY,
    MODEL_OPTIONS,
    OFFLINE,
    ONE_CARD_OPTIONS,
    PLOT,
    VARY,
    Argument,
    Command,
    Option,
    deployment_fields,
)
from kvtax.cli.outlet import choose_look, open_outlet
from kvtax.cli.pages import PAGE_FORMATS, PAGE_OPTIONS, drawn
from kvtax.cli.plots import open_plot
from kvtax.cli.words import read_catalogue, read_model, size_notices


def run(values: Mapping[str, Any]) -> int:
    """Answer one command line.

    Args:
        values: by option name.

    Returns:
        The exit code: 0 where a change that was asked for fits (the base, where none was), 1 where none does; 2 or 3 where none can be sized.
    """
    with open_outlet(values) as outlet, open_plot(values) as plot:
        look = choose_look(values, outlet, PAGE_FORMATS)
        models, gpus = read_catalogue(values)
        settle_network(values)
        fields = deployment_fields(values)
        notices = [*read_model(fields, values), *size_notices(values, COMMAND.options)]
        fields["gpu"] = one_card(values)
        explained = bool(values.get("explain"))
        from kvtax.planning.grid import read_change
        from kvtax.planning.whatif import whatif
        from kvtax.views import whatif_page as view

        changes = [dict((read_change(word),)) for word in values.get("set") or ()]
        found = whatif(changes, values.get("vary") or (), explain=explained, models=models, gpus=gpus, **fields)
        found.base.extra_notices = tuple(notices)
        plot.write(lambda: view.whatif_charts(found))
        text = drawn(
            look,
            lambda: view.whatif_page(found, explained=explained),
            found.to_dict,
            view.whatif_grid(found) if look.format == "csv" else None,
        )
        outlet.write(text)
    return _exit_code(found)


def one_card(values: Mapping[str, Any]) -> str | None:
    """The one card of a command that compares with a base.

    Raises:
        UsageError: several are named.
    """
    named = list(dict.fromkeys(values.get("gpu") or ()))
    if len(named) > 1:
        raise UsageError("the base has one card", hint="compare cards with --vary gpu=" + ",".join(named))
    return named[0] if named else None


def _exit_code(found: Any) -> int:
    if found.ranked:
        return Exit.OK if found.base.fits else Exit.DOES_NOT_FIT
    if any(one.fits for one in found.outcomes):
        return Exit.OK
    return worst(Exit.DOES_NOT_FIT if one.error is None else one.error.exit_code for one in found.outcomes)


COMMAND = Command(
    "whatif",
    "What changes would do to a deployment: memory, tokens and requests against the base, and what each field brings.\n\n"
    "Without --set and --vary every lever that the engine and the card have is tried, and those that help are listed, the best first, "
    "with what each one costs.\n\n"
    "Exit code: 0 one of the changes fits (without changes: the base), 1 none does, 2 wrong usage or bad input, 3 could not be found out.",
    (Argument("model_argument", "MODEL", "The same as --model."),),
    (
        Option(
            "set", ("-s", "--set"), "A change; repeated: each alone and all together.", "Changes", MANY, "FIELD=VALUE"
        ),
        VARY,
        *MODEL_OPTIONS,
        OFFLINE,
        *ONE_CARD_OPTIONS,
        *LOAD_OPTIONS,
        *ENGINE_OPTIONS,
        CATALOGUE,
        *PAGE_OPTIONS[:3],
        PLOT,
        EXPLAIN,
        *PAGE_OPTIONS[3:],
    ),
    (
        ("fp8 KV, two cards, and both", "kvtax whatif llama-3-8b -g l4 --context 16k -s kv_cache_dtype=fp8 -s tp=2"),
        ("a grid", "kvtax whatif qwen3-32b -g h100-sxm --vary context=8k,32k --vary kv_cache_dtype=auto,fp8"),
        ("every lever that helps, the best first", "kvtax whatif llama-3-8b -g l4 --context 32k -n 4"),
    ),
    run,
)
