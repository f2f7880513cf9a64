"""Mixtral, Phi-3.5-MoE and MiniMax-M2: experts in every layer, stored as w1, w2 and w3."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.context import context_limit
from kvtax.architectures.decoder import Shape, assemble, attention_caches, experts
from kvtax.architectures.mixture import LAYER, block, routed
from kvtax.architectures.tensors import norm


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention and block-sparse experts; LayerNorms with bias in PhiMoE, norms over all query and key heads in MiniMax-M2.

    Source: transformers 5.24.0 models/mixtral/modeling_mixtral.py, models/phimoe/modeling_phimoe.py,
    models/minimax_m2/modeling_minimax_m2.py.
    """
    shape = Shape(config)
    phi = config.model_type == "phimoe"
    minimax = config.model_type == "minimax_m2"
    bias = phi and config.boolean("attention_bias")
    numbers = routed(config, experts=("num_local_experts", "num_experts"), width=("intermediate_size",))
    body = block(shape, shape.layers, qkv_bias=bias, o_bias=bias, qk_norm="full" if minimax else "", norm_bias=phi)
    body += experts(
        f"{LAYER}.block_sparse_moe", shape.layers, numbers.num_experts, shape.hidden_size, numbers.moe_intermediate_size,
        names=("w1", "w3", "w2"), correction_bias="e_score_correction_bias" if minimax else "",
    )  # fmt: skip
    window = None if minimax else config.optional_integer("sliding_window")
    limit = context_limit(config)
    if phi and window is not None and limit is not None and window >= limit:
        window = None  # a window that no request can outgrow is none
    kinds = ["full_attention" if window is None else "sliding_attention"] * shape.num_hidden_layers
    caches = attention_caches(config, kinds, shape.num_key_value_heads, shape.head_dim, sliding_window=window)
    return assemble(
        config, shape, body, caches, prefix=prefix, final_norm=norm("model.norm", shape.hidden_size, bias=phi),
        head_bias=phi and config.boolean("lm_head_bias"), intermediate_size=numbers.moe_intermediate_size, **numbers.facts(),
    )  # fmt: skip
