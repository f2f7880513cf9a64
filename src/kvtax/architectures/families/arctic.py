"""Snowflake Arctic: experts beside a dense residual MLP."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble, attention_caches, experts, gated_mlp
from kvtax.architectures.mixture import LAYER, block, others, routed
from kvtax.architectures.tensors import norm

NAMES = ("w1", "w3", "w2")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention and experts; parallel_attn_mlp_res adds an MLP as wide as the residual stream to a layer with experts.

    Source: modeling_arctic.py of the model repository; vllm 0.33.0 model_executor/models/arctic.py.
    """
    shape = Shape(config)
    numbers = routed(config, experts=("num_local_experts", "num_experts"), width=("intermediate_size",))
    sparse = _sparse_layers(config, shape)
    dense = others(shape.layers, sparse)
    body = block(shape, shape.layers)
    if sparse:
        body += experts(
            f"{LAYER}.block_sparse_moe",
            sparse,
            numbers.num_experts,
            shape.hidden_size,
            numbers.moe_intermediate_size,
            names=NAMES,
        )
        if config.boolean("parallel_attn_mlp_res"):
            body += norm(f"{LAYER}.residual_layernorm", shape.hidden_size, sparse)
            body += gated_mlp(f"{LAYER}.residual_mlp", sparse, shape.hidden_size, shape.hidden_size, names=NAMES)
    if dense:
        module = f"{LAYER}.block_sparse_moe.mlp"
        body += gated_mlp(module, dense, shape.hidden_size, numbers.moe_intermediate_size, names=NAMES)
    kinds = ["full_attention"] * shape.num_hidden_layers
    caches = attention_caches(config, kinds, shape.num_key_value_heads, shape.head_dim)
    return assemble(
        config, shape, body, caches, prefix=prefix, intermediate_size=numbers.moe_intermediate_size, **numbers.facts()
    )


def _sparse_layers(config: Config, shape: Shape) -> tuple[int, ...]:
    """Every moe_layer_frequency-th layer.

    The published checkpoints have experts in all layers. Copies of their configs that were filled up with class defaults say 2,
    which is the class default, so 2 beside a residual MLP is read as no statement.
    """
    frequency = config.integer("moe_layer_frequency", maximum=MAXIMUM_LAYERS)
    if frequency == 2 and config.boolean("parallel_attn_mlp_res"):
        frequency = 1
    return tuple(index for index in shape.layers if (index + 1) % frequency == 0)
