"""Arcee's Trinity (AFMoE): windows in three of four layers, gated attention, four norms a layer."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble, attention_caches, every_nth_full, experts
from kvtax.architectures.latent import dense_block
from kvtax.architectures.mixture import LAYER, block, others, routed, shared_mlp
from kvtax.architectures.tensors import COLUMN, Tensor, linear

NORMS = ("input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Attention with norms of query and key and a gate of the output; num_dense_layers dense layers, then experts whose bias is a parameter.

    Source: transformers 5.24.0 models/afmoe/modeling_afmoe.py.
    """
    shape = Shape(config)
    bias = config.boolean("attention_bias")
    first = config.integer("num_dense_layers", minimum=0, maximum=MAXIMUM_LAYERS)
    sparse = tuple(index for index in shape.layers if index >= first)
    dense = others(shape.layers, sparse)
    heads_width = shape.num_attention_heads * shape.head_dim
    facts: dict[str, Any] = {}
    body = block(shape, shape.layers, qkv_bias=bias, o_bias=bias, qk_norm="head", norms=NORMS)
    body += linear(
        f"{LAYER}.self_attn.gate_proj", heads_width, shape.hidden_size, "attention", shape.layers, shard=COLUMN
    )
    if sparse:
        numbers = routed(config, experts=("num_experts", "num_local_experts"))
        facts.update(numbers.facts())
        module = f"{LAYER}.mlp"
        body += experts(
            module, sparse, numbers.num_experts, shape.hidden_size, numbers.moe_intermediate_size, router="router.gate"
        )
        body.append(Tensor(f"{module}.expert_bias", (numbers.num_experts,), "router", sparse, dtype="float32"))
        shared = config.integer("num_shared_experts", minimum=0, maximum=MAXIMUM_EXPERTS)
        width = shared * numbers.moe_intermediate_size
        body += shared_mlp(f"{module}.shared_experts", sparse, shape.hidden_size, width)
    if dense:
        facts["intermediate_size"] = config.integer("intermediate_size")
        body += dense_block(f"{LAYER}.mlp", dense, shape.hidden_size, facts["intermediate_size"])
    kinds = config.layer_types(shape.num_hidden_layers)
    if kinds is None:
        kinds = every_nth_full(
            shape.num_hidden_layers, config.integer("global_attn_every_n_layers", maximum=MAXIMUM_LAYERS)
        )
    window = config.optional_integer("sliding_window")
    caches = attention_caches(config, kinds, shape.num_key_value_heads, shape.head_dim, sliding_window=window)
    return assemble(config, shape, body, caches, prefix=prefix, **facts)
