"""`kvtax concurrency`: how many requests fit, over any two axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvtax.cli.engine_options import ENGINE_OPTIONS
from kvtax.cli.exits import Exit, UsageError, worst
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
    STRICT,
    VARY,
    Argument,
    Command,
    Option,
    deployment_fields,
)
from kvtax.cli.outlet import choose_look, open_outlet
from kvtax.cli.pages import PAGE_FORMATS, PAGE_OPTIONS, drawn
from kvtax.cli.plots import open_plot
from kvtax.cli.words import read_catalogue

SHOWN = ("max", "tokens", "longest", "pool", "verdict")


def run(values: Mapping[str, Any]) -> int:
    """Answer one command line.

    Args:
        values: by option name.

    Returns:
        The exit code: 0 where every cell has an answer (with --strict: where each fits), else that of the errors.
    """
    with open_outlet(values) as outlet, open_plot(values) as plot:
        look = choose_look(values, outlet, PAGE_FORMATS)
        show = _shown(values)
        models, gpus = read_catalogue(values)
        settle_network(values)
        fields = deployment_fields({**values, "model": None})
        fields |= _lists(values)
        vary = values.get("vary") or ()
        from kvtax.planning.matrix import matrix
        from kvtax.views import matrix_page as view

        found = matrix(vary, models=models, gpus=gpus, **_with_cards(fields, values))
        wide = bool(values.get("interval"))
        width = look.width if look.format == "table" else 1 << 30
        plot.write(lambda: [view.matrix_chart(found, show)])
        outlet.write(
            drawn(
                look,
                lambda: view.matrix_page(found, show, interval=wide, width=width),
                lambda: view.matrix_to_dict(found, show),
                view.matrix_grid(found, show, interval=wide) if look.format == "csv" else None,
            )
        )
    errors = [cell.error for cell in found.variants if cell.error is not None]
    codes = [error.exit_code for error in errors]
    if values.get("strict") and not all(cell.fits for cell in found.variants if cell.error is None):
        codes.append(Exit.DOES_NOT_FIT)
    if errors and len(errors) == len(found.variants) and len({(error.code, str(error)) for error in errors}) == 1:
        raise errors[0]
    return worst(codes)


def _shown(values: Mapping[str, Any]) -> str:
    show = values.get("show") or "max"
    if show not in SHOWN:
        raise UsageError(f"--show is one of {', '.join(SHOWN)}, not {show[:64]!r}")
    return str(show)


def _lists(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of which each value is a row or a column."""
    named = {
        "model": [*(values.get("models") or ()), *(values.get("model") or ())],
        "engine": _words(values.get("engine")),
        "gpu": [word for each in values.get("gpu") or () for word in _words(each)],
        "max_model_len": _words(values.get("max_model_len")),
    }
    return {name: list(dict.fromkeys(words)) for name, words in named.items() if words}


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _with_cards(fields: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with the common cards, where none is named and an axis is free."""
    axes = [name for name, value in fields.items() if isinstance(value, list) and len(value) > 1]
    varied = [word.partition("=")[0].strip() for word in values.get("vary") or ()]
    if "gpu" in fields or "gpu" in varied or fields.get("vram") is not None or len(axes) + len(varied) > 1:
        return fields
    from kvtax.planning.levers import COMMON_CARDS

    return {**fields, "gpu": list(COMMON_CARDS)}


def _many(option: Option) -> Option:
    """The option as this command takes it."""
    more = {
        "model": ("A model, as in kvtax budget; may be repeated.", MANY),
        "gpu": ("Cards, such as a100-80,h100-sxm; may be repeated. Left out: the common cards.", MANY),
        "max_model_len": ("Longest request in tokens: 8k, or several: 8k,32k [the model's limit].", option.kind),
        "engine": ("vllm, sglang, llama.cpp ..., or several: vllm,sglang [vllm].", option.kind),
    }
    text, kind = more.get(option.name, (option.help, option.kind))
    return option._replace(help=text, kind=kind)


COMMAND = Command(
    "concurrency",
    "How many requests fit at once, as a matrix: models x GPUs, engines x GPUs, GPUs x context lengths, any two fields.\n\n"
    "Exit code: 0 every cell has an answer, 1 with --strict where one does not fit, 2 wrong usage or bad input, 3 could not be found out.",
    (Argument("models", "MODEL", "The same as --model.", many=True),),
    (
        Option("show", ("--show",), f"{', '.join(SHOWN[:-1])} or {SHOWN[-1]} [max].", "Matrix", metavar="FIGURE"),
        Option("interval", ("--interval",), "Add the range that holds 90 % of real starts.", "Matrix", FLAG),
        VARY._replace(help="A further axis: values of a field.", group="Matrix"),
        *map(_many, MODEL_OPTIONS),
        OFFLINE,
        *map(_many, CARD_OPTIONS),
        *map(_many, LOAD_OPTIONS),
        *map(_many, ENGINE_OPTIONS),
        CATALOGUE,
        *PAGE_OPTIONS[:3],
        PLOT,
        STRICT._replace(help="A cell that does not fit exits with 1."),
        *PAGE_OPTIONS[3:],
    ),
    (
        ("models on cards", "kvtax concurrency llama-3-8b qwen3-32b -g l4,a100-80,h100-sxm --context 8k"),
        ("how the longest context depends on the KV cache", "kvtax concurrency qwen3-32b --show longest --vary kv_cache_dtype=auto,fp8"),
        ("for a document", "kvtax concurrency llama-3-8b -g l4,l40s --context 4k,16k --interval --format markdown"),
    ),
    run,
)  # fmt: skip
