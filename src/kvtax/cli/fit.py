"""`kvtax fit`: the cards that carry a model and a need, or the models that a card carries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvtax.cli.engine_options import ENGINE_OPTIONS
from kvtax.cli.exits import Exit, UsageError
from kvtax.cli.network import settle_network
from kvtax.cli.options import (
    CARD_OPTIONS,
    CATALOGUE,
    FLAG,
    LOAD_OPTIONS,
    MANY,
    MODEL_OPTIONS,
    OFFLINE,
    PLOT,
    VARY,
    Argument,
    Command,
    Option,
    deployment_fields,
)
from kvtax.cli.outlet import Look, choose_look, open_outlet
from kvtax.cli.pages import PAGE_FORMATS, PAGE_OPTIONS, drawn
from kvtax.cli.plots import open_plot
from kvtax.cli.words import read_catalogue, read_model

ALL = "all"


def run(values: Mapping[str, Any]) -> int:
    """Answer one command line.

    Args:
        values: by option name.

    Returns:
        The exit code: 0 where there is a choice, 1 where there is none.
    """
    with open_outlet(values) as outlet, open_plot(values) as plot:
        look = choose_look(values, outlet, PAGE_FORMATS)
        models, gpus = read_catalogue(values)
        settle_network(values)
        fields = deployment_fields(values)
        read_model(fields, values)
        from kvtax.planning.need import read_mix

        question = {
            "traffic": read_mix(values["traffic"]) if values.get("traffic") else (),
            "models": models,
            "gpus": gpus,
            **({"by": values["by"]} if values.get("by") else {}),
        }
        if fields.get("model") is None:
            text, found = _models(values, fields, question, look)
        else:
            text, found = _cards(values, fields, question, look)
        if plot.is_asked:
            plot.write(lambda: _charts(found))
        outlet.write(text)
    return Exit.OK if found.choices else Exit.DOES_NOT_FIT


def _cards(values: Mapping[str, Any], fields: dict[str, Any], question: dict[str, Any], look: Look) -> tuple[str, Any]:
    """The cards that carry a model."""
    for name in ("search", "every"):
        if values.get(name):
            raise UsageError(f"--{name} looks for models, and one is given")
    from kvtax.planning.fit import fit
    from kvtax.views import fit_page as view

    named = list(dict.fromkeys(values.get("gpu") or ()))
    if ALL in named:
        from kvtax.sources.gpus import list_gpus

        named = [gpu.id for gpu in (*question["gpus"], *list_gpus()) if gpu.parent is None]
    found = fit(
        vary=values.get("vary") or (),
        prices=_prices(values, question["gpus"]),
        **question,
        **{**fields, "gpu": named or None},
    )
    return _written(values, look, found, view.fit_page, view.fit_to_dict, view.fit_grid), found


def _models(values: Mapping[str, Any], fields: dict[str, Any], question: dict[str, Any], look: Look) -> tuple[str, Any]:
    """The models that a card carries."""
    for name in ("vary", "prices"):
        if values.get(name):
            raise UsageError(
                f"--{name} compares cards for a model, and no model is given", hint="name one: kvtax fit llama-3-8b"
            )
    named = list(dict.fromkeys(values.get("gpu") or ()))
    if len(named) != 1 and fields.get("vram") is None:
        raise UsageError(
            "neither a model nor a card is given",
            hint="kvtax fit llama-3-8b -n 40, or kvtax fit -g rtx-4090 --context 64k",
        )
    from kvtax.planning.fit_models import fit_models
    from kvtax.views import fit_models_page as view

    card = named[0] if named else None
    words = tuple((values.get("search") or "").split())
    found = fit_models(words, every=bool(values.get("every")), **question, **{**fields, "gpu": card})
    return _written(values, look, found, view.fit_models_page, view.fit_models_to_dict, view.fit_models_grid), found


def _written(
    values: Mapping[str, Any],
    look: Look,
    found: Any,
    page: Callable[..., Any],
    document: Callable[..., Any],
    grid: Callable[..., Any],
) -> str:
    most = {"most": _number(values["most"])} if values.get("most") else {}
    return drawn(
        look, lambda: page(found, **most), lambda: document(found), grid(found) if look.format == "csv" else None
    )


def _charts(found: Any) -> Any:
    from kvtax.planning.fit import Fit
    from kvtax.views.fit_page import fit_charts

    if not isinstance(found, Fit):
        raise UsageError("--plot shows cards for a model, and no model is given")
    return fit_charts(found)


def _number(text: str) -> int:
    from kvtax.values import read_count

    return read_count("most", text, 1, 10**6)


def _prices(values: Mapping[str, Any], gpus: Any) -> Any:
    if not values.get("prices"):
        return None
    from kvtax.sources.prices import load_prices

    return load_prices(values["prices"], gpus)


COMMAND = Command(
    "fit",
    "The cards and parallel sizes that carry a model and a need, the smallest first; or, with a card and no model, the models that it "
    "carries, each in the widest quantisation that fits.\n\n"
    "By default the common cards, 1, 2, 4 and 8 of them in one node, and the checkpoint's own quantisation; --vary looks at more. Every "
    "choice is one that kvtax budget calls a fit.\n\n"
    "Exit code: 0 there is a choice, 1 there is none, 2 wrong usage or bad input, 3 could not be found out.",
    (Argument("model_argument", "MODEL", "The same as --model. Left out: models for the card."),),
    (
        Option("traffic", ("--traffic",), "Requests of several lengths at once: 36x4k,4x32k.", "Need", metavar="NxTOKENS,..."),
        *(option._replace(group="Need") for option in LOAD_OPTIONS),
        Option("by", ("--by",), "Rank cards by memory, price, cards or headroom [memory]; models by parameters, context or requests.", "Choices",
               metavar="KEY"),
        Option("most", ("--most",), "Rows to show [12; 40 models].", "Choices", metavar="N"),
        VARY._replace(help="Further choices: values of a field; repeated: every combination.", group="Choices"),
        Option("prices", ("--prices",), "What cards cost an hour, in TOML; examples: dated ones of the catalogue.", "Choices", metavar="FILE"),
        Option("search", ("--search",), "Only models with these words in their name.", "Choices", metavar="WORDS"),
        Option("every", ("--every",), "Of each model the narrower quantisations, too.", "Choices", FLAG),
        *MODEL_OPTIONS,
        OFFLINE,
        CARD_OPTIONS[0]._replace(help="A card to choose from; may be repeated; all: the whole catalogue [the common cards].", kind=MANY),
        *CARD_OPTIONS[1:],
        *ENGINE_OPTIONS,
        CATALOGUE,
        *PAGE_OPTIONS[:3],
        PLOT,
        *PAGE_OPTIONS[3:],
    ),
    (
        ("what carries 40 chats of 32k", "kvtax fit qwen3-32b -n 40 --context 32k --prices examples"),
        ("a mix of lengths, and FP8 KV as a choice", "kvtax fit llama-3.1-70b --traffic 36x4k,4x32k --vary kv_cache_dtype=auto,fp8"),
        ("models for the card at hand", "kvtax fit -g rtx-4090 --engine llama.cpp --context 64k --search qwen"),
    ),
    run,
)  # fmt: skip
