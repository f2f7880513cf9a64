"""From a model's name to its Architecture: catalogue, path, store, hub, or a config at hand."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.registry import read_architecture
from kvtax.errors import KvtaxError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults
from kvtax.sources.models import ModelEntry, find_model, read_config, read_quant_config
from kvtax.sources.places import Place, place_elsewhere, place_of
from kvtax.terms import Notice
from kvtax.units import format_bytes

COUNTED = "worked out from config.json"


class Model(NamedTuple):
    """A model that was found.

    Args:
        id: hub id, path, or `(config)` for a config that was handed over.
        source: where its config comes from, in words.
        architecture: what it is.
        entry: its place in the catalogue, None outside it.
        notices: what the reader should know about the config.
        weights_source: where the bytes of its weights are known from, in words.
        runner: `pooling` where vLLM takes that runner by itself.
        limits: of what is generated, as generation_config.json sets them [tokens].
        settings: fields of a deployment that come with the model (the projector's bytes, Ollama's num_ctx).
    """

    id: str
    source: str
    architecture: Architecture
    entry: ModelEntry | None
    notices: tuple[Notice, ...]
    weights_source: str = COUNTED
    runner: str | None = None
    limits: Mapping[str, int] = {}
    settings: Mapping[str, int] = {}


_FOUND: dict[str, Model] = {}
GIVEN: dict[str, Model | KvtaxError] = {}
"""What was looked up beforehand, in another process it may be (`sources.beforehand`): these names are looked up nowhere."""


def find(model: str | Mapping[str, Any] | Model, extra: Sequence[ModelEntry] = ()) -> Model:
    """The model of a name (alias, hub id, path, `ollama:name`) or of a parsed config; one that was found is itself.

    Raises:
        UnknownNameError: no such name.
        SourceError: it cannot be had from where it is.
        ConfigError: a config or a header that cannot be read.
        UnsupportedArchitectureError: a config that is not understood.
    """
    if isinstance(model, Model):
        return model
    if not isinstance(model, str):
        architecture = read_architecture(model, class_defaults)
        code = _about_code(model)
        return Model("(config)", "the config that was given", architecture, None, (*code, *_about(architecture)))
    if model in GIVEN:
        given = GIVEN[model]
        if isinstance(given, KvtaxError):
            raise given.with_traceback(None)
        return given
    place = place_of(model)
    if place is not None:
        return _of_place(place)
    if not extra and model in _FOUND:
        return _FOUND[model]
    try:
        entry = find_model(model, extra)
    except KvtaxError as error:
        return _of_place(place_elsewhere(model, error))
    found = _read_facts(model, entry) if entry.facts else of_entry(model, entry, extra)
    if not extra and len(_FOUND) < 512:
        _FOUND[model] = found
    return found


def _of_place(place: Place) -> Model:
    """What lies at a place outside the catalogue."""
    from kvtax.sources.found_model import model_of
    from kvtax.sources.recent import read_once

    return read_once(place.name, lambda: model_of(place.read()), place.folder)


def _read_facts(name: str, entry: ModelEntry) -> Model:
    """A user's own model, from the facts that were read of it when it was added."""
    from kvtax.sources.found_json import read_facts
    from kvtax.sources.found_model import model_of
    from kvtax.sources.recent import read_once

    path = entry.facts or ""
    return of_facts(name, entry, read_once(path, lambda: model_of(read_facts(path)), os.path.dirname(path)))


def of_facts(name: str, entry: ModelEntry, found: Model) -> Model:
    """A user's own model, of what its facts file holds."""
    notices = (*found.notices, *_about_hidden(name))
    source = f"catalogue: {entry.source}, as read from {found.source}"
    return found._replace(id=entry.id, source=source, entry=entry, notices=notices)


def of_entry(model: str, entry: ModelEntry, extra: Sequence[ModelEntry]) -> Model:
    """A model of the catalogue, from its config."""
    try:
        architecture = read_architecture(
            read_config(entry), class_defaults, extra_quantization=read_quant_config(entry)
        )
    except UnsupportedArchitectureError as error:
        published = None if entry.parameters is None else 2 * entry.parameters
        raise with_weights(error, published, "published parameters in 16 bit") from None
    about = [*about_entry(entry), *_about(architecture)]
    if entry in extra:
        about += _about_hidden(model)
    return Model(entry.id, f"catalogue: {entry.source}", architecture, entry, tuple(about), runner=entry.runner)


def with_weights(error: UnsupportedArchitectureError, size: int | None, source: str) -> UnsupportedArchitectureError:
    """The same error, with the weights alone in its hint where they can be known."""
    if size is None:
        return error
    hint = f"weights alone: {size} bytes = {format_bytes(size)} ({source}); no KV, so no budget"
    return UnsupportedArchitectureError(error.message, hint=hint, where=error.where)


def about_entry(entry: ModelEntry) -> list[Notice]:
    """What the reader should know of a config of the catalogue that is no real file."""
    if entry.kind == "reconstructed":
        note = entry.parameters_note
        count = "equals the published total" if note.startswith("equal") else f"beside the published total: {note}"
        message = f"the config was put together from published dimensions and is not the real file; its parameter count {count}"
        return [Notice("reconstructed-config", message, "pass the path of the real config.json to be sure of the rest")]
    return []


def _about_hidden(name: str) -> list[Notice]:
    """What an entry of one's own hides, where the catalogue has the same name."""
    try:
        hidden = find_model(name)
    except KvtaxError:
        return []
    return [Notice("own-model", f"{name[:96]!r} is your own entry and hides the catalogue's {hidden.id}")]


CODE_KEYS = ("auto_map", "trust_remote_code")


def _about_code(config: Mapping[str, Any]) -> list[Notice]:
    """Keys that would run code from the model's repository in other tools."""
    named = [key for key in CODE_KEYS if config.get(key)]
    if not named:
        return []
    return [
        Notice("remote-code", f"{' and '.join(named)} in the config: code of the repository is never fetched or run")
    ]


def about(config: Mapping[str, Any] | None, architecture: Architecture) -> tuple[Notice, ...]:
    """What the reader should know of a config outside the catalogue, and of what was made of it."""
    return (*_about_code(config or {}), *_about(architecture))


def _about(architecture: Architecture) -> tuple[Notice, ...]:
    notices = list(architecture.notices)
    if architecture.defaults_used:
        # a flag that is off by default changes nothing that a reader would look for
        shown = [
            f"{key}={value}"
            for key, value in architecture.defaults_used.items()
            if value is not False and isinstance(value, (int, float, str))
        ]
        if shown:
            text = ", ".join(shown[:8]) + (" ..." if len(shown) > 8 else "")
            notices.append(
                Notice("class-defaults", f"keys that the config leaves out take their class default: {text}")
            )
    if not architecture.dtype_stated:
        notices.append(
            Notice("dtype-assumed", f"the config states no dtype: {architecture.dtype} is assumed", "give --dtype")
        )
    return tuple(notices)
