"""gpt-oss: attention with sinks, windows in every second layer, experts with biases."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import Shape, assemble, attention_caches
from kvtax.architectures.mixture import LAYER, Routed, block, routed
from kvtax.architectures.tensors import COLUMN, EXPERT, Tensor


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention with one sink per query head, and experts whose tensors hold all experts of a layer.

    Source: transformers 5.24.0 models/gpt_oss/modeling_gpt_oss.py; names and layout of the experts: openai/gpt-oss-20b.
    """
    shape = Shape(config)
    bias = config.boolean("attention_bias", default=True)
    numbers = routed(
        config, experts=("num_local_experts", "num_experts"), used=("num_experts_per_tok", "experts_per_token"),
        width=("intermediate_size",),
    )  # fmt: skip
    body = block(shape, shape.layers, qkv_bias=bias, o_bias=bias)
    body.append(
        Tensor(f"{LAYER}.self_attn.sinks", (shape.num_attention_heads,), "attention", shape.layers, shard=COLUMN)
    )
    body += _experts(shape, numbers)
    kinds = config.layer_types(shape.num_hidden_layers)
    if kinds is None:
        kinds = ["full_attention" if index % 2 else "sliding_attention" for index in shape.layers]
    window = config.optional_integer("sliding_window")
    caches = attention_caches(config, kinds, shape.num_key_value_heads, shape.head_dim, sliding_window=window)
    return assemble(
        config, shape, body, caches, prefix=prefix, intermediate_size=numbers.moe_intermediate_size, **numbers.facts()
    )


def _experts(shape: Shape, numbers: Routed) -> list[Tensor]:
    """Router and experts, each expert's matrices [out, in] as its quantised blocks have them."""
    count, width, hidden = numbers.num_experts, numbers.moe_intermediate_size, shape.hidden_size
    module, layers = f"{LAYER}.mlp", shape.layers

    def expert(name: str, *sizes: int, linear: bool = False) -> Tensor:
        return Tensor(
            f"{module}.experts.{name}", (count, *sizes), "routed_experts", layers, shard=EXPERT, linear=linear
        )

    return [
        Tensor(f"{module}.router.weight", (count, hidden), "router", layers),
        Tensor(f"{module}.router.bias", (count,), "router", layers),
        expert("gate_up_proj", 2 * width, hidden, linear=True),
        expert("gate_up_proj_bias", 2 * width),
        expert("down_proj", hidden, width, linear=True),
        expert("down_proj_bias", hidden),
    ]
