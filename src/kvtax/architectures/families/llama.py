"""Llama and the decoders that have exactly its shape."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import Shape, assemble, attention, attention_caches, gated_mlp
from kvtax.architectures.tensors import norm
from kvtax.architectures.windows import listed


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention, gated MLP, two RMS norms a layer.

    Source: transformers 5.24.0 models/llama/modeling_llama.py.
    """
    shape = Shape(config)
    intermediate_size = config.integer("intermediate_size")
    attention_bias = config.boolean("attention_bias")
    layer = "model.layers.*"
    body = [
        *attention(
            f"{layer}.self_attn", shape.layers, shape.hidden_size, shape.num_attention_heads, shape.num_key_value_heads,
            shape.head_dim, qkv_bias=attention_bias, o_bias=attention_bias,
        ),
        *gated_mlp(f"{layer}.mlp", shape.layers, shape.hidden_size, intermediate_size, bias=config.boolean("mlp_bias")),
        *norm(f"{layer}.input_layernorm", shape.hidden_size, shape.layers),
        *norm(f"{layer}.post_attention_layernorm", shape.hidden_size, shape.layers),
    ]  # fmt: skip
    kinds, window = listed(config, shape.num_hidden_layers)
    caches = attention_caches(config, kinds, shape.num_key_value_heads, shape.head_dim, sliding_window=window)
    return assemble(config, shape, body, caches, prefix=prefix, intermediate_size=intermediate_size)
