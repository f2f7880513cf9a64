"""OLMoE and FlexOlmo."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import Shape, assemble, attention_caches, experts
from kvtax.architectures.mixture import LAYER, block, routed
from kvtax.architectures.tensors import norm


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Attention with norms over all query and key heads, experts in every layer; FlexOlmo has its norms behind attention and MLP.

    Source: transformers 5.24.0 models/olmoe/modeling_olmoe.py, models/flex_olmo/modeling_flex_olmo.py.
    """
    shape = Shape(config)
    flex = config.model_type == "flex_olmo"
    bias = config.boolean("attention_bias")
    numbers = routed(config, experts=("num_experts", "num_local_experts"), width=("intermediate_size",))
    names = (
        ("post_attention_layernorm", "post_feedforward_layernorm")
        if flex
        else ("input_layernorm", "post_attention_layernorm")
    )
    body = block(shape, shape.layers, qkv_bias=bias, o_bias=bias, qk_norm="full" if flex else "", norms=names)
    if not flex:
        # these two do not follow a head_dim that the config may state
        key_width = shape.hidden_size // shape.num_attention_heads * shape.num_key_value_heads
        body += norm(f"{LAYER}.self_attn.q_norm", shape.hidden_size, shape.layers)
        body += norm(f"{LAYER}.self_attn.k_norm", key_width, shape.layers)
    body += experts(f"{LAYER}.mlp", shape.layers, numbers.num_experts, shape.hidden_size, numbers.moe_intermediate_size)
    kinds = ["full_attention"] * shape.num_hidden_layers
    caches = attention_caches(config, kinds, shape.num_key_value_heads, shape.head_dim)
    return assemble(
        config, shape, body, caches, prefix=prefix, intermediate_size=numbers.moe_intermediate_size, **numbers.facts()
    )
