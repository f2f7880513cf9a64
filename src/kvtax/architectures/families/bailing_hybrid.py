"""Ling 3 (bailing_hybrid): Kimi delta attention, gated latent attention in every so many layers, experts."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import LayerCache
from kvtax.architectures.config import MAXIMUM_HEADS, MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import assemble, layers_where
from kvtax.architectures.latent import (
    LatentDecoder,
    MoeShape,
    dense_block,
    latent_attention,
    moe_block,
    moe_shape,
    mtp_count,
    mtp_indices,
    mtp_layers,
    sparse_layers,
)
from kvtax.architectures.mixture import others
from kvtax.architectures.recurrent import KimiDelta, kernel_size, layer_kinds, state_dtypes
from kvtax.architectures.tensors import COLUMN, Tensor, linear, norm

_LAYER = "model.layers.*"
_ATTENTION = f"{_LAYER}.attention"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Delta attention, or latent attention with a gate per head, then a gated MLP or routed and shared experts.

    Source: transformers 5.24.0 models/bailing_hybrid/modeling_bailing_hybrid.py (checkpoint names: conversion_mapping.py).
    """
    shape = LatentDecoder(config)
    shape.tied = False  # the class ties nothing, whatever tie_word_embeddings says
    hidden = shape.hidden_size
    delta = KimiDelta(
        hidden,
        config.optional_integer("linear_num_heads", maximum=MAXIMUM_HEADS) or shape.num_attention_heads,
        config.integer("linear_head_dim", "head_dim"),
        kernel_size(config, "linear_conv_kernel_dim", "short_conv_kernel_size"),
    )
    kinds = _kinds(config, shape.num_hidden_layers)
    recurring, attending = layers_where(kinds, "linear_attention"), layers_where(kinds, "full_attention")
    sparse = sparse_layers(config.retyped(moe_layer_freq=None), shape.num_hidden_layers)
    width, moe = config.integer("intermediate_size"), moe_shape(config, "num_local_experts", "num_experts")
    body = [
        *(_delta_attention(delta, recurring) if recurring else []),
        *_latent_attention(config, shape, attending),
        *_rest(hidden, shape.layers, sparse, moe, width),
    ]
    latent, recurrent = shape.latent.cache(), delta.cache(state_dtypes(config))
    caches: list[LayerCache] = [latent if kind == "full_attention" else recurrent for kind in kinds]
    facts: dict[str, Any] = {"intermediate_size": width, "rotary_dim": shape.latent.qk_rope_head_dim}
    if sparse:
        facts["num_experts"] = moe.num_experts
        facts["num_experts_per_tok"] = moe.num_experts_per_tok
        facts["moe_intermediate_size"] = moe.moe_intermediate_size
    architecture = assemble(config, shape, body, caches, prefix=prefix, embed_name="model.word_embeddings", **facts)
    extra = mtp_indices(shape.num_hidden_layers, mtp_count(config, "num_mtp_layers", "num_nextn_predict_layers"))
    if not extra:
        return architecture
    layer = [*_latent_attention(config, shape, extra), *_rest(hidden, extra, extra if sparse else (), moe, width)]
    mtp = mtp_layers(extra, hidden, shape.vocab_size, layer, own_embedding=False)
    return architecture.replace(tensors=[*architecture.tensors, *(t._replace(name=prefix + t.name) for t in mtp)])


def _kinds(config: Config, num_hidden_layers: int) -> list[str]:
    """layer_types, else latent attention in the last of every layer_group_size layers."""
    kinds = layer_kinds(config, num_hidden_layers, ("full_attention", "linear_attention"))
    if kinds is not None:
        return kinds
    size = config.integer("layer_group_size", maximum=MAXIMUM_LAYERS)
    return ["linear_attention" if (index + 1) % size else "full_attention" for index in range(num_hidden_layers)]


def _delta_attention(delta: KimiDelta, layers: tuple[int, ...]) -> list[Tensor]:
    """Kimi's delta attention with one whole matrix for each of its two gates, and `dense` behind it."""
    decay = (f"{_ATTENTION}.f_a_proj.weight", f"{_ATTENTION}.f_b_proj.weight")
    found = []
    for tensor in delta.tensors(_ATTENTION, layers, full_rank_gate=True):
        if tensor.name in decay:
            continue
        name = tensor.name.replace(".o_proj.", ".dense.")
        kept = "float32" if name.endswith("_conv1d.weight") else tensor.dtype
        found.append(tensor._replace(name=name, dtype=kept))
    return [
        *found,
        *linear(f"{_ATTENTION}.f_proj", delta.width, delta.hidden_size, "linear_or_ssm", layers, shard=COLUMN),
    ]


def _latent_attention(config: Config, shape: LatentDecoder, layers: tuple[int, ...]) -> list[Tensor]:
    """Latent attention and a gate per head [heads, hidden_size]."""
    if not layers:
        return []
    bias = config.boolean("attention_bias")
    found = [
        tensor._replace(name=tensor.name.replace(".o_proj.", ".dense."))
        for tensor in latent_attention(_ATTENTION, layers, shape.latent, bias=bias)
    ]
    heads = shape.num_attention_heads
    return [*found, *linear(f"{_ATTENTION}.g_proj", heads, shape.hidden_size, "attention", layers, shard=COLUMN)]


def _rest(
    hidden: int, layers: tuple[int, ...], sparse: tuple[int, ...], moe: MoeShape, intermediate_size: int
) -> list[Tensor]:
    """Norms and MLPs of `layers`, of which `sparse` have experts."""
    return [
        *norm(f"{_LAYER}.input_layernorm", hidden, layers),
        *norm(f"{_LAYER}.post_attention_layernorm", hidden, layers),
        *dense_block(f"{_LAYER}.mlp", others(layers, sparse), hidden, intermediate_size),
        *moe_block(f"{_LAYER}.mlp", sparse, hidden, moe, correction_bias="gate.expert_bias"),
    ]
