"""The catalogue of models in `configs/models/`: real config.json files and an index of their names.

Looking a model up reads the index; its config is read apart, by `read_config`.
"""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from kvtax.errors import UnknownNameError
from kvtax.sources.data_files import configs_dir, read_json

_SEPARATORS = str.maketrans({" ": None, "-": None, "_": None, ":": None})
_cache: dict[str, Any] = {}


class ModelEntry(NamedTuple):
    """A model whose config.json is at hand."""

    id: str
    file: str
    """The config, relative to `configs/models/`; the full path where it is a user's own; '' where it is inline."""
    kind: str
    """`published` (a real file), `reconstructed` (put together from published dimensions), or `user`."""
    source: str
    licence: str | None = None
    """Of the project that republishes the config; the model itself is under its maker's."""
    parameters: int | None = None
    """The total published for the checkpoint, if any; `parameters_note` compares it with the config's own count."""
    parameters_note: str = ""
    aliases: tuple[str, ...] = ()
    model_type: str | None = None
    config_from: str | None = None
    """The model of the same shapes whose config stands in for this one's own."""
    overrides: dict[str, Any] | None = None
    """Top-level keys in which this model differs from the one in `config_from`."""
    quant_file: str | None = None
    """The hf_quant_config.json that goes with it, relative to `configs/models/`."""
    config: dict[str, Any] | None = None
    runner: str | None = None
    """`pooling` where the repository holds Sentence Transformers' modules.json, by which vLLM takes that runner by itself."""
    facts: str | None = None
    """The facts file of a user's own entry, in place of a config: the full path."""


def find_model(name: str, extra: Sequence[ModelEntry] = ()) -> ModelEntry:
    """The model with this hub id, alias or bare repository name (case does not matter); entries of `extra` come first.

    Raises:
        UnknownNameError: nothing is called so (`unknown-model`), or several are (`ambiguous-model`).
    """
    wanted = name.strip().lower()
    for entry in extra:
        if wanted == entry.id.lower() or wanted in entry.aliases:
            return entry
    data = _index()
    found = data["names"].get(wanted)
    if found is not None:
        return _entry(found)
    bare = [row for row in data["rows"] if row["id"].lower().rpartition("/")[2] == wanted]
    if not bare and "/" not in wanted:
        loose = _loose(wanted)
        bare = [row for row in data["rows"] if loose in map(_loose, row["aliases"])]
        bare = bare or [row for row in data["rows"] if loose == _loose(row["id"].lower().rpartition("/")[2])]
    if len(bare) == 1:
        return _entry(bare[0])
    if bare:
        ids = [row["id"] for row in bare]
        raise UnknownNameError(
            f"{name.strip()[:96]!r} is more than one model: {', '.join(ids)}",
            code="ambiguous-model",
            suggestions=ids,
            hint="name one of them",
        )
    raise _not_found(name.strip(), wanted, extra)


def list_models() -> tuple[ModelEntry, ...]:
    """Every model of the catalogue, by id."""
    return tuple(map(_entry, _index()["rows"]))


def search_models(query: str) -> tuple[ModelEntry, ...]:
    """The models whose id, aliases or model type contain every word of `query`."""
    words = [_loose(word) for word in query.lower().split()]
    found = []
    for row in _index()["rows"]:
        text = " ".join((row["id"], *row["aliases"], row["model_type"] or "")).lower()
        text = f"{text} {text.translate(_SEPARATORS)}"
        if all(word in text for word in words):
            found.append(_entry(row))
    return tuple(found)


def catalogue_date() -> str:
    """The day the catalogue was gathered."""
    return str(_index()["date"])


def read_config(entry: ModelEntry) -> dict[str, Any]:
    """The config.json of a model, with the keys in which it differs from its twin put in.

    Raises:
        ConfigError: a user's own file that cannot be read.
        SourceError: a file of the catalogue that cannot be read.
    """
    if entry.config is not None:
        config = entry.config
    elif entry.kind == "user":
        config = _read_user_config(entry.file)
    else:
        config = read_json(os.path.join(configs_dir(), "models", entry.file))
    return {**config, **(entry.overrides or {})}


def read_quant_config(entry: ModelEntry) -> dict[str, Any] | None:
    """The hf_quant_config.json that goes with a model, or None.

    Where it lists every expert of a layer apart and all are alike, the catalogue writes `experts.*`.
    """
    if entry.quant_file is None:
        return None
    quant_config: dict[str, Any] = read_json(os.path.join(configs_dir(), "models", entry.quant_file))
    return quant_config


def _index() -> dict[str, Any]:
    if not _cache:
        data = read_json(os.path.join(configs_dir(), "models", "index.json"))
        rows = data["models"]
        names = {row["id"].lower(): row for row in rows}
        for row in rows:
            for alias in row["aliases"]:
                names.setdefault(alias, row)
        _cache.update(rows=rows, names=names, absent=data["absent"], date=data["date"])
    return _cache


def _entry(row: dict[str, Any]) -> ModelEntry:
    return ModelEntry(**{**row, "aliases": tuple(row["aliases"])})


def _loose(name: str) -> str:
    return name.translate(_SEPARATORS)


def hub_id_of(name: str) -> str:
    """The repository on the hub that a name means: one that the catalogue knows of without having it, or `org/name`; '' for none."""
    from kvtax.sources.hub.names import looks_like_hub_name

    known = _index()["absent"].get(name.strip().lower(), "")
    return str(known) or (name.strip() if looks_like_hub_name(name.strip()) else "")


def close_ids(name: str) -> list[str]:
    """Hub ids of the catalogue that are spelt nearly like a name."""
    from difflib import get_close_matches

    known = {row["id"].lower(): row["id"] for row in _index()["rows"]}
    wanted = name.lower().partition("@")[0].partition(":")[0][:192]
    return [known[match] for match in get_close_matches(wanted, known, n=3, cutoff=0.8)]


def _not_found(name: str, wanted: str, extra: Sequence[ModelEntry]) -> UnknownNameError:
    from difflib import get_close_matches

    data = _index()
    ids = {row["id"].lower().rpartition("/")[2]: row["id"] for row in data["rows"]}
    ids.update((known, row["id"]) for known, row in data["names"].items())
    ids.update((known, entry.id) for entry in extra for known in (entry.id.lower(), *entry.aliases))
    closest_by_id: dict[str, str] = {}
    begun = sorted((known for known in ids if wanted and known.startswith(wanted)), key=len)
    for match in (*begun, *get_close_matches(wanted[:96], ids, n=12, cutoff=0.0)):
        closest_by_id.setdefault(ids[match], match)
    suggestions = list(closest_by_id.values())[:3]
    closest = f"did you mean {', '.join(suggestions)}? " if suggestions else ""
    return UnknownNameError(
        f"no model is called {name[:96]!r}",
        code="unknown-model",
        suggestions=suggestions,
        hint=f"{closest}A model is an alias, a hub id such as Qwen/Qwen3-8B, a path, or ollama:NAME",
    )


def _read_user_config(path: str) -> dict[str, Any]:
    from kvtax.sources.local import read_bytes
    from kvtax.sources.safe_json import parse_json

    config, _ = parse_json(read_bytes(path, path), path)
    return config
