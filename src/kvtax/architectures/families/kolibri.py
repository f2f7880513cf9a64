"""Kolibri 1: windowed and full attention with norms of query and key, four norms a layer, experts in every layer."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import Shape, assemble, attention_caches, experts
from kvtax.architectures.mixture import LAYER, block, routed, shared_mlp
from kvtax.architectures.windows import every_nth


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention, full in every fifth layer; routed experts and a shared one.

    Source: transformers 5.24.0 models/kolibri1/modeling_kolibri1.py (checkpoint names: conversion_mapping.py).
    """
    shape = Shape(config)
    shape.head_dim = config.integer("head_dim")
    moe = routed(config, experts=("num_experts", "num_local_experts"))
    names = ("input_layernorm", "post_attention_layernorm", "post_attn_norm", "post_ffn_norm")
    body = block(shape, shape.layers, qk_norm="head", norms=names)
    body += experts(
        f"{LAYER}.mlp", shape.layers, moe.num_experts, shape.hidden_size, moe.moe_intermediate_size,
        correction_bias="moe.router.expert_bias",
    )  # fmt: skip
    width = config.integer("shared_expert_intermediate_size", minimum=0)
    body += shared_mlp(f"{LAYER}.mlp.shared_experts", shape.layers, shape.hidden_size, width)
    # the file keeps this buffer beside the MLP
    body = [tensor._replace(name=tensor.name.replace(".mlp.moe.router.", ".moe.router.")) for tensor in body]
    kinds, window = every_nth(5)(config, shape.num_hidden_layers)
    caches = attention_caches(config, kinds, shape.num_key_value_heads, shape.head_dim, sliding_window=window)
    return assemble(config, shape, body, caches, prefix=prefix, **moe.facts())
