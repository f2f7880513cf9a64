"""What words on a command line stand for: a config on stdin, sizes with a letter, a catalogue of one's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kvtax.cli.exits import UsageError
from kvtax.cli.options import Option
from kvtax.errors import InputError
from kvtax.terms import Notice

if TYPE_CHECKING:
    from kvtax.hardware.gpu import Gpu
    from kvtax.sources.models import ModelEntry

_LETTERS = ("k", "m", "g", "t")


def read_stdin_model() -> tuple[dict[str, Any], list[Notice]]:
    """The config.json on standard input, read strictly and no further than a config may be long.

    Raises:
        InputError: stdin is a terminal (`no-input`).
        ConfigError: what comes is not a config.
    """
    from kvtax.sources.safe_json import MAXIMUM_CONFIG_BYTES, parse_json

    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or sys.stdin.isatty():
        raise InputError(
            "no config comes on standard input", code="no-input", hint="pipe one in: kvtax budget - < config.json"
        )
    return parse_json(stream.read(MAXIMUM_CONFIG_BYTES + 1), "stdin")


def read_model(fields: dict[str, Any], values: Mapping[str, Any]) -> list[Notice]:
    """Put the model of the first word or of --model into `fields`; what is to be said about a config on stdin.

    Raises:
        UsageError: it is given twice.
    """
    word = values.get("model_argument")
    if word is not None and fields.get("model") is not None:
        raise UsageError(f"the model is given twice: {word[:96]!r} and --model", hint="give it once")
    if word is not None:
        fields["model"] = word
    if fields.get("model") != "-":
        return []
    fields["model"], notices = read_stdin_model()
    return notices


def size_notices(values: Mapping[str, Any], options: Iterable[Option]) -> list[Notice]:
    """A notice for each size that ends in a bare letter, with the number taken."""
    from kvtax.units import format_bytes, parse_bytes, parse_tokens

    notices = []
    for option in options:
        text = values.get(option.name)
        if (
            option.metavar not in ("SIZE", "TOKENS", "N")
            or not isinstance(text, str)
            or text.strip()[-1:].lower() not in _LETTERS
        ):
            continue
        flag = next(flag for flag in option.flags if flag.startswith("--"))
        if option.metavar == "SIZE":
            size = parse_bytes(text, flag)
            taken = f"{size:,} bytes ({format_bytes(size)})"
        else:
            taken = f"{parse_tokens(text, flag):,}"
        notices.append(Notice("size-taken", f"{flag} {text.strip()} is taken as {taken}"))
    return notices


def read_catalogue(values: Mapping[str, Any]) -> tuple[tuple[ModelEntry, ...], tuple[Gpu, ...]]:
    """The models and cards of --catalogue, else of the nearest kvtax.toml.

    Raises:
        InputError: the file cannot be read or is wrong.
    """
    given = values.get("catalogue")
    path = given
    if path is None:
        path = _nearest()
        if path is None:
            return (), ()
    from kvtax.sources.user_catalogue import load_catalogue

    models, gpus = load_catalogue(path)
    if given is not None and not models and not gpus:
        raise InputError(
            "holds no [[model]] and no [[gpu]] table",
            code="empty-catalogue",
            where=path,
            hint="see `Entries of your own` in README",
        )
    return models, gpus


def _nearest() -> str | None:
    from kvtax.sources.user_catalogue import find_kvtax_toml

    try:
        return find_kvtax_toml(os.getcwd())
    except OSError:
        return None
