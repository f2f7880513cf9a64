"""LFM2, its mixture-of-experts sibling and LFM3: gated short convolutions with attention in some layers."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import LayerCache
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, MAXIMUM_WIDTH, Config
from kvtax.architectures.decoder import Shape, assemble, attention, attention_caches, experts, gated_mlp
from kvtax.architectures.recurrent import ShortConv, kernel_size, layer_kinds, state_dtypes
from kvtax.architectures.tensors import COLUMN, Tensor, linear, norm

_W = ("w1", "w3", "w2")


class _Lfm(Shape):
    """tie_embedding, the older key, wins over tie_word_embeddings."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if config.states("tie_embedding"):
            self.tied = config.boolean("tie_embedding")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A short convolution or grouped-query attention with head norms, then a gated MLP or routed experts.

    Source: transformers 5.24.0 models/lfm2/modeling_lfm2.py, models/lfm2_moe/modeling_lfm2_moe.py,
    models/lfm3/modeling_lfm3.py (checkpoint names: conversion_mapping.py).
    """
    shape = _Lfm(config)
    kinds = _kinds(config, shape.num_hidden_layers)
    attending = tuple(index for index in shape.layers if kinds[index] != "conv")
    convolving = tuple(index for index in shape.layers if kinds[index] == "conv")
    mixer = ShortConv(shape.hidden_size, kernel_size(config, "conv_L_cache"), config.boolean("conv_bias"))
    layer = "model.layers.*"
    body = mixer.tensors(f"{layer}.conv", convolving) if convolving else []
    if attending:
        body += _attention(config, shape, f"{layer}.self_attn", attending)
    feed, facts = _feed_forward(config, shape, f"{layer}.feed_forward")
    body += feed
    norms = ["operator_norm", "ffn_norm"]
    if config.model_type == "lfm3" and config.boolean("use_sandwich_norm", default=True):
        norms += ["post_operator_norm", "post_ffn_norm"]
    for name in norms:
        body += norm(f"{layer}.{name}", shape.hidden_size, shape.layers)
    window = config.optional_integer("sliding_window") if config.model_type == "lfm3" else None
    attended = [kind for kind in kinds if kind != "conv"]
    kept = iter(attention_caches(config, attended, shape.num_key_value_heads, shape.head_dim, sliding_window=window))
    recurrent = mixer.cache(state_dtypes(config))
    caches: list[LayerCache] = [recurrent if kind == "conv" else next(kept) for kind in kinds]
    return assemble(
        config, shape, body, caches, prefix=prefix, final_norm=norm("model.embedding_norm", shape.hidden_size), **facts
    )


def _kinds(config: Config, num_hidden_layers: int) -> list[str]:
    """layer_types, else each class's own rule: LFM2's full_attn_idxs, LFM3's turn of four layers."""
    moe, newer = config.model_type == "lfm2_moe", config.model_type == "lfm3"
    allowed = ("conv", "full_attention", "sliding_attention") if newer else ("conv", "full_attention")
    kinds = layer_kinds(config, num_hidden_layers, allowed)
    if kinds is not None:
        return kinds
    layers = range(num_hidden_layers)
    if newer:
        turn = ("sliding_attention", "conv", "full_attention", "conv")
        return ["conv" if index == 0 else turn[index % 4] for index in layers]
    attending = config.integers("full_attn_idxs", minimum=-MAXIMUM_LAYERS)
    if attending is None:
        if moe:
            config.fail("layer_types", "is missing, and its model type has no default for it")
        return ["full_attention"] * num_hidden_layers
    chosen = set(attending)
    return ["full_attention" if index in chosen else "conv" for index in layers]


def _attention(config: Config, shape: Shape, prefix: str, layers: tuple[int, ...]) -> list[Tensor]:
    newer = config.model_type == "lfm3"
    bias = config.boolean("attention_bias") if newer else False
    found = attention(
        prefix, layers, shape.hidden_size, shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim,
        qkv_bias=bias, o_bias=bias, qk_norm="head",
        names=("q_proj", "k_proj", "v_proj", "o_proj" if newer else "out_proj"),
        norm_names=("q_norm", "k_norm") if newer else ("q_layernorm", "k_layernorm"),
    )  # fmt: skip
    if newer and config.boolean("use_attention_gate", default=True):
        found += linear(
            f"{prefix}.gate_proj", shape.num_attention_heads, shape.hidden_size, "attention", layers, shard=COLUMN
        )
    return found


def _feed_forward(config: Config, shape: Shape, prefix: str) -> tuple[list[Tensor], dict[str, Any]]:
    """Dense MLPs, and behind num_dense_layers of them routed experts in the MoE class."""
    width = _intermediate_size(config)
    facts: dict[str, Any] = {"intermediate_size": width}
    dense: tuple[int, ...] = shape.layers
    sparse: tuple[int, ...] = ()
    if config.model_type == "lfm2_moe":
        count = config.integer("num_dense_layers", minimum=0, maximum=MAXIMUM_LAYERS)
        dense, sparse = shape.layers[:count], shape.layers[count:]
    body = gated_mlp(prefix, dense, shape.hidden_size, width, names=_W) if dense else []
    if sparse:
        num_experts = config.integer("num_experts", maximum=MAXIMUM_EXPERTS)
        moe_intermediate_size = config.integer("moe_intermediate_size")
        bias = "expert_bias" if config.boolean("use_expert_bias", default=True) else ""
        body += experts(
            prefix, sparse, num_experts, shape.hidden_size, moe_intermediate_size, correction_bias=bias, names=_W
        )
        facts |= {
            "num_experts": num_experts,
            "num_experts_per_tok": config.integer("num_experts_per_tok", maximum=num_experts),
            "moe_intermediate_size": moe_intermediate_size,
        }
    return body, facts


def _intermediate_size(config: Config) -> int:
    """LFM2 takes two thirds of what its config says, times a factor, rounded up to a multiple."""
    if config.model_type != "lfm2":
        return config.integer("intermediate_size")
    width = config.integer("block_ff_dim", "intermediate_size")
    if not config.boolean("block_auto_adjust_ff_dim", default=True):
        return width
    width = int(2 * width / 3)
    if config.get("block_ffn_dim_multiplier") is not None:
        factor = config.number("block_ffn_dim_multiplier")
        multiple = config.integer("block_multiple_of")
        width = int(factor * width) if 0 < factor < 2**20 else 0
        width = multiple * ((width + multiple - 1) // multiple)
    if not 1 <= width <= MAXIMUM_WIDTH:
        config.fail("block_ffn_dim_multiplier", f"gives an MLP {width} wide, which is not possible")
    return width
