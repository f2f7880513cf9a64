"""A model in a folder on this disk: config and headers, whatever mix of files lies there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kvtax.errors import ConfigError, InputError, KvtaxError
from kvtax.safe_text import safe
from kvtax.sources.byte_source import LocalFile
from kvtax.sources.folder import Contents, scan
from kvtax.sources.found import Found, read_limits, with_old_quantization
from kvtax.sources.gguf_folder import pick
from kvtax.sources.gguf_model import read_shards
from kvtax.sources.local import index_total_bytes, read_bytes
from kvtax.sources.safe_json import parse_json
from kvtax.sources.safetensors import MAXIMUM_TENSORS, FileTensor, Header, read_header
from kvtax.sources.safetensors_index import MAXIMUM_INDEX_BYTES, Index, compare, read_index
from kvtax.terms import Notice
from kvtax.units import format_bytes


def read_folder(path: str, wanted: str = "", *, model: str = "", place: str = "") -> Found:
    """What a folder says of the model in it.

    Args:
        path: of the folder.
        wanted: a GGUF quantisation or file, where it holds several.
        model: how it is called, the path where not given.
        place: where it lies, in words.

    Raises:
        ConfigError: it holds no model (`no-config`, with what it holds instead), or a file of it is wrong.
        UnknownNameError: no such quantisation, or several and none is named.
    """
    shown = safe(path)
    contents = scan(path)
    base = Found(model or shown, place or f"folder {shown}")
    if wanted or (contents.format == "gguf" and "config.json" not in contents.configs):
        return _gguf(base, path, contents, wanted)
    if "config.json" not in contents.configs:
        raise ConfigError(
            f"this directory holds no config.json: it is {contents.what}",
            code="no-config",
            where=shown,
            hint=_advice(contents),
        )
    read: dict[str, dict[str, Any]] = {}
    notices: list[Notice] = []
    for name in contents.configs:
        if name in _READ:
            file = os.path.join(path, name)
            read[name], more = parse_json(read_bytes(file, safe(file)), safe(file))
            notices += more if name == "config.json" else ()
    config = with_old_quantization(read["config.json"], read.get("quantize_config.json"), read.get("quant_config.json"))
    base = base._replace(
        config=config,
        quant_config=read.get("hf_quant_config.json"),
        runner="pooling" if contents.sentence_transformers else None,
        limits=read_limits(read.get("generation_config.json", {})),
        notices=tuple(notices),
    )
    return _with_weights(base, path, contents)


_READ = ("config.json", "hf_quant_config.json", "quantize_config.json", "quant_config.json", "generation_config.json")


def _advice(contents: Contents) -> str:
    """What to do with a folder that is no model."""
    if contents.kind == "adapter":
        return "name the model that it adapts, and the adapter with --lora"
    if contents.kind == "mistral":
        return "kvtax reads the config.json of the same model in Hugging Face's layout"
    return "pass the folder that holds config.json beside the weights, or a GGUF file"


# ---- safetensors ----


def _with_weights(found: Found, path: str, contents: Contents) -> Found:
    """With the headers of the weights where they are all here; else the config alone counts, and a notice says why."""
    index: Index | None = None
    if contents.needs_index:
        file = os.path.join(path, contents.index_file)
        index = read_index(LocalFile(file).read(0, MAXIMUM_INDEX_BYTES + 1), safe(file))
        contents = scan(path, index.files)
    if contents.format and contents.format != "safetensors":
        return _by_size(found, contents)
    if contents.missing:
        return _add(found._replace(sized_bytes=index.total_bytes if index else None), _missing(contents, index))
    if not contents.weights:
        return found._replace(sized_bytes=index_total_bytes(path))
    headers: dict[str, Header] = {}
    count = 0
    for name in contents.weights:
        headers[name] = read_header(LocalFile(os.path.join(path, name)))
        count = add_tensors(count, headers[name], safe(path))
    return with_headers(found, headers, index)


def add_tensors(count: int, header: Header, where: str) -> int:
    """Tensors of all files so far.

    Raises:
        ConfigError: more than any model has (`too-many-tensors`): a bound on memory, however many files claim however much.
    """
    total = count + len(header.tensors)
    if total > MAXIMUM_TENSORS:
        raise ConfigError(f"more than {MAXIMUM_TENSORS:,} tensors", code="too-many-tensors", where=where)
    return total


def with_headers(found: Found, headers: Mapping[str, Header], index: Index | None) -> Found:
    """With the tensors of all headers, and what index and headers say of each other."""
    notices = [*found.notices]
    if index is not None:
        notices += compare(index, headers)
    for header in headers.values():
        notices += header.notices
    tensors: list[FileTensor] = []
    for header in headers.values():
        tensors += header.tensors
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise ConfigError(
            "two files hold one tensor",
            code="duplicate-tensor",
            where=found.id,
            hint="are these the shards of one model?",
        )
    count = len(headers)
    words = f"header of {next(iter(headers))}" if count == 1 else f"headers of {count} safetensors files"
    return found._replace(tensors=tuple(tensors), weights=safe(words), notices=tuple(dict.fromkeys(notices)))


def _missing(contents: Contents, index: Index | None) -> Notice:
    total = None if index is None else index.total_bytes
    said = "" if total is None else f"; the index says {format_bytes(total)}"
    return Notice(
        "weights-incomplete",
        f"{len(contents.missing)} of {len(contents.missing) + len(contents.weights)} weight files are not here: the config counts the "
        f"weights{said}",
    )


def _by_size(found: Found, contents: Contents) -> Found:
    size = contents.bytes
    if size is None:
        return found
    kind = {"gguf": "GGUF files"}.get(contents.format, f"{contents.format} files")
    message = f"weights are in {safe(kind, 64)}, which are never opened: {format_bytes(size)} by their sizes; the config counts them"
    return _add(found._replace(sized_bytes=size), Notice("weights-by-size", message))


def _add(found: Found, notice: Notice) -> Found:
    return found._replace(notices=(*found.notices, notice))


# ---- GGUF ----


def _gguf(found: Found, path: str, contents: Contents, wanted: str) -> Found:
    """The quantisation that is meant, the only one where none is named."""
    choices = contents.gguf.choices
    if not choices:
        raise ConfigError("this directory holds no GGUF file", code="no-gguf", where=safe(path))
    if wanted or len(choices) == 1:
        choice = pick(choices, wanted or choices[0].label)
    else:
        raise InputError(
            f"holds {len(choices)} quantisations: " + ", ".join(described(contents.gguf.choices)),
            code="ambiguous-quantization",
            hint=f"name one: {safe(path, 96)}:{choices[0].label}; kvtax gguf {safe(path, 96)} -g CARD says which fit",
            where=safe(path),
        )
    projector = next(iter(contents.gguf.projectors), "")
    return read_gguf_files(found, [os.path.join(path, name) for name in choice.files], choice.label,
                           os.path.join(path, projector) if projector else "")  # fmt: skip


def described(choices: tuple[Any, ...], most: int = 12) -> list[str]:
    """Quantisations with their sizes, the smallest first."""
    shown = [f"{one.label} ({format_bytes(one.bytes)})" if one.bytes else one.label for one in choices[:most]]
    return [*shown, f"and {len(choices) - most} more"] if len(choices) > most else shown


def read_gguf_files(found: Found, paths: list[str], label: str, projector: str = "") -> Found:
    """The model of GGUF files on this disk, and the projector beside it."""
    file = read_shards(paths, LocalFile)
    count = len(paths)
    words = f"header of {os.path.basename(paths[0])}" if count == 1 else f"headers of {count} GGUF shards"
    found = found._replace(gguf=file, label=label, weights=safe(words))
    return with_projector(found, projector)


def with_projector(found: Found, path: str) -> Found:
    """With the size of the projector beside a model."""
    if not path:
        return found
    try:
        size = LocalFile(path).size
    except KvtaxError:
        return found
    message = f"the projector {safe(os.path.basename(path), 96)} beside it is counted: {format_bytes(size)}"
    return _add(
        found._replace(settings={**found.settings, "mmproj_bytes": size}),
        Notice("mmproj-beside", message, "--mmproj-bytes 0 leaves it out"),
    )
