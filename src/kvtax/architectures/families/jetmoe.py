"""JetMoE: experts of the MLP and of the attention's query and output projections."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_HEADS, Config
from kvtax.architectures.decoder import Shape, assemble, attention_caches
from kvtax.architectures.mixture import LAYER, Routed, routed
from kvtax.architectures.tensors import EXPERT, HEADS, Tensor, linear, norm


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A token's experts make num_key_value_heads query heads each; keys and values are the same for all of them.

    Source: transformers 5.24.0 models/jetmoe/modeling_jetmoe.py.
    """
    numbers = routed(config, experts=("num_local_experts", "num_experts"), width=("intermediate_size",))
    kv_heads = config.integer("num_key_value_heads", maximum=MAXIMUM_HEADS)
    shape = Shape(config.retyped(num_attention_heads=kv_heads * numbers.num_experts_per_tok))
    width = shape.num_key_value_heads * shape.head_dim
    hidden, layers = shape.hidden_size, shape.layers
    attention = f"{LAYER}.self_attention"
    body = [
        *_experts(f"{attention}.experts", layers, hidden, numbers, width, width),
        *linear(f"{attention}.kv_proj", 2 * width, hidden, "attention", layers, shard=HEADS, heads=(0, kv_heads)),
        *_experts(
            f"{LAYER}.mlp", layers, hidden, numbers, 2 * numbers.moe_intermediate_size, numbers.moe_intermediate_size
        ),
        *norm(f"{LAYER}.input_layernorm", hidden, layers),
        *norm(f"{LAYER}.post_attention_layernorm", hidden, layers),
    ]
    caches = attention_caches(
        config, ["full_attention"] * shape.num_hidden_layers, shape.num_key_value_heads, shape.head_dim
    )
    return assemble(
        config, shape, body, caches, prefix=prefix, intermediate_size=numbers.moe_intermediate_size, **numbers.facts()
    )


def _experts(
    module: str, layers: tuple[int, ...], hidden_size: int, numbers: Routed, input_width: int, output_width: int
) -> list[Tensor]:
    """Router, the experts' input and output matrices (all experts in one tensor), and the bias that they share."""
    count = numbers.num_experts
    return [
        Tensor(f"{module}.router.layer.weight", (count, hidden_size), "router", layers),
        Tensor(
            f"{module}.input_linear.weight",
            (count, input_width, hidden_size),
            "routed_experts",
            layers,
            shard=EXPERT,
            linear=True,
        ),
        Tensor(
            f"{module}.output_linear.weight",
            (count, hidden_size, output_width),
            "routed_experts",
            layers,
            shard=EXPERT,
            linear=True,
        ),
        Tensor(f"{module}.bias", (hidden_size,), "other", layers),
    ]
