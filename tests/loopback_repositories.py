"""Repositories for the hub on loopback: made by hand, or with the real shapes of tests/data/checkpoints (weights are never there)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

from loopback_http import BLOCK_BYTES, Zeros

CHECKPOINTS = Path(__file__).parent / "data" / "checkpoints"
LARGE_SUFFIXES = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".npz", ".msgpack", ".h5", ".onnx", ".model")
LARGE_BYTES = 10 * 2**20
DTYPE_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("BF16", "F16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 8),
    "F4": 4,
}


@dataclass(frozen=True)
class LazyFile:
    """A file of which only the beginning exists: the rest is zeros, made when they are read.

    Args:
        size: of the whole file [bytes].
        header: its first bytes; what follows counts as weights.
    """

    size: int
    header: bytes = b""

    def __len__(self) -> int:
        return self.size


Content = bytes | LazyFile


def chunks_of(content: Content, start: int, stop: int) -> Iterator[bytes]:
    """Bytes start to stop of a file, in blocks; those beyond the header of a lazy one as `Zeros`."""
    there = content.header if isinstance(content, LazyFile) else content
    for begin in range(start, min(stop, len(there)), BLOCK_BYTES):
        yield there[begin : min(begin + BLOCK_BYTES, stop)]
    begin = max(start, len(there))
    while begin < stop:
        yield Zeros(min(BLOCK_BYTES, stop - begin))
        begin += BLOCK_BYTES


def is_large(path: str, content: Content) -> bool:
    """Whether the hub keeps it in its store of large files."""
    return isinstance(content, LazyFile) or path.endswith(LARGE_SUFFIXES) or len(content) > LARGE_BYTES


@lru_cache(maxsize=4096)
def git_oid(content: Content) -> str:
    """The name git gives a small file: the ETag of its reply."""
    data = content if isinstance(content, bytes) else content.header + str(content.size).encode()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@lru_cache(maxsize=4096)
def large_oid(content: Content) -> str:
    """SHA-256 of a large file; of a lazy one, of its header and size (the zeros are not summed up)."""
    data = content if isinstance(content, bytes) else content.header + str(content.size).encode()
    return hashlib.sha256(data).hexdigest()


def etag(path: str, content: Content) -> str:
    """As in the header, quotes included."""
    return f'"{large_oid(content) if is_large(path, content) else git_oid(content)}"'


class Repository:
    """A model repository.

    Args:
        files: path -> content of the newest commit of `main`.
        commit: its name (40 hexadecimal digits); None for one that depends on the files.
        revisions: other branches and tags -> their files.
        private: whether only `tokens` see it.
        gated: whether only `tokens` may read its files (anyone may read the list of them, as on the real hub).
        disabled: whether the hub has taken it down.
        tokens: those with access.
        tags, pipeline_tag, library_name: of its page.
        info: more fields of the answer of /api/models, or others than the honest ones (a None takes a field away).
    """

    def __init__(
        self,
        files: Mapping[str, Content],
        *,
        commit: str | None = None,
        revisions: Mapping[str, Mapping[str, Content]] | None = None,
        private: bool = False,
        gated: Literal[False, "auto", "manual"] = False,
        disabled: bool = False,
        tokens: Iterable[str] = (),
        tags: Iterable[str] = ("transformers", "safetensors", "text-generation"),
        pipeline_tag: str | None = "text-generation",
        library_name: str | None = "transformers",
        info: Mapping[str, Any] | None = None,
    ) -> None:
        self.private, self.gated, self.disabled, self.tokens = private, gated, disabled, frozenset(tokens)
        self.tags, self.pipeline_tag, self.library_name = list(tags), pipeline_tag, library_name
        self.info = dict(info or {})
        self.snapshots: dict[str, dict[str, Content]] = {}  # commit -> files
        self.names: dict[str, str] = {}  # branch or tag -> commit
        self.push(files, commit=commit)
        for name, others in (revisions or {}).items():
            self.push(others, revision=name)

    def push(self, files: Mapping[str, Content], *, commit: str | None = None, revision: str = "main") -> str:
        """Move a branch on to new files; the old commit can still be asked for. Returns the new commit."""
        listing = "".join(f"{path}\n{etag(path, content)}\n" for path, content in sorted(files.items()))
        commit = commit or hashlib.sha1(listing.encode(), usedforsecurity=False).hexdigest()
        self.snapshots[commit] = dict(files)
        self.names[revision] = commit
        return commit

    @property
    def commit(self) -> str:
        """Where `main` stands."""
        return self.names["main"]

    @property
    def files(self) -> dict[str, Content]:
        """The files of `main`."""
        return self.snapshots[self.commit]

    def find(self, revision: str) -> tuple[str, dict[str, Content]] | None:
        """Commit and files of a branch, tag or commit."""
        commit = self.names.get(revision, revision)
        files = self.snapshots.get(commit)
        return None if files is None else (commit, files)


class Tensor(NamedTuple):
    """A tensor of a shard; dtype as safetensors writes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Size in the file [bytes]."""
        return prod(self.shape) * DTYPE_BITS[self.dtype] // 8


def safetensors_header(tensors: Iterable[Tensor], header_bytes: int | None = None) -> bytes:
    """The first bytes of a shard: length in 8 bytes (little-endian), then the JSON, padded with spaces.

    Args:
        tensors: in the order in which they lie.
        header_bytes: wished length of the JSON, without the 8 bytes; None for the next multiple of 8, as the library does.

    Raises:
        ValueError: the JSON is longer than that.
    """
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for tensor in tensors:
        end = begin + tensor.bytes
        entries[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    length = -(-len(text) // 8) * 8 if header_bytes is None else header_bytes
    if len(text) > length:
        raise ValueError(f"the header has {len(text)} bytes, more than the {length} wished for")
    return length.to_bytes(8, "little") + text.ljust(length)


def shard(tensors: Iterable[Tensor], header_bytes: int | None = None) -> LazyFile:
    """A safetensors file without its weights."""
    tensors = list(tensors)
    header = safetensors_header(tensors, header_bytes)
    return LazyFile(len(header) + sum(tensor.bytes for tensor in tensors), header)


def shard_name(number: int, shards: int) -> str:
    """Name of a shard, counted from 1."""
    return "model.safetensors" if shards == 1 else f"model-{number:05d}-of-{shards:05d}.safetensors"


def files_of_tensors(
    tensors: Iterable[Tensor], shards: int = 1, header_bytes: Mapping[int, int] | None = None
) -> dict[str, Content]:
    """Shards of about the same size (tensors stay in order, none is empty), and the index where there are several.

    Args:
        tensors: of the model.
        shards: how many files.
        header_bytes: shard (from 1) -> wished length of its JSON [bytes].
    """
    left = list(tensors)
    total_bytes = bytes_left = sum(tensor.bytes for tensor in left)
    files: dict[str, Content] = {}
    weight_map: dict[str, str] = {}
    for number in range(1, shards + 1):
        later = shards - number
        taken, taken_bytes = 1, left[0].bytes
        while len(left) - taken > later and (
            later == 0 or taken_bytes + left[taken].bytes / 2 < bytes_left / (later + 1)
        ):
            taken_bytes += left[taken].bytes
            taken += 1
        name = shard_name(number, shards)
        files[name] = shard(left[:taken], (header_bytes or {}).get(number))
        weight_map.update((tensor.name, name) for tensor in left[:taken])
        left, bytes_left = left[taken:], bytes_left - taken_bytes
    if shards > 1:
        index = {"metadata": {"total_size": total_bytes}, "weight_map": dict(sorted(weight_map.items()))}
        files["model.safetensors.index.json"] = json.dumps(index, indent=2).encode()
    return files


@lru_cache(maxsize=32)
def checkpoint(name: str) -> dict[str, Any]:
    """A file of tests/data/checkpoints."""
    found: dict[str, Any] = json.loads((CHECKPOINTS / name).read_text(encoding="utf-8"))
    return found


def _layers(name: str, count: int, most: int, config: dict[str, Any]) -> list[int]:
    """Which layers hold a tensor that only some of them hold, by what the layers of that family are like."""
    if count == most:
        return list(range(most))
    interval = config.get("full_attention_interval")
    if interval and ("linear_attn." in name or "self_attn." in name):
        full = "self_attn." in name
        return [layer for layer in range(most) if ((layer + 1) % interval == 0) == full]
    dense_first = config.get("first_k_dense_replace", 0)
    if count == dense_first:
        return list(range(count))
    return list(range(most - count, most))  # the experts after the dense layers; what only the MTP layers hold


@lru_cache(maxsize=32)
def tensors_of_checkpoint(name: str) -> tuple[Tensor, ...]:
    """Every tensor by its full name: the stars of the list become numbers of layers and experts; in layers' order."""
    found = checkpoint(name)
    config = {**found["config"], **found["config"].get("text_config", {})}
    experts = next(
        (config[key] for key in ("n_routed_experts", "num_experts", "num_local_experts") if key in config), 1
    )
    counts: dict[str, int] = {}  # prefix of the first star -> layers
    for entry in found["tensors"]:
        prefix, _, rest = entry["name"].partition("*")
        counts[prefix] = max(counts.get(prefix, 1), entry["count"] // (experts if "*" in rest else 1))
    placed: list[tuple[str, int, int, Tensor]] = []
    for entry in found["tensors"]:
        prefix, star, rest = entry["name"].partition("*")
        each = experts if "*" in rest else 1
        layers = _layers(entry["name"], entry["count"] // each, counts[prefix], config) if star else [0]
        for layer in layers:
            for expert in range(each):
                full = f"{prefix}{layer}{rest.replace('*', str(expert))}" if star else prefix
                placed.append(
                    (prefix if star else "", layer, expert, Tensor(full, entry["dtype"], tuple(entry["shape"])))
                )
    placed.sort(key=lambda item: item[:3])
    return tuple(item[3] for item in placed)


def repository_from_checkpoint(
    name: str,
    shards: int = 4,
    *,
    header_bytes: Mapping[int, int] | None = None,
    files: Mapping[str, Content] | None = None,
    **options: Any,
) -> Repository:
    """A repository like that of a real model: configs, shards without weights, index, and files that nobody needs to read.

    Args:
        name: file of tests/data/checkpoints.
        shards: 1 for a single model.safetensors.
        header_bytes: shard (from 1) -> wished length of its JSON [bytes].
        files: more files, or others in place of those.
        options: of Repository.
    """
    found = checkpoint(name)
    parameters: dict[str, int] = {}
    for tensor in tensors_of_checkpoint(name):
        parameters[tensor.dtype] = parameters.get(tensor.dtype, 0) + prod(tensor.shape)
    options.setdefault("info", {"safetensors": {"parameters": parameters, "total": sum(parameters.values())}})
    return Repository(
        {
            ".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n",
            "README.md": b"---\nlibrary_name: transformers\n---\n# A model\n",
            "config.json": json.dumps(found["config"], indent=2).encode(),
            "generation_config.json": b'{"max_new_tokens": 2048}\n',
            "tokenizer.json": LazyFile(17_209_920, b"{"),
            "tokenizer_config.json": b'{"model_max_length": 8192}\n',
            **files_of_tensors(tensors_of_checkpoint(name), shards, header_bytes),
            **(files or {}),
        },
        **options,
    )


def repository_of_200_shards(**options: Any) -> Repository:
    """723 tensors of a 70B model in 200 files."""
    return repository_from_checkpoint("meta-llama--Llama-3.1-70B.json", 200, **options)
