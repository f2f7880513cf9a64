"""`kvtax gguf`: the GGUF quantisations of a repository or folder, and which of them fit a card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvtax.cli.exits import Exit, UsageError
from kvtax.cli.network import settle_network
from kvtax.cli.options import CARD_OPTIONS, CATALOGUE, LOAD_OPTIONS, MODEL, OFFLINE, Argument, Command
from kvtax.cli.outlet import choose_look, open_outlet
from kvtax.cli.pages import PAGE_FORMATS, PAGE_OPTIONS, drawn
from kvtax.cli.words import read_catalogue, size_notices

_FIELDS = ("gpu", "vram", "max_model_len", "concurrency")


def run(values: Mapping[str, Any]) -> int:
    """Answer one command line.

    Args:
        values: by option name.

    Returns:
        The exit code: 0; with a card 1 where no quantisation fits.
    """
    with open_outlet(values) as outlet:
        look = choose_look(values, outlet, PAGE_FORMATS)
        name = _name(values)
        _, gpus = read_catalogue(values)
        settle_network(values)
        fields = _fields(values)
        from kvtax.planning.gguf_choices import size_choices
        from kvtax.sources.gguf_listing import list_gguf
        from kvtax.views import gguf_page as view

        listing = list_gguf(name)
        if fields is not None and "+" in str(fields.get("gpu")) and not listing.folder:
            raise UsageError(
                "several cards share the layers, which takes the header of each file",
                hint=f"name one card, or one file: kvtax budget {listing.id}:LABEL --engine llama.cpp -g {fields['gpu']}",
            )
        found = size_choices(listing, fields, gpus)
        found = found._replace(notices=(*found.notices, *size_notices(values, COMMAND.options)))
        grid = view.gguf_grid(found) if look.format == "csv" else None
        outlet.write(drawn(look, lambda: view.gguf_page(found), lambda: view.gguf_to_dict(found), grid))
    return Exit.OK if fields is None or found.best else Exit.DOES_NOT_FIT


def _name(values: Mapping[str, Any]) -> str:
    """The model that is meant.

    Raises:
        UsageError: none, or two.
    """
    word, option = values.get("model_argument"), values.get("model")
    if word is not None and option is not None:
        raise UsageError(f"the model is given twice: {word[:96]!r} and --model", hint="give it once")
    name = option if word is None else word
    if name is None:
        raise UsageError("no model is given", hint="name one: kvtax gguf org/name-GGUF, or kvtax gguf ./models")
    return str(name)


def _fields(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fields of the deployment, None where no card is named.

    Raises:
        UsageError: a context or a number of requests without a card.
    """
    cards = values.get("gpu") or ()
    if len(cards) > 1:
        raise UsageError("several cards are given", hint="name one; rtx-4090+rtx-3060 are two that work together")
    if not cards and values.get("vram") is None:
        for name, flag in (("max_model_len", "--context"), ("concurrency", "--concurrency")):
            if values.get(name) is not None:
                raise UsageError(f"{flag} goes with a card", hint="name one: -g rtx-4090, or its memory: --vram 24GiB")
        return None
    return {name: values.get(name) for name in _FIELDS} | {"gpu": cards[0] if cards else None}


_GPU = CARD_OPTIONS[0]._replace(
    help="A card, such as rtx-4090; a+b: together (files on this disk only). Left out: sizes alone."
)
_VRAM = next(option for option in CARD_OPTIONS if option.name == "vram")
_CONTEXT = LOAD_OPTIONS[0]._replace(help="Longest request in tokens: 8192, 8k, 128k [8k, or the model's limit].")
COMMAND = Command(
    "gguf",
    "The GGUF quantisations that a repository or a folder offers, the smallest first: size, bits per weight, and on a card whether llama.cpp "
    "fits with all layers on it, and the longest context that it leaves room for.\n\n"
    "Nothing is downloaded: one request lists a repository, one more reads a header where a card is named. Files on this disk are each read "
    "by their header, and sized exactly.\n\n"
    "Exit code: 0; with a card 1 where none fits.",
    (
        Argument(
            "model_argument",
            "MODEL",
            "org/name-GGUF[@revision][:quantisation] on the hub, path of a folder or file, or lmstudio:publisher/repository.",
        ),
    ),
    (
        MODEL._replace(help="The same as MODEL."),
        OFFLINE,
        _GPU,
        _VRAM,
        _CONTEXT,
        LOAD_OPTIONS[1],
        CATALOGUE,
        *PAGE_OPTIONS,
    ),
    (
        ("what a repository offers", "kvtax gguf bartowski/Meta-Llama-3.1-8B-Instruct-GGUF"),
        (
            "the largest that fits a card at 32k tokens",
            "kvtax gguf bartowski/Meta-Llama-3.1-8B-Instruct-GGUF -g rtx-4090 --context 32k",
        ),
        ("files on this disk, for a program", "kvtax gguf ./models -g rtx-3060 --json"),
    ),
    run,
)
