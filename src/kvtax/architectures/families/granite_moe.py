"""Granite MoE (3.x), with a shared MLP (`granitemoeshared`) and with windows (`granitemoe_swa`)."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import Shape, assemble, attention_caches
from kvtax.architectures.mixture import LAYER, Routed, block, routed
from kvtax.architectures.tensors import COLUMN, EXPERT, ROW, Tensor, linear


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention and experts in every layer, all experts of a layer in one tensor.

    Source: transformers 5.24.0 models/granitemoe/modeling_granitemoe.py, models/granitemoeshared/modeling_granitemoeshared.py,
    models/granitemoe_swa/modeling_granitemoe_swa.py.
    """
    shape = Shape(config)
    bias = config.boolean("attention_bias")
    numbers = routed(config, experts=("num_local_experts", "num_experts"), width=("intermediate_size",))
    body = block(shape, shape.layers, qkv_bias=bias, o_bias=bias)
    body += _experts(shape, numbers)
    if config.model_type != "granitemoe":
        body += _shared(shape, config.integer("shared_intermediate_size", minimum=0))
    kinds = ["full_attention"] * shape.num_hidden_layers
    if config.model_type == "granitemoe_swa":
        kinds = config.layer_types(shape.num_hidden_layers) or [
            "sliding_attention" if index % 4 else "full_attention" for index in shape.layers
        ]
        body.append(
            Tensor(f"{LAYER}.self_attn.sinks", (shape.num_attention_heads,), "attention", shape.layers, shard=COLUMN)
        )
    window = config.optional_integer("sliding_window")
    caches = attention_caches(config, kinds, shape.num_key_value_heads, shape.head_dim, sliding_window=window)
    return assemble(
        config, shape, body, caches, prefix=prefix, intermediate_size=numbers.moe_intermediate_size, **numbers.facts()
    )


def _experts(shape: Shape, numbers: Routed) -> list[Tensor]:
    """The router and the experts' gate and up (in one) and down matrices."""
    count, width, hidden = numbers.num_experts, numbers.moe_intermediate_size, shape.hidden_size
    module, layers = f"{LAYER}.block_sparse_moe", shape.layers
    return [
        Tensor(f"{module}.router.layer.weight", (count, hidden), "router", layers),
        Tensor(
            f"{module}.input_linear.weight",
            (count, 2 * width, hidden),
            "routed_experts",
            layers,
            shard=EXPERT,
            linear=True,
        ),
        Tensor(
            f"{module}.output_linear.weight",
            (count, hidden, width),
            "routed_experts",
            layers,
            shard=EXPERT,
            linear=True,
        ),
    ]


def _shared(shape: Shape, width: int) -> list[Tensor]:
    """A gated MLP beside the experts; none where its width is 0."""
    if not width:
        return []
    module, layers, hidden = f"{LAYER}.shared_mlp", shape.layers, shape.hidden_size
    return [
        *linear(f"{module}.input_linear", 2 * width, hidden, "shared_experts", layers, shard=COLUMN),
        *linear(f"{module}.output_linear", hidden, width, "shared_experts", layers, shard=ROW),
    ]
