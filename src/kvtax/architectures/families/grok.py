"""Grok-1 and Grok-2."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import Shape, assemble, attention, attention_caches, experts, gated_mlp
from kvtax.architectures.mixture import LAYER, Routed, routed
from kvtax.architectures.tensors import Tensor

NORMS = ("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention, experts in every layer, four norms; residual_moe (Grok-2) adds a dense MLP beside the experts.

    Grok-2's config calls its model type `git`, which is another model's, so that type's class defaults are not Grok-2's.
    Source: modeling_grok1.py of the model repository; sglang 0.5 srt/models/grok.py; vllm 0.33.0 model_executor/models/grok1.py.
    """
    if config.model_type == "git":
        return build(config.retyped("grok-2"), prefix=prefix).replace(model_type=config.model_type)
    shape = Shape(config)
    second = config.boolean("residual_moe")
    width = config.integer("intermediate_size")
    numbers = routed(
        config, experts=("num_experts", "num_local_experts"),
        width=("moe_intermediate_size",) if config.states("moe_intermediate_size") else ("intermediate_size",),
    )  # fmt: skip
    body = _block(shape, numbers, second)
    if second:
        body += gated_mlp(f"{LAYER}.mlp", shape.layers, shape.hidden_size, width)
    suffix = "weight" if second else "scale"
    for name in NORMS:
        body.append(Tensor(f"{LAYER}.{name}.{suffix}", (shape.hidden_size,), "norms", shape.layers))
    caches = attention_caches(
        config, ["full_attention"] * shape.num_hidden_layers, shape.num_key_value_heads, shape.head_dim
    )
    return assemble(
        config, shape, body, caches, prefix=prefix, final_norm=[Tensor(f"model.norm.{suffix}", (shape.hidden_size,), "norms")],
        intermediate_size=width, **numbers.facts(),
    )  # fmt: skip


def _block(shape: Shape, numbers: Routed, second: bool) -> list[Tensor]:
    """Attention and experts under the names of either generation's checkpoint."""
    attention_name, experts_name = ("self_attn", "block_sparse_moe") if second else ("attn", "moe_block")
    return [
        *attention(
            f"{LAYER}.{attention_name}", shape.layers, shape.hidden_size, shape.num_attention_heads, shape.num_key_value_heads,
            shape.head_dim,
        ),
        *experts(
            f"{LAYER}.{experts_name}", shape.layers, numbers.num_experts, shape.hidden_size, numbers.moe_intermediate_size,
            names=("w1", "w3", "w2") if second else ("linear", "linear_v", "linear_1"),
        ),
    ]  # fmt: skip
