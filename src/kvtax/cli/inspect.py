"""`kvtax inspect`: the anatomy of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvtax.cli.engine_options import ENGINE_OPTIONS
from kvtax.cli.exits import Exit, UsageError
from kvtax.cli.network import settle_network
from kvtax.cli.options import (
    CATALOGUE,
    FLAG,
    LOAD_OPTIONS,
    MODEL,
    MODEL_HELP,
    OFFLINE,
    PLOT,
    Argument,
    Command,
    Option,
)
from kvtax.cli.outlet import choose_look, open_outlet
from kvtax.cli.pages import PAGE_FORMATS, PAGE_OPTIONS, drawn
from kvtax.cli.plots import open_plot
from kvtax.cli.words import read_catalogue, read_stdin_model, size_notices

if TYPE_CHECKING:
    from kvtax.sources.models import ModelEntry
    from kvtax.sources.resolve import Model
    from kvtax.terms import Notice


def run(values: Mapping[str, Any]) -> int:
    """Answer one command line.

    Args:
        values: by option name.

    Returns:
        The exit code: 0; what goes wrong is an error with its own.
    """
    with open_outlet(values) as outlet, open_plot(values) as plot:
        look = choose_look(values, outlet, PAGE_FORMATS)
        models, _ = read_catalogue(values)
        settle_network(values)
        model, notices = _find(values, models)
        from kvtax.planning.anatomy import dissect
        from kvtax.units import parse_tokens

        context = values.get("max_model_len")
        tokens = None if context is None else parse_tokens(context, "--context")
        anatomy = dissect(model.architecture, values.get("kv_cache_dtype"), tokens, *_image(values))
        notices = (*notices, *_about_length(model, tokens))

        def page() -> Any:
            from kvtax.views.inspect_page import inspect_page

            return inspect_page(model, anatomy, notices, tensors=bool(values.get("tensors")))

        def document() -> Any:
            from kvtax.views.inspect_json import inspect_to_dict

            return inspect_to_dict(model, anatomy, notices)

        table = None
        if values.get("tensors") and look.format == "csv":
            from kvtax.views.inspect_weights import tensors_block

            table = tensors_block(anatomy)
        plot.write(lambda: _charts(model, anatomy))
        outlet.write(drawn(look, page, document, table))
    return Exit.OK


def _charts(model: Model, anatomy: Any) -> list[Any]:
    from kvtax.views.inspect_kv import growth_plot

    found = growth_plot(model.id, anatomy)
    return [] if found is None else [found]


def _about_length(model: Model, tokens: int | None) -> tuple[Notice, ...]:
    from kvtax.terms import Notice

    limit = model.architecture.max_position_embeddings
    if tokens is None or limit is None or tokens <= limit:
        return ()
    return (Notice("context-above-limit", f"{tokens:,} tokens are above the {limit:,} of the config"),)


def _image(values: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """Width and height of the image that is asked for, as one argument; none for the usual one."""
    text = values.get("image")
    if text is None:
        return ()
    sides = str(text).lower().split("x")
    if len(sides) != 2 or not all(side.isascii() and side.isdecimal() and len(side) < 8 for side in sides):
        raise UsageError(f"--image: {str(text)[:64]!r} is not WIDTHxHEIGHT", hint="write it so: --image 1024x768")
    return ((int(sides[0]), int(sides[1])),)


def _find(values: Mapping[str, Any], models: tuple[ModelEntry, ...]) -> tuple[Model, tuple[Notice, ...]]:
    """The model that is meant, and what is to be said about it."""
    word, option = values.get("model_argument"), values.get("model")
    if word is not None and option is not None:
        raise UsageError(f"the model is given twice: {word[:96]!r} and --model", hint="give it once")
    name = option if word is None else word
    if name is None:
        raise UsageError(
            "no model is given", hint="name one: kvtax inspect llama-3-8b, or kvtax models for all of them"
        )
    from kvtax.sources.resolve import find

    notices = size_notices(values, COMMAND.options)
    if name == "-":
        config, more = read_stdin_model()
        found = find(config)._replace(id="(stdin)", source="the config on standard input")
        notices += more
    else:
        found = find(name, models)
    known = (notice._replace(hint="") if notice.code == "dtype-assumed" else notice for notice in found.notices)
    return found, (*known, *notices)


TENSORS = Option(
    "tensors", ("--tensors",), "List every group of tensors as the files store it (JSON always does).", "Model", FLAG
)
_IMAGE = Option(
    "image", ("--image",), "Image whose tokens and KV are shown: 1024x768 [1024x1024].", "Requests", metavar="WxH"
)
_LENGTH = LOAD_OPTIONS[0]._replace(help="Length of the request that is shown: 8192, 8k, 128k [the model's limit].")
_KV_DTYPE = next(option for option in ENGINE_OPTIONS if option.name == "kv_cache_dtype")._replace(
    help="Of keys and values: bfloat16, fp8, nvfp4, int8_per_token_head ... [16 bit].", group="Requests"
)
COMMAND = Command(
    "inspect",
    "The anatomy of a model: layers by kind of cache, weights by component, what a token and a request hold, how that grows with "
    "length, in other KV dtypes and on each rank of tensor parallelism.\n\nThis is what the model needs; what an engine reserves for "
    "it is kvtax budget.",
    (
        Argument(
            "model_argument",
            "MODEL",
            MODEL_HELP,
        ),
    ),
    (
        MODEL._replace(help="The same as MODEL."),
        TENSORS,
        _LENGTH,
        _IMAGE,
        _KV_DTYPE,
        OFFLINE,
        CATALOGUE,
        *PAGE_OPTIONS[:3],
        PLOT,
        *PAGE_OPTIONS[3:],
    ),
    (
        ("where the parameters and the KV of a model are", "kvtax inspect gemma-3-27b"),
        ("a config of your own, tensor by tensor", "kvtax inspect ./my-model/config.json --tensors"),
        (
            "bytes for a program, at 32k tokens with KV in fp8",
            "kvtax inspect qwen3-32b --context 32k --kv-cache-dtype fp8 --json",
        ),
    ),
    run,
)
