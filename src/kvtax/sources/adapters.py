"""LoRA adapters: what an adapter_config.json says, and what the adapter holds. Its base model is never followed, its patterns never run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import describe
from kvtax.deployment import Deployment
from kvtax.dtypes import find_dtype
from kvtax.errors import ConfigError
from kvtax.formulas.lora import adapter_elements
from kvtax.safe_text import safe
from kvtax.sources.byte_source import LocalFile
from kvtax.sources.hub.names import looks_like_hub_name, parse_hub_name
from kvtax.sources.local import read_bytes
from kvtax.sources.safe_json import MAXIMUM_CONFIG_BYTES, parse_json
from kvtax.sources.safetensors import REMOTE_HEADER_BYTES, read_header
from kvtax.terms import Notice
from kvtax.units import format_bytes

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MAXIMUM_RANK = 4096
MAXIMUM_NAMES = 65_536
MAXIMUM_NAME = 1024
_WORDS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.*")


class TensorOfFile(Protocol):
    """One tensor of a safetensors header."""

    @property
    def name(self) -> str:
        """As the file has it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[elements]."""

    @property
    def bytes(self) -> int:
        """[bytes]."""


class Adapter(NamedTuple):
    """What an adapter is.

    Args:
        rank: the highest of its modules.
        target_modules: ends of the names of the modules it adapts; empty where that is not known.
        bytes: exact from its file, else from the base model's shapes; None where neither tells [bytes].
        notices: what the reader should know.
    """

    rank: int
    target_modules: tuple[str, ...]
    bytes: int | None
    notices: tuple[Notice, ...]


def read_adapter(
    config: bytes | Mapping[str, Any],
    tensors: Sequence[TensorOfFile] | None = None,
    base: Architecture | None = None,
    *,
    where: str = CONFIG,
) -> Adapter:
    """The adapter of an adapter_config.json.

    Args:
        config: the file, or what was parsed from it.
        tensors: of adapter_model.safetensors, where its header was read.
        base: the model that it is for.
        where: name of the file, for messages.

    Returns:
        The adapter.

    Raises:
        ConfigError: not JSON, not of LoRA (`adapter-not-lora`), or a value that cannot be (`adapter-rank`, `adapter-modules`,
            `adapter-layers`).

    Source: peft tuners/lora/config.py, tuners/lora/layer.py.
    """
    notices: list[Notice] = []
    if isinstance(config, bytes):
        config, notices = parse_json(config, where)
    kind = config.get("peft_type", "LORA")
    if not isinstance(kind, str) or kind.upper() != "LORA":
        raise ConfigError(f"peft_type {describe(kind)} is not LORA", code="adapter-not-lora", where=where)
    rank = _rank(config.get("r"), "r", where)
    own = _own_ranks(config.get("rank_pattern"), where)
    targets, why = _targets(config.get("target_modules"), where)
    layers = _layers(config.get("layers_to_transform"), where)
    highest = max([rank, *own.values()])
    if tensors is not None:
        found = _from_file(tensors)
        if found is not None and found != highest:
            message = f"the adapter's file has rank {found}, its config says {highest}: the file counts"
            notices.append(Notice("adapter-rank-differs", message))
            highest = found
        size: int | None = sum(tensor.bytes for tensor in tensors)
        targets = targets or _modules(tensors)
    else:
        size = _from_shapes(base, targets, rank, own, layers, config)
        if size is None:
            notices.append(
                Notice("adapter-size-unknown", f"what the adapter holds is not known: {why or 'no base model'}")
            )
    return Adapter(highest, targets, size, (*notices, *_not_served(config)))


def _rank(value: object, key: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAXIMUM_RANK:
        problem = f"{key} must be a whole number between 1 and {MAXIMUM_RANK}, not {describe(value)}"
        raise ConfigError(problem, code="adapter-rank", where=where)
    return value


def _own_ranks(value: object, where: str) -> dict[str, int]:
    """Modules with a rank of their own."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or len(value) > MAXIMUM_NAMES:
        raise ConfigError(
            f"rank_pattern must map names to ranks, not {describe(value)}", code="adapter-rank", where=where
        )
    return {_name(name, where): _rank(rank, "rank_pattern", where) for name, rank in value.items()}


def _name(value: object, where: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAXIMUM_NAME:
        raise ConfigError(f"{describe(value)} is not the name of a module", code="adapter-modules", where=where)
    return value


def _targets(value: object, where: str) -> tuple[tuple[str, ...], str]:
    """The modules, or why they are not known."""
    if isinstance(value, str):
        found = alternatives(_name(value, where))
        return found, "" if found else f"target_modules is the pattern {safe(value)[:64]!r}"
    if value is None:
        return (), "target_modules is left to the library"
    if not isinstance(value, list) or len(value) > MAXIMUM_NAMES:
        problem = f"target_modules must be a list of names, not {describe(value)}"
        raise ConfigError(problem, code="adapter-modules", where=where)
    return tuple(dict.fromkeys(_name(one, where) for one in value)), ""


def alternatives(pattern: str) -> tuple[str, ...]:
    """The names that a pattern of alternatives ends in, read and never run; empty for any other pattern.

    >>> alternatives(r"model.layers.*(q_proj|v_proj)$")
    ('q_proj', 'v_proj')
    >>> alternatives("q_proj|v_proj")
    ('q_proj', 'v_proj')
    >>> alternatives("all-linear")
    ('all-linear',)
    >>> alternatives(r".*[qv]_proj")
    ()
    """
    text = pattern.removesuffix("$")
    if text.endswith(")"):
        before, bracket, text = text[:-1].rpartition("(")
        before = before.removesuffix("^").replace("\\.", ".")
        text = text.removeprefix("?:")
        if not bracket or not _WORDS.issuperset(before) or (before and not before.endswith((".", "*"))):
            return ()
    names = tuple(name.replace("\\.", ".") for name in text.split("|"))
    plain = _WORDS - {"*"}
    return names if all(name and plain.issuperset(name) and name[0] not in ".-" for name in names) else ()


def _layers(value: object, where: str) -> frozenset[int] | None:
    listed = [value] if isinstance(value, int) else value
    if listed is None:
        return None
    if (
        not isinstance(listed, list)
        or len(listed) > MAXIMUM_NAMES
        or not all(type(one) is int and one >= 0 for one in listed)
    ):
        problem = f"layers_to_transform must be layers, not {describe(value)}"
        raise ConfigError(problem, code="adapter-layers", where=where)
    return frozenset(listed)


def _from_file(tensors: Iterable[TensorOfFile]) -> int | None:
    """The highest rank in the file; None where no tensor is one of LoRA's."""
    ranks = [tensor.shape[0] for tensor in tensors if "lora_A" in tensor.name.split(".") and tensor.shape]
    ranks += [tensor.shape[0] for tensor in tensors if tensor.name.endswith("lora_embedding_A") and tensor.shape]
    return max(ranks, default=None)


def _modules(tensors: Iterable[TensorOfFile]) -> tuple[str, ...]:
    """The last parts of the names of the modules in a file."""
    found = (tensor.name.partition(".lora_A")[0].rpartition(".")[2] for tensor in tensors if ".lora_A." in tensor.name)
    return tuple(dict.fromkeys(name[:MAXIMUM_NAME] for name in found))


def _from_shapes(
    base: Architecture | None, targets: tuple[str, ...], rank: int, own: Mapping[str, int],
    layers: frozenset[int] | None, config: Mapping[str, Any],
) -> int | None:  # fmt: skip
    """What the adapter holds in the model's dtype; None where its modules are not known by name."""
    plain = _WORDS - {"*"}
    if base is None or not targets or not all(plain.issuperset(name) for name in own):
        return None
    magnitudes = config.get("use_dora") is True
    elements = adapter_elements(base.tensors, targets, own, rank, layers, magnitudes=magnitudes)
    return find_dtype(base.dtype).bytes(elements) if elements else None


def _not_served(config: Mapping[str, Any]) -> list[Notice]:
    """Parts of an adapter that servers with slots do not load."""
    found = []
    if config.get("use_dora") is True:
        found.append(Notice("adapter-dora", "the adapter is one of DoRA, which vllm does not load"))
    if config.get("modules_to_save"):
        found.append(
            Notice(
                "adapter-whole-modules", "the adapter saves whole modules (modules_to_save), which vllm does not load"
            )
        )
    return found


def _read_files(name: str) -> tuple[bytes, Sequence[TensorOfFile] | None, str]:
    """The config of an adapter, the tensors of its file where there is one, and what messages call it.

    Args:
        name: of a folder, of its adapter_config.json, or of a repository on the hub.

    Raises:
        ConfigError: there is none.
        SourceError: it cannot be had from the hub.
    """
    path = os.path.expanduser(name)
    file = os.path.join(path, CONFIG) if os.path.isdir(path) else path
    if os.path.isfile(file):
        weights = os.path.join(os.path.dirname(file), WEIGHTS)
        tensors = read_header(LocalFile(weights)).tensors if os.path.isfile(weights) else None
        return read_bytes(file, safe(file)), tensors, safe(file)
    if not os.path.exists(path) and looks_like_hub_name(name):
        return _read_hub(name)
    raise ConfigError(f"holds no {CONFIG}", code="no-adapter", where=safe(name))


def _read_hub(name: str) -> tuple[bytes, Sequence[TensorOfFile] | None, str]:
    """The same from the hub, in two requests."""
    from kvtax.sources.hub import failures, settings
    from kvtax.sources.hub.client import Client
    from kvtax.sources.hub.repository import Repository

    if settings.is_offline():
        raise failures.offline(safe(name))
    repository = Repository(Client(settings.endpoint()), parse_hub_name(name))
    where = f"{repository.title}: {CONFIG}"
    config = repository.read_whole(CONFIG, MAXIMUM_CONFIG_BYTES)
    if config is None:
        raise ConfigError(f"holds no {CONFIG}", code="no-adapter", where=repository.title)
    source = repository.open(WEIGHTS)
    try:
        return config, read_header(source, REMOTE_HEADER_BYTES).tensors, where
    except ConfigError:
        if source.found:
            raise
        return config, None, where


def with_adapter(deployment: Deployment, ranks: Sequence[int], base: Architecture) -> tuple[Deployment, list[Notice]]:
    """The deployment with the rank of the adapter that its slots are for, and what the adapter itself holds.

    Args:
        deployment: its `lora` may name a folder.
        ranks: that slots may have in the engine, ascending; the least that holds the adapter is taken.
        base: the model.

    Returns:
        The deployment and notices.

    Raises:
        ConfigError: no such folder, or a config that cannot be read.
    """
    asked = deployment.lora
    if asked is None or not asked.adapter:
        return deployment, []
    config, tensors, shown = _read_files(asked.adapter)
    adapter = read_adapter(config, tensors, base, where=shown)
    rank = next((rank for rank in ranks if rank >= adapter.rank), adapter.rank)
    held = "" if adapter.bytes is None else f" and holds {format_bytes(adapter.bytes)}"
    names = ", ".join(safe(name) for name in adapter.target_modules[:8]) or "modules that are not known"
    more = " ..." if len(adapter.target_modules) > 8 else ""
    message = f"the adapter adapts {names}{more} with rank {adapter.rank}{held}; a slot has room for every module, at rank {rank}"
    notices = [Notice("adapter-in-slot", message), *adapter.notices]
    return deployment._replace(lora=asked._replace(max_lora_rank=rank)), notices
