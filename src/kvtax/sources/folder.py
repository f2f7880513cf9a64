"""What a model directory or a repository holds, by names and sizes: its configs, and which of its weight files are the model.

Source: transformers modeling_utils (model.safetensors, else its index, before pytorch_model.bin, before tf_model.h5 and
    flax_model.msgpack); vLLM model_executor/model_loader/default_loader.py and weight_utils.py (safetensors before .bin; what
    the index does not name is passed over; optimizer, scheduler, scaler and training_args are no weights); mistral-inference
    (consolidated*.safetensors beside params.json); diffusers (model_index.json); peft (adapter_config.json).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kvtax.errors import ConfigError
from kvtax.safe_text import safe
from kvtax.sources.gguf_folder import MAXIMUM_NAME_CHARACTERS, GgufFiles, sort_gguf
from kvtax.sources.listing import FILE, FOLDER, MAXIMUM_ENTRIES, OTHER, list_folder

CONFIGS = (
    "config.json", "hf_quant_config.json", "quantize_config.json", "quant_config.json", "generation_config.json", "params.json",
    "adapter_config.json", "model_index.json", "modules.json",
)  # fmt: skip
"""Files beside the weights that say something about them."""
SAFETENSORS_INDEX = "model.safetensors.index.json"
MISTRAL_INDEX = "consolidated.safetensors.index.json"

_TOKENIZER = frozenset(
    ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "tekken.json", "vocab.json", "merges.txt", "spiece.model")
)  # fmt: skip
_SHARD = re.compile(r"^(.+?)[-_.](\d{5,6})-of-(\d{5,6})(\.[A-Za-z0-9]+)$")
_TRAINING = re.compile(
    r"^(?:training_args|optimizer|scheduler|scaler|rng_state|random_states|trainer_state)|optim_states", re.IGNORECASE
)
_NO_WEIGHTS = re.compile(r"^(?:tokenizer|ggml-)|imatrix", re.IGNORECASE)
_ENDINGS = {
    ".safetensors": "safetensors", ".bin": "torch", ".pth": "torch", ".pt": "torch", ".ckpt": "torch",
    ".h5": "tensorflow", ".msgpack": "flax", ".onnx": "onnx", ".ot": "rust",
}  # fmt: skip
FORMATS = ("safetensors", "torch", "gguf", "tensorflow", "flax", "onnx", "rust")
"""Formats of weights, the one that wins first; all but safetensors and gguf are never opened."""
_USUAL = {
    "safetensors": ("model.safetensors", "model-", "consolidated"),
    "torch": ("pytorch_model.bin", "pytorch_model-", "consolidated"),
    "tensorflow": ("tf_model.h5", "tf_model-"),
    "flax": ("flax_model.msgpack", "flax_model-"),
    "onnx": ("model.onnx",),
    "rust": ("rust_model.ot",),
}
_KINDS = {
    "diffusers": "a diffusers pipeline (model_index.json): its parts are models of their own",
    "adapter": "a LoRA adapter without its base model (adapter_config.json, no config.json)",
    "model": "a model",
    "gguf": "GGUF files",
    "mistral": "a model in Mistral's own layout (params.json, no config.json)",
    "config": "a config without weights",
    "weights": "weights without a config.json",
    "tokenizer": "a tokenizer without a model",
    "training": "the state of a training run, without weights",
    "other": "no model that kvtax knows",
    "empty": "an empty folder",
}


class Contents(NamedTuple):
    """What a listing holds; names as the listing has them, not safe to show.

    Args:
        kind: `model`, `gguf`, `mistral`, `config`, `weights`, `diffusers`, `adapter`, `tokenizer`, `training`, `other` or `empty`.
        configs: the files of CONFIGS that are at the top.
        index_file: the index of the safetensors shards at the top, '' where there is none.
        format: of the weights that count: one of FORMATS, '' where there are none.
        weights: the files that are the model, in order; for `gguf` empty, as one of `gguf.choices` must be picked.
        bytes: of these files [bytes]; None where a size is not known or there are none.
        missing: shards that the numbering or the index promises and the listing lacks.
        needs_index: the index must be read to know which files count; `sort_files` takes its shards.
        left_out: weight files of this or another format that are not counted: the same model again, or none of it.
        gguf: the GGUF files, at any depth.
        unreadable: names that lead to no regular file (only a scan of a disk knows).
    """

    kind: str
    configs: tuple[str, ...]
    index_file: str
    format: str
    weights: tuple[str, ...]
    bytes: int | None
    missing: tuple[str, ...]
    needs_index: bool
    left_out: tuple[str, ...]
    gguf: GgufFiles
    unreadable: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """What this is, in words for an error."""
        return _KINDS[self.kind]

    @property
    def sentence_transformers(self) -> bool:
        """Whether Sentence Transformers' modules.json is there: an embedding or reranking model."""
        return "modules.json" in self.configs


def sort_files(files: Mapping[str, int | None], index_shards: Iterable[str] | None = None) -> Contents:
    """What the files of a folder or a repository are.

    Args:
        files: names, with folders where the listing has them, and sizes [bytes].
        index_shards: the file names in the index's `weight_map`, where it was read.

    Raises:
        ConfigError: the index names something that cannot be a shard (`invalid-shard-name`).
    """
    top = {
        name: _size(size) for name, size in files.items() if "/" not in name and len(name) <= MAXIMUM_NAME_CHARACTERS
    }
    gguf = sort_gguf(files)
    by_format: dict[str, list[str]] = {}
    for name in sorted(top):
        found = _format_of(name)
        if found:
            by_format.setdefault(found, []).append(name)
    index = next((name for name in (SAFETENSORS_INDEX, MISTRAL_INDEX) if name in top), "")
    shards = None if index_shards is None else _checked(index_shards, index)
    if gguf.choices:
        by_format["gguf"] = []
    chosen = next((one for one in FORMATS if one in by_format), "")
    weights: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    if shards is not None:
        chosen = "safetensors"
        weights = tuple(name for name in shards if name in top)
        missing = tuple(name for name in shards if name not in top)
    elif chosen:
        weights, missing = _main_set(by_format[chosen], _USUAL.get(chosen, ()))
    left_out = tuple(name for names in by_format.values() for name in names if name not in set(weights))
    sizes = [top[name] for name in weights]
    return Contents(
        _kind(top, chosen, files),
        tuple(name for name in CONFIGS if name in top),
        index,
        chosen,
        weights,
        None if None in sizes or not sizes else sum(size for size in sizes if size is not None),
        missing,
        bool(index) and shards is None and chosen == "safetensors",
        left_out,
        gguf,
    )


def scan(path: str, index_shards: Iterable[str] | None = None) -> Contents:
    """What a directory on this disk holds, GGUF files one folder down included; nothing is opened.

    Args:
        path: of the directory.
        index_shards: as for `sort_files`.

    Raises:
        ConfigError: it cannot be read (`unreadable-folder`), or holds more than 10,000 entries (`too-many-files`).
    """
    files, unreadable = list_files(path)
    return sort_files(files, index_shards)._replace(unreadable=unreadable)


def list_files(path: str) -> tuple[dict[str, int | None], tuple[str, ...]]:
    """Names and sizes of the files of a directory and of the folders in it, and the names that lead to no regular file.

    Raises:
        ConfigError: as for `scan`.
    """
    files: dict[str, int | None] = {}
    unreadable: list[str] = []
    left = MAXIMUM_ENTRIES
    top = list_folder(path, left)
    left -= len(top)
    for entry in top:
        if entry.kind == FILE:
            files[entry.name] = entry.size
        elif entry.kind == OTHER:
            unreadable.append(entry.name)
    for folder in (entry.name for entry in top if entry.kind == FOLDER and not entry.name.startswith(".")):
        try:
            inside = list_folder(os.path.join(path, folder), left)
        except ConfigError as error:
            if error.code == "too-many-files":
                raise ConfigError(
                    f"holds more than {MAXIMUM_ENTRIES:,} entries", code=error.code, where=safe(path)
                ) from None
            unreadable.append(folder)
            continue
        left -= len(inside)
        files.update((f"{folder}/{entry.name}", entry.size) for entry in inside if entry.kind == FILE)
    return files, tuple(unreadable)


def _format_of(name: str) -> str:
    """The format of a weight file at the top; '' for what is none."""
    if _TRAINING.search(name) or _NO_WEIGHTS.search(name) or name.startswith("adapter_model"):
        return ""
    return _ENDINGS.get(os.path.splitext(name)[1].lower(), "")


def _checked(index_shards: Iterable[str], index: str) -> tuple[str, ...]:
    """The shards that an index names, each once and in order: names of files beside it, nothing else."""
    names = sorted(set(index_shards))
    for name in names:
        plain = not set("/\\\0") & set(name) and len(name) <= MAXIMUM_NAME_CHARACTERS
        if not (plain and name.endswith(".safetensors") and name != ".safetensors"):
            raise ConfigError(
                f"names {safe(name, 96)!r} as a shard, which is not the name of a .safetensors file beside it",
                code="invalid-shard-name",
                where=index or SAFETENSORS_INDEX,
            )
    return tuple(names)


def _main_set(names: list[str], usual: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files of one format that are the model, and the shards that are missing.

    A repository may hold the model twice: whole and in shards, as the trainer's and as transformers' files, in two dtypes
    (`model.fp16.safetensors`). The names that loaders look for win, in their order; then the longest set of shards;
    then, where no name says more, all files together. vLLM without an index loads every .safetensors file: what then
    lies beside the shards (`mtp.safetensors`) is in `left_out`.
    """
    sets: dict[tuple[str, int], list[tuple[int, str]]] = {}
    whole: list[str] = []
    for name in names:
        match = _SHARD.match(name)
        if match:
            sets.setdefault((match[1], int(match[3])), []).append((int(match[2]), name))
        else:
            whole.append(name)
    for word in usual:
        if word in whole:
            return (word,), ()
        shards = [key for key in sets if key[0] == word.rstrip("-")]
        if shards:
            return _shards(max(shards, key=lambda key: (len(sets[key]), key)), sets)
    if sets:
        return _shards(max(sets, key=lambda key: (len(sets[key]), key)), sets)
    own = [name for name in whole if not name.startswith("consolidated")]
    return tuple(own or whole), ()


def _shards(
    key: tuple[str, int], sets: dict[tuple[str, int], list[tuple[int, str]]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found = dict(sorted(sets[key]))
    first = next(iter(found.values()))
    match = _SHARD.match(first)
    numbers = range(1, key[1] + 1)
    if 0 in found:  # a few writers count from zero
        numbers = range(key[1])
    missing: list[str] = []
    for number in numbers:
        if number not in found and match:
            start, width = match.start(2), len(match[2])
            missing.append(f"{first[:start]}{number:0{width}d}{first[start + width :]}")
            if len(missing) == MAXIMUM_ENTRIES:  # a name may claim 999,999 shards
                break
    return tuple(found.values()), tuple(missing)


def _kind(top: Mapping[str, int | None], chosen: str, files: Mapping[str, int | None]) -> str:
    if "model_index.json" in top:
        return "diffusers"
    if "config.json" in top:
        return "model" if chosen else "config"
    if "adapter_config.json" in top:
        return "adapter"
    if "params.json" in top and chosen in ("safetensors", "torch"):
        return "mistral"
    if chosen:
        return "gguf" if chosen == "gguf" else "weights"
    if any(name in _TOKENIZER for name in top):
        return "tokenizer"
    if any(_TRAINING.search(name) for name in top):
        return "training"
    return "other" if files else "empty"


def _size(size: object) -> int | None:
    return size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None
