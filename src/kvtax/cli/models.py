"""`kvtax models`: the models of the catalogue, and the architectures that are understood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvtax.cli.exits import Exit, UsageError, say
from kvtax.cli.models_add import ADD_OPTIONS, adds, refuse_add_options, run_add
from kvtax.cli.options import CATALOGUE, FLAG, Argument, Command, Option
from kvtax.cli.outlet import choose_look, open_outlet
from kvtax.cli.pages import PAGE_FORMATS, PAGE_OPTIONS, drawn, nothing_found
from kvtax.cli.words import read_catalogue

if TYPE_CHECKING:
    from kvtax.sources.models import ModelEntry


def run(values: Mapping[str, Any]) -> int:
    """Answer one command line.

    Args:
        values: by option name.

    Returns:
        The exit code: 0, also where nothing is found.

    Raises:
        KvtaxError: a model that is to be added cannot be read, or the entry not be written.
    """
    if adds(values.get("query") or ()):
        return run_add(values)
    refuse_add_options(values)
    query = " ".join(values.get("query") or ())
    words = query.split()
    with open_outlet(values) as outlet:
        look = choose_look(values, outlet, PAGE_FORMATS)
        from kvtax.views import models_page as view

        if values.get("families"):
            if words:
                raise UsageError(
                    "--families lists them all",
                    hint="leave the words out, or search the list: kvtax models --families | grep llama",
                )
            from kvtax.architectures.registry import FAMILIES
            from kvtax.views.page import Page

            grid = view.families_grid(FAMILIES)
            outlet.write(drawn(look, lambda: Page("", (grid,)), lambda: view.families_to_dict(FAMILIES), grid))
            return Exit.OK
        from kvtax.planning.summaries import find_entries, summarise

        extra, _ = read_catalogue(values)
        found = summarise(find_entries(words, extra), extra)
        names = [] if found else _closest(query, extra)
        text = drawn(
            look,
            lambda: view.models_page(found),
            lambda: view.models_to_dict(query, found, names),
            view.models_csv(found) if look.format == "csv" else None,
        )
        outlet.write(text)
    if not found and not values.get("quiet"):
        say(nothing_found("model", query, names))
    return Exit.OK


def _closest(query: str, extra: Sequence[ModelEntry]) -> list[str]:
    from kvtax.planning.summaries import closest
    from kvtax.sources.models import list_models

    entries = (*extra, *list_models())
    names = [(name, name) for entry in entries for name in entry.aliases]
    names += [(spelling, entry.id) for entry in entries for spelling in (entry.id, entry.id.rpartition("/")[2])]
    return closest(query, names)


COMMAND = Command(
    "models",
    "The models whose config.json is at hand: parameters, KV of one token in 16 bit, and the longest context.\n\nA search finds the "
    "models that have all its words in their id, aliases or model type.\n\n"
    "add MODEL writes an entry of your own from any source (hub, path, GGUF file, ollama:NAME, lmstudio:NAME, a name of the catalogue, - for "
    "a config on stdin) into kvtax.toml here, or into the file that --catalogue names: what was read of the model goes into a file beside "
    "it, so that it is found without network from then on.",
    (
        Argument(
            "query",
            "WORD",
            "What to search for: qwen3 moe, llama, deepseek_v3. Left out: every model. Or: add MODEL.",
            many=True,
        ),
    ),
    (
        Option("families", ("--families",), "List the model types of config.json that are understood.", "Search", FLAG),
        *ADD_OPTIONS,
        CATALOGUE,
        *PAGE_OPTIONS,
    ),
    (
        ("every mixture-of-experts model of Qwen 3", "kvtax models qwen3 moe"),
        ("an entry of your own from the hub, under a short name", "kvtax models add org/name --alias mine"),
        ("which architectures are understood", "kvtax models --families"),
    ),
    run,
)
