"""The quantisation presets of llama-quantize, tensor by tensor: which type each matrix gets, and what that takes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kvtax.architectures.gguf.tensor import GgufTensor
from kvtax.dtypes import find_dtype
from kvtax.errors import UnknownNameError

BASE = {
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "q8_0": "q8_0", "q6_k": "q6_k", "q5_k_m": "q5_k", "q5_k_s": "q5_k",
    "q5_0": "q5_0", "q5_1": "q5_1", "q4_k_m": "q4_k", "q4_k_s": "q4_k", "q4_0": "q4_0", "q4_1": "q4_1", "iq4_nl": "iq4_nl",
    "iq4_xs": "iq4_xs", "q3_k_l": "q3_k", "q3_k_m": "q3_k", "q3_k_s": "q3_k", "iq3_m": "iq3_s", "iq3_s": "iq3_s", "iq3_xs": "iq3_s",
    "iq3_xxs": "iq3_xxs", "q2_k": "q2_k", "q2_k_s": "q2_k", "iq2_m": "iq2_s", "iq2_s": "iq2_xs", "iq2_xs": "iq2_xs",
    "iq2_xxs": "iq2_xxs", "iq1_m": "iq1_m", "iq1_s": "iq1_s", "tq1_0": "tq1_0", "tq2_0": "tq2_0", "q1_0": "q1_0", "q2_0": "q2_0",
    "mxfp4_moe": "mxfp4",
}  # fmt: skip
"""Preset -> the type that a matrix gets unless a rule says otherwise."""
_ALIASES = {"q4_k": "q4_k_m", "q5_k": "q5_k_m", "q3_k": "q3_k_m", "fp16": "f16", "fp32": "f32", "float16": "f16", "bfloat16": "bf16",
            "float32": "f32"}  # fmt: skip
_FLOATS = ("float32", "float16", "bfloat16")
_SMALLEST = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m")
# where a row is not a whole number of blocks
_FALLBACK = {
    **dict.fromkeys(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_xs"), "iq4_nl"),
    **dict.fromkeys(("q2_0", "q2_k", "q3_k", "tq1_0", "tq2_0"), "q4_0"),
    "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0",
}  # fmt: skip


class Facts(NamedTuple):
    """What the rules look at beside the tensors.

    Args:
        arch: `general.architecture`.
        block_count: blocks, those for multi-token prediction included [layers].
        query_per_kv_head: head_count / head_count_kv of the first block, 0 where it has none.
        expert_count: [experts].
        is_70b: Llama with 80 layers and a feed-forward of 28672, whose values get a finer type.
        imatrix: quantised with an importance matrix.
        fused_qkv_is_value: whether fused projections are treated like values.
    """

    arch: str
    block_count: int
    query_per_kv_head: int
    expert_count: int = 0
    is_70b: bool = False
    imatrix: bool = False
    fused_qkv_is_value: bool = True


def find_preset(name: str) -> str:
    """The canonical name of a preset.

    Raises:
        UnknownNameError: code `unknown-quantization`.

    >>> find_preset("Q4_K")
    'q4_k_m'
    """
    key = name.strip().lower().replace("-", "_")
    key = _ALIASES.get(key, key)
    if key not in BASE:
        raise UnknownNameError(
            f"{name[:64]!r} is not a GGUF preset", code="unknown-quantization", hint="known: " + ", ".join(BASE)
        )
    return key


def is_preset(name: str) -> bool:
    """Whether a name is a preset's."""
    key = name.strip().lower().replace("-", "_")
    return _ALIASES.get(key, key) in BASE


NEVER = (
    "_norm", "ffn_gate_inp", "ffn_gate_tid2eid", "altup", "laurel", "per_layer_model_proj", "position_embd", "token_types", "ssm_conv1d",
    "shortconv.conv", "indexer.k_proj", "indexer.q_proj", "time_mix_first", "time_mix_w", "time_mix_v0", "time_mix_v1", "time_mix_v2",
    "time_mix_a", "time_mix_g1", "time_mix_g2", "time_mix_decay_w1", "time_mix_decay_w2", "time_mix_lerp_fused", "attn_rel_b",
)  # fmt: skip
"""Parts of names that keep float32.

Source: ggml-org/llama.cpp b11434 src/llama-quant.cpp tensor_allows_quantization.
"""


def allows_quantization(tensor: GgufTensor) -> bool:
    """Whether the preset decides its type: matrices that are no norm, router, small convolution or bias."""
    return not tensor.kept and len(tensor.shape) >= 2 and _is_matrix_of_the_preset(tensor.kind)


@lru_cache(maxsize=1024)
def _is_matrix_of_the_preset(kind: str) -> bool:
    # gate of a shared expert: a matrix of one column is a vector, `ffn_gate_inp_shexp` has another suffix than the router
    return not any(part in kind for part in NEVER if part != "ffn_gate_inp") and kind != "ffn_gate_inp"


@lru_cache(maxsize=1024)
def _category(kind: str) -> str:
    """The wide kinds that rules are written for."""
    if kind in ("token_embd", "per_layer_token_embd"):
        return "token_embd"
    if kind in ("output", "attn_qkv", "attn_kv_b", "attn_v", "attn_k", "attn_q", "attn_output"):
        return kind
    for name in ("ffn_up", "ffn_gate", "ffn_down"):
        if name in kind:
            return name
    return "other"


def more_bits(index: int, count: int) -> bool:
    """Whether a layer is among those that get a finer type: the first and last eighth, and every third between."""
    return index < count // 8 or index >= 7 * count // 8 or (index - count // 8) % 3 == 2


class _Chooser:
    """The type of each tensor in file order, with the running counts that the rules go by."""

    def __init__(self, preset: str, tensors: Sequence[GgufTensor], facts: Facts) -> None:
        self.preset, self.facts, self.base = preset, facts, BASE[preset]
        categories = [_category(tensor.kind) for tensor in tensors]
        self.values = {"attn_v", "attn_kv_b"} | ({"attn_qkv"} if facts.fused_qkv_is_value else set())
        self.value_count = sum(category in self.values for category in categories)
        self.tied = "output" not in categories
        self.value_index = 0
        self.down_index = 0
        self.gate_index = 0
        self.up_index = 0

    def choose(self, tensor: GgufTensor) -> str:
        """The type of one tensor."""
        if not allows_quantization(tensor):
            return tensor.kept or "float32"
        if self.base in _FLOATS:
            return self.base
        return _fitting(self._chosen(tensor, _category(tensor.kind)), tensor.shape[0])

    def _chosen(self, tensor: GgufTensor, category: str) -> str:
        preset, facts = self.preset, self.facts
        if category == "output" or (self.tied and category == "token_embd"):
            return self._output(tensor.shape[0])
        if preset == "mxfp4_moe":
            return "mxfp4" if len(tensor.shape) > 2 and tensor.shape[2] > 1 else "q8_0"
        if category == "token_embd":
            return self._embedding()
        if preset in _SMALLEST:
            return self._smallest(category)
        if category in self.values:
            chosen = self._value()
            if facts.is_70b and chosen in ("q3_k", "q4_k"):
                chosen = "q5_k"
            self.value_index += 1
            return "q8_0" if facts.expert_count == 8 else chosen
        if category in ("attn_k", "attn_q"):
            if category == "attn_k" and facts.expert_count == 8:
                return "q8_0"
            return {"iq3_xs": "iq3_xxs", "iq3_xxs": "iq2_s"}.get(preset, self.base)
        if category == "ffn_down":
            chosen = self._down(self._layer(tensor, self.down_index), facts.block_count)
            self.down_index += 1
            return chosen
        if category == "attn_output":
            return self._attention_output()
        if category == "attn_qkv":
            return {"q3_k_m": "q4_k", "q3_k_l": "q4_k", "iq3_m": "q4_k", "q4_k_m": "q5_k", "q5_k_m": "q6_k"}.get(
                preset, self.base
            )
        return self._gate_or_up(tensor, category)

    def _layer(self, tensor: GgufTensor, running: int) -> int:
        """The block of a tensor: counted, but taken from the name in a model with experts."""
        return tensor.layer if self.facts.expert_count > 1 else running

    def _output(self, columns: int) -> str:
        dtype = find_dtype(self.base)
        if self.preset == "mxfp4_moe" or self.facts.arch == "falcon" or columns % dtype.block:
            return "q8_0"
        if self.preset in (*_SMALLEST, "iq3_xxs"):
            return "q5_k"
        return self.base if self.base == "q8_0" else "q6_k"

    def _embedding(self) -> str:
        if self.preset in ("iq2_xxs", "iq2_xs", "iq1_s", "iq1_m"):
            return "q2_k"
        if self.preset in ("iq2_s", "iq2_m", "iq3_xxs"):
            return "iq3_s"
        return "q4_k" if self.preset in ("tq1_0", "tq2_0", "q2_0") else self.base

    def _smallest(self, category: str) -> str:
        facts, finer = self.facts, "iq3_s" if self.preset in ("iq2_s", "iq2_m") else "q2_k"
        if category in self.values:
            self.value_index += 1
            return "q4_k" if facts.query_per_kv_head >= 4 or facts.expert_count >= 4 else finer
        if category == "attn_k" and facts.expert_count == 8:
            return "q4_k"
        if category == "ffn_down":
            early = self.down_index < facts.block_count // 8
            self.down_index += 1
            return finer if early else self.base
        if category == "attn_output":
            if facts.expert_count == 8:
                return "q5_k"
            if self.preset in ("iq1_s", "iq1_m"):
                return "iq2_xxs"
            return "iq3_s" if self.preset in ("iq2_s", "iq2_m") else self.base
        return self.base

    def _value(self) -> str:
        preset, grouped = self.preset, self.facts.query_per_kv_head >= 4
        by_group = {
            "q2_k": ("q4_k", "q3_k"), "q2_k_s": ("q4_k", self.base), "iq3_xxs": ("q4_k", "iq3_xxs" if self.facts.imatrix else "iq3_s"),
            "iq3_xs": ("q4_k", self.base), "iq3_s": ("q4_k", self.base), "iq4_nl": ("q5_k", self.base), "iq4_xs": ("q5_k", self.base),
        }  # fmt: skip
        if preset in by_group:
            return by_group[preset][0 if grouped else 1]
        if preset == "iq3_m":
            return "q4_k"
        if preset == "q3_k_m":
            return "q5_k" if self.value_index < 2 else "q4_k"
        if preset == "q3_k_l":
            return "q5_k"
        if preset in ("q4_k_m", "q5_k_m") and more_bits(self.value_index, self.value_count):
            return "q6_k"
        return "q5_k" if preset == "q4_k_s" and self.value_index < 4 else self.base

    def _down(self, layer: int, count: int) -> str:
        preset, falcon, early = self.preset, self.facts.arch == "falcon", layer < count // 8
        if preset == "q2_k":
            return "q3_k"
        if preset == "iq3_xxs" and not self.facts.imatrix:
            return "q4_k" if early else "q3_k"
        if preset == "q3_k_m":
            if layer < count // 16:
                return "q5_k"
            return "q4_k" if not falcon or more_bits(layer, count) else "q3_k"
        if preset == "q3_k_l":
            return "q4_k" if falcon else "q5_k"
        if preset == "q4_k_m" and falcon:
            return "q6_k" if layer < count // 16 else "q5_k" if more_bits(layer, count) else "q4_k"
        if preset in ("q4_k_m", "q5_k_m"):
            return "q6_k" if more_bits(layer, count) else self.base
        if preset == "iq3_m" and not early and self.facts.expert_count == 8:
            return "q4_k" if more_bits(layer, count) else self.base
        return self._early_down(early)

    def _early_down(self, early: bool) -> str:
        """What only the first eighth of the layers has."""
        if not early:
            return self.base
        imatrix = self.facts.imatrix
        return {
            "q2_k_s": "q4_k", "iq3_m": "q4_k", "iq4_nl": self.base if imatrix else "q5_k", "iq4_xs": self.base if imatrix else "q5_k",
            "q4_k_s": self.base if self.facts.arch == "falcon" else "q5_k", "q4_0": "q4_1" if imatrix else self.base,
            "q5_0": "q5_1" if imatrix else self.base,
        }.get(self.preset, self.base)  # fmt: skip

    def _attention_output(self) -> str:
        if self.facts.arch == "falcon":
            return "q4_k" if self.preset == "q3_k_l" else self.base
        if self.facts.expert_count == 8:
            finer = (
                "q2_k",
                "iq3_xs",
                "iq3_xxs",
                "q3_k_s",
                "q3_k_m",
                "iq4_nl",
                "q4_k_s",
                "q4_k_m",
                "iq3_s",
                "iq3_m",
                "iq4_xs",
            )
            return "q5_k" if self.preset in finer else self.base
        return {"q2_k": "q3_k", "iq3_xxs": "iq3_s", "q3_k_m": "q4_k", "q3_k_l": "q5_k", "iq3_m": "q4_k"}.get(
            self.preset, self.base
        )

    def _gate_or_up(self, tensor: GgufTensor, category: str) -> str:
        if category not in ("ffn_gate", "ffn_up"):
            return self.base
        running = self.gate_index if category == "ffn_gate" else self.up_index
        layer, count = self._layer(tensor, running), self.facts.block_count
        if category == "ffn_gate":
            self.gate_index += 1
        else:
            self.up_index += 1
        middle = count // 8 <= layer < 7 * count // 8
        return "iq3_xxs" if self.preset == "iq3_xs" and middle else self.base


@lru_cache(maxsize=4096)
def _fitting(dtype: str, columns: int) -> str:
    """The type itself, or the one in its place where a row is not a whole number of its blocks."""
    found = find_dtype(dtype)
    if not found.block or columns % found.block == 0:
        return dtype
    other = _FALLBACK.get(dtype, "float16")
    block = find_dtype(other).block
    return other if not block or columns % block == 0 else "float16"


def tensor_types(preset: str, tensors: Sequence[GgufTensor], facts: Facts) -> list[str]:
    """The type that each tensor gets.

    Args:
        preset: canonical name.
        tensors: of the whole file, in any order.
        facts: about the model.

    Returns:
        One type for each tensor.

    Source: ggml-org/llama.cpp b11434 src/llama-quant.cpp llama_tensor_get_type, without importance matrix or overrides.
    """
    chooser = _Chooser(preset, tensors, facts)
    # a file is walked block by block, by name within a block
    order = sorted(range(len(tensors)), key=lambda index: (tensors[index].layer, tensors[index].kind))
    found = [""] * len(tensors)
    for index in order:
        found[index] = chooser.choose(tensors[index])
    return found
