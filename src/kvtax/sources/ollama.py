"""A model in Ollama's store: its manifest, the files that it is made of, and the parameters set in its Modelfile.

    {store}/manifests/{host}/{namespace}/{model}/{tag}      JSON: layers with mediaType, digest and size
    {store}/blobs/sha256-{hex}                              one file per layer

Nothing of a layer is read here but its size, and the parameters; templates, system prompts and licences never.

Source: ollama at fb30760 (v0.33.0-rc2): manifest/manifest.go, layer.go and paths.go; server/images.go GetModel (kinds of layers);
    api/types.go Options.FromMap (parameters); envconfig/config.go Var and Models; scripts/install.sh and docs/faq.mdx
    (the service's home on Linux); x/create/pipeline.go (models of safetensors). /var/lib/ollama and its subfolders are
    what distributions' own packages set.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from kvtax.architectures.config import describe
from kvtax.errors import ConfigError, SourceError, UnknownNameError
from kvtax.safe_text import safe
from kvtax.sources.byte_source import LocalFile
from kvtax.sources.listing import FILE, FOLDER, MAXIMUM_ENTRIES, list_folder, name_in_folder
from kvtax.sources.ollama_names import OllamaName, parse_ollama_name
from kvtax.sources.safe_json import parse_json
from kvtax.terms import Notice

MAXIMUM_MANIFEST_BYTES = 2**20
_MAXIMUM_PARAMETER_LAYERS = 16
_MAXIMUM_LAYER_BYTES = 2**60
_DIGEST = re.compile(r"sha256:[0-9a-fA-F]{64}")
_SERVICE_STORES = (
    "/usr/share/ollama/.ollama/models",
    "/var/lib/ollama/.ollama/models",
    "/var/lib/ollama/models",
    "/var/lib/ollama",
)
"""Where the service of a Linux machine keeps its models, which is not the home of the person who asks."""
_MEDIA = "application/vnd.ollama.image."
_INTEGERS = (
    "num_ctx",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "num_thread",
    "num_keep",
    "num_predict",
    "draft_num_predict",
)
"""Parameters that bear on memory."""


class OllamaModel(NamedTuple):
    """What a manifest names; paths are files that are there, of the size that the manifest states.

    Args:
        name: as `ollama list` shows it.
        manifest_path: of the manifest.
        model_paths: GGUF files; Ollama loads the last. Empty for a model of safetensors.
        projector_paths: GGUF files of vision or audio encoders.
        adapter_paths: LoRA adapters.
        draft_paths: models that draft tokens.
        tensor_paths: of a model of safetensors, its files (one or a few tensors each) under their names in the manifest.
        config_paths: of a model of safetensors, its JSON files under their names (`config.json` ...).
        model_bytes: of the layers of weights (model or tensors), as the manifest states them [bytes].
        parameters: integers of the Modelfile that bear on memory (`num_ctx` ...).
        notices: what else is in the manifest that changes a budget.
    """

    name: str
    manifest_path: str
    model_paths: tuple[str, ...]
    projector_paths: tuple[str, ...]
    adapter_paths: tuple[str, ...]
    draft_paths: tuple[str, ...]
    tensor_paths: Mapping[str, str]
    config_paths: Mapping[str, str]
    model_bytes: int
    parameters: dict[str, int]
    notices: tuple[Notice, ...]


class _Layer(NamedTuple):
    kind: str
    digest: str
    size: int
    name: str


def find_ollama(name: str, environment: Mapping[str, str] = os.environ) -> OllamaModel:
    """The model of a name in the first store that has it.

    Args:
        name: as on Ollama's command line: `llama3.1:8b`, `user/model`, `hf.co/org/name:Q4_K_M`.
        environment: OLLAMA_MODELS and HOME are looked at.

    Raises:
        InputError: no name of a model (`invalid-model-name`).
        UnknownNameError: not installed (`unknown-model`).
        SourceError: there is no store (`no-ollama-store`), or the model runs on Ollama's servers (`remote-model`).
        ConfigError: the manifest or what it names is wrong (`invalid-manifest`, `invalid-digest`, `missing-blob`, `size-mismatch` ...).
    """
    wanted = parse_ollama_name(name)
    stores = ollama_stores(environment)
    for store in stores:
        found = _manifest_of(store, wanted)
        if found is not None:
            actual, path = found
            return _read_model(store, actual, path)
    if not stores:
        closed = ", ".join(safe(place, 200) for place in _places(environment) if _closed(place))
        raise SourceError(
            f"this user may not look into {closed}" if closed else "there is no Ollama store on this machine",
            code="no-ollama-store",
            hint="set OLLAMA_MODELS to the folder that holds `manifests` and `blobs`",
        )
    raise _not_installed(wanted, stores, environment)


def ollama_stores(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The stores that are there: OLLAMA_MODELS alone where it is set, else the user's own and the service's."""
    return tuple(place for place in _places(environment) if _is_folder(os.path.join(place, "manifests")))


def list_ollama(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The installed names, as `ollama list` shows them; what cannot be read is passed over."""
    names: set[str] = set()
    for store in ollama_stores(environment):
        left = MAXIMUM_ENTRIES
        level: list[tuple[tuple[str, ...], str]] = [((), os.path.join(store, "manifests"))]
        for depth in range(4):
            below: list[tuple[tuple[str, ...], str]] = []
            for parts, folder in level:
                try:
                    entries = list_folder(folder, left)
                except ConfigError:
                    continue
                left -= len(entries)
                kind = FILE if depth == 3 else FOLDER
                below += [((*parts, one.name), os.path.join(folder, one.name)) for one in entries if one.kind == kind]
            level = below
        found = (OllamaName._make(parts) for parts, _ in level)
        names.update(name.shown for name in found if name.valid)
    return tuple(sorted(names))


def _places(environment: Mapping[str, str]) -> tuple[str, ...]:
    given = environment.get("OLLAMA_MODELS", "").strip().strip("\"'")
    if given:
        return (given,)
    home = environment.get("HOME") or environment.get("USERPROFILE") or os.path.expanduser("~")
    return os.path.join(home, ".ollama", "models"), *(_SERVICE_STORES if sys.platform == "linux" else ())


def _closed(place: str) -> bool:
    """Whether a store may be there that only the service's user and group can read."""
    try:
        os.stat(place)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return False


def _is_folder(path: str) -> bool:
    try:
        return os.path.isdir(path)
    except ValueError:
        return False


def _manifest_of(store: str, wanted: OllamaName) -> tuple[OllamaName, str] | None:
    """The name with the case it is installed under and the path of its manifest; None where the store lacks it."""
    path, parts = os.path.join(store, "manifests"), []
    for part in wanted:
        try:
            actual = name_in_folder(path, part)
        except ConfigError as error:
            if error.code == "too-many-files":
                raise
            return None
        if actual is None:
            return None
        parts.append(actual)
        path = os.path.join(path, actual)
    return OllamaName._make(parts), path


def _read_model(store: str, name: OllamaName, path: str) -> OllamaModel:
    where = f"ollama:{name.shown}"
    manifest, notices = _read_json(path, where)
    layers = _layers(manifest, where)
    if sum(layer.kind == "params" for layer in layers) > _MAXIMUM_PARAMETER_LAYERS:  # each is read whole
        raise ConfigError("has too many layers of parameters", code="invalid-manifest", where=where)
    config = _read_config(store, manifest, where)
    if isinstance(config.get("remote_host"), str) and config["remote_host"]:
        raise SourceError(
            f"{name.shown} runs on {safe(config['remote_host'], 96)}: there are no weights on this machine",
            code="remote-model",
            where=where,
        )
    paths: dict[str, list[str]] = {"model": [], "projector": [], "adapter": [], "draft": []}
    named: dict[str, dict[str, str]] = {"tensor": {}, "json": {}}
    parameters: dict[str, int] = {}
    for layer in layers:
        if layer.kind == "params":
            values, more = _read_json(_blob(store, layer, where), f"{where}: params")
            parameters.update(_integers(values, f"{where}: params"))
            notices += more
        elif layer.kind in named:
            named[layer.kind][layer.name] = _blob(store, layer, where)
        elif layer.kind in paths:
            paths[layer.kind].append(_blob(store, layer, where))
    weights = "model" if paths["model"] else "tensor"
    if weights == "tensor" and not named["tensor"]:
        kinds = ", ".join(sorted({layer.kind for layer in layers}))[:96] or "nothing"
        raise ConfigError(f"names no weights, only {safe(kinds)}", code="no-weights", where=where)
    return OllamaModel(
        name=name.shown,
        manifest_path=path,
        model_paths=tuple(paths["model"]),
        projector_paths=tuple(paths["projector"]),
        adapter_paths=tuple(paths["adapter"]),
        draft_paths=tuple(paths["draft"]),
        tensor_paths=named["tensor"],
        config_paths=named["json"],
        model_bytes=sum(layer.size for layer in layers if layer.kind == weights),
        parameters=parameters,
        notices=(*notices, *_about(len(paths["model"]), len(named["tensor"]), name)),
    )


def _about(models: int, tensors: int, name: OllamaName) -> list[Notice]:
    notices = []
    if models > 1:
        text = f"{name.shown} names {models} model files; Ollama loads the last"
        notices.append(Notice("several-models", text))
    if tensors:
        text = (
            f"{name.shown} is a model of safetensors ({tensors} files), which Ollama runs with MLX, not with llama.cpp"
        )
        notices.append(Notice("safetensors-model", text))
    return notices


def _read_json(path: str, where: str) -> tuple[dict[str, Any], list[Notice]]:
    data = LocalFile(path).read(0, MAXIMUM_MANIFEST_BYTES + 1)
    if len(data) > MAXIMUM_MANIFEST_BYTES:
        raise ConfigError("is larger than 1 MiB", code="file-too-large", where=where)
    return parse_json(data, where, maximum_bytes=MAXIMUM_MANIFEST_BYTES)


def _read_config(store: str, manifest: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The small JSON that says what the model is; {} where there is none, as Ollama allows."""
    config = manifest.get("config")
    if not isinstance(config, dict) or not config.get("digest"):
        return {}
    layer = _layer(config, f"{where}: config")
    return _read_json(_blob(store, layer, where), f"{where}: config")[0]


def _layers(manifest: Mapping[str, Any], where: str) -> list[_Layer]:
    layers = manifest.get("layers")
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
        raise ConfigError("`layers` is not a list of objects", code="invalid-manifest", where=where)
    return [_layer(layer, f"{where}: layers[{number}]") for number, layer in enumerate(layers)]


def _layer(layer: Mapping[str, Any], where: str) -> _Layer:
    media, digest, size, name = (layer.get(key) for key in ("mediaType", "digest", "size", "name"))
    if not isinstance(media, str) or not isinstance(name, str | None) or len(name or "") > 1024:
        raise ConfigError("`mediaType` or `name` is not a text", code="invalid-manifest", where=where)
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ConfigError(
            f"{_shown(digest)} is no digest: sha256: and 64 hexadecimal digits",
            code="invalid-digest",
            where=where,
        )
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MAXIMUM_LAYER_BYTES:
        raise ConfigError(f"`size` {_shown(size)} is no size", code="invalid-manifest", where=where)
    return _Layer(media.removeprefix(_MEDIA), digest, size, name or "")


def _shown(value: object) -> str:
    """A value for a message; what nests is only named, since writing it out may go as deep as a file is made."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return describe(value)


def _blob(store: str, layer: _Layer, where: str) -> str:
    """The file of a layer, which must be a regular one of the size that the manifest states."""
    path = os.path.join(store, "blobs", layer.digest.replace(":", "-"))
    short = f"{safe(layer.kind, 40)} blob {layer.digest[:19]}"
    if not os.path.isfile(path):
        raise ConfigError(
            f"the {short} is missing",
            code="missing-blob",
            hint=f"the download was not finished, or the blob was removed: `ollama pull {where.removeprefix('ollama:')}`",
            where=where,
        )
    actual = os.path.getsize(path)
    if actual != layer.size:
        raise ConfigError(
            f"the {short} has {actual} bytes, its manifest says {layer.size}", code="size-mismatch", where=where
        )
    return path


def _integers(values: Mapping[str, Any], where: str) -> dict[str, int]:
    """The integer parameters; a fraction is cut off and null passed over, as Ollama does."""
    found = {}
    for key in _INTEGERS:
        value = values.get(key)
        if value is None:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > 2**31:
            raise ConfigError(f"`{key}` {_shown(value)} is no 32-bit number", code="invalid-parameter", where=where)
        found[key] = int(value)
    return found


def _not_installed(wanted: OllamaName, stores: tuple[str, ...], environment: Mapping[str, str]) -> UnknownNameError:
    from difflib import get_close_matches

    names = list_ollama(environment)
    same = [name for name in names if name.partition(":")[0].lower() == wanted.shown.partition(":")[0].lower()]
    close = (same or get_close_matches(wanted.shown, names, n=3, cutoff=0.5))[:3]
    meant = f"did you mean {', '.join(close)}? Otherwise " if close else ""
    return UnknownNameError(
        f"Ollama has no model {wanted.shown!r} in {' or '.join(safe(store, 200) for store in stores)}",
        code="unknown-model",
        suggestions=close,
        hint=f"{meant}`ollama pull {wanted.shown}`, or set OLLAMA_MODELS to another store",
    )
