"""What a source has found of a model: its config, the headers of its files, and where each came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvtax.sources.gguf import GgufFile
from kvtax.sources.safetensors import FileTensor
from kvtax.terms import Notice


class Found(NamedTuple):
    """A model that was found, before anything is made of it.

    Args:
        id: as people call it; safe to show.
        place: where it lies, in words: `hub, org/name at commit 0123456789ab`.
        config: of config.json, None where there is none (GGUF).
        quant_config: of hf_quant_config.json beside it.
        tensors: of all safetensors headers together; None where none were read.
        weights: where the weights are known from, in words; '' where only the config says.
        gguf: the header of the GGUF file or of all its shards.
        label: how its quantisation is called.
        sized_bytes: of weight files that are never opened (.bin, .pt), by their sizes [bytes].
        runner: `pooling` where Sentence Transformers' modules.json is there.
        limits: of generation_config.json: `max_length`, `max_new_tokens` [tokens].
        settings: fields of a deployment that come with the model: the projector's bytes, Ollama's num_ctx.
        notices: what the reader should know.
        commit: of the repository on the hub, whole; '' where it is of none.
    """

    id: str
    place: str
    config: dict[str, Any] | None = None
    quant_config: dict[str, Any] | None = None
    tensors: tuple[FileTensor, ...] | None = None
    weights: str = ""
    gguf: GgufFile | None = None
    label: str = ""
    sized_bytes: int | None = None
    runner: str | None = None
    limits: Mapping[str, int] = {}
    settings: Mapping[str, int] = {}
    notices: tuple[Notice, ...] = ()
    commit: str = ""


LIMIT_KEYS = ("max_length", "max_new_tokens")


def read_limits(config: Mapping[str, Any]) -> dict[str, int]:
    """The limits that a generation_config.json sets for what is generated [tokens]."""
    found = {}
    for key in LIMIT_KEYS:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 2**31:
            found[key] = value
    return found


def with_old_quantization(
    config: dict[str, Any], gptq: Mapping[str, Any] | None, awq: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The config with what quantize_config.json (AutoGPTQ) or quant_config.json (AutoAWQ) says, where it says nothing itself.

    Source: AutoGPTQ/AutoGPTQ quantization/config.py; casper-hansen/AutoAWQ models/_config.py.
    """
    if config.get("quantization_config"):
        return config
    if gptq is not None and "bits" in gptq:
        return {**config, "quantization_config": {"quant_method": "gptq", **gptq}}
    if awq is not None and ("w_bit" in awq or "bits" in awq):
        section = {
            "quant_method": "awq",
            "bits": awq.get("w_bit", awq.get("bits")),
            "group_size": awq.get("q_group_size", awq.get("group_size")),
            "zero_point": awq.get("zero_point", True),
        }
        return {**config, "quantization_config": {key: value for key, value in section.items() if value is not None}}
    return config


PACKED = frozenset(("qweight", "scales", "weight_packed", "weight_scale", "weight_scale_inv", "weight_scale_2"))
"""Last words of names that only a quantised checkpoint has."""


def looks_quantized(tensors: tuple[FileTensor, ...]) -> bool:
    """Whether the names in a header are those of a quantised checkpoint."""
    return any(tensor.name.rpartition(".")[2] in PACKED for tensor in tensors)
