"""A.X-K2: sparse latent attention with a gate fused into its queries, gated norms, experts behind dense first layers."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config, describe
from kvtax.architectures.decoder import assemble
from kvtax.architectures.latent import (
    LatentDecoder,
    dense_block,
    index_shape,
    indexer,
    latent_attention,
    latent_caches,
    moe_block,
    moe_shape,
    sparse_layers,
)
from kvtax.architectures.mixture import others
from kvtax.architectures.tensors import COLUMN, Tensor, linear, norm

_LAYER = "model.layers.*"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Latent attention whose queries carry an output gate, an indexer in each layer, norms with a low-rank gate, experts.

    Source: transformers 5.24.0 models/axk2/modeling_axk2.py (checkpoint names: conversion_mapping.py).
    """
    shape = LatentDecoder(config)
    hidden, rank = shape.hidden_size, shape.latent.q_lora_rank
    if rank is None:
        config.fail("q_lora_rank", "is null, but queries, gate and indexer are made from that latent")
    for kind in config.layer_types(shape.num_hidden_layers) or ():
        if kind != "indexed_attention":
            config.unsupported("layer_types", f"layer type {describe(kind)} is not understood")
    index = index_shape(config)
    sparse = sparse_layers(config, shape.num_hidden_layers, dense=1)
    dense = others(shape.layers, sparse)
    width = config.integer("intermediate_size")
    body = [
        *_attention(config, shape, rank),
        *indexer(f"{_LAYER}.self_attn.indexer", shape.layers, hidden, rank, index),
        *_gated_norm(config, f"{_LAYER}.input_layernorm", hidden, shape.layers),
        *_gated_norm(config, f"{_LAYER}.post_attention_layernorm", hidden, sparse),
        *(norm(f"{_LAYER}.post_attention_layernorm", hidden, dense) if dense else []),
        *dense_block(f"{_LAYER}.mlp", dense, hidden, width),
    ]
    facts: dict[str, Any] = {"intermediate_size": width, "rotary_dim": shape.latent.qk_rope_head_dim}
    if sparse:
        moe = moe_shape(config, "num_local_experts", "n_routed_experts")
        body += moe_block(f"{_LAYER}.mlp", sparse, hidden, moe)
        facts["num_experts"] = moe.num_experts
        facts["num_experts_per_tok"] = moe.num_experts_per_tok
        facts["moe_intermediate_size"] = moe.moe_intermediate_size
    caches = latent_caches(shape.latent, shape.num_hidden_layers, shape.layers, index.bytes_per_token)
    return assemble(config, shape, body, caches, prefix=prefix, **facts)


def _attention(config: Config, shape: LatentDecoder, rank: int) -> list[Tensor]:
    """Latent attention; q_b reads the latent twice (2 x q_lora_rank) and gives queries and the gate of the output."""
    latent, name = shape.latent, f"{_LAYER}.self_attn.q_b_proj"
    found = latent_attention(f"{_LAYER}.self_attn", shape.layers, latent, bias=config.boolean("attention_bias"))
    rows = shape.num_attention_heads * (latent.qk_head_dim + latent.v_head_dim)
    fused = linear(name, rows, 2 * rank, "attention", shape.layers, shard=COLUMN)
    return [*(tensor for tensor in found if tensor.name != f"{name}.weight"), *fused]


def _gated_norm(config: Config, name: str, hidden: int, layers: tuple[int, ...]) -> list[Tensor]:
    """A norm and the two matrices of its low-rank gate, which quantised checkpoints keep as they are."""
    if not layers:
        return []
    rank = config.integer("gated_norm_rank")
    return [
        *norm(f"{name}.norm", hidden, layers),
        Tensor(f"{name}.W_down.weight", (rank, hidden), "norms", layers),
        Tensor(f"{name}.W_up.weight", (hidden, rank), "norms", layers),
    ]
