"""Falcon H1: attention and a Mamba 2 mixer side by side in every layer."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import Shape, assemble, attention, gated_mlp
from kvtax.architectures.families.bamba import mamba2_mixer
from kvtax.architectures.recurrent import state_dtypes
from kvtax.architectures.tensors import norm


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention and Mamba 2 read the same normed input; a gated MLP follows. Each layer keeps two caches.

    Source: transformers 5.24.0 models/falcon_h1/modeling_falcon_h1.py.
    """
    shape = Shape(config)
    hidden = shape.hidden_size
    intermediate_size = config.integer("intermediate_size")
    bias = config.boolean("attention_bias")
    mixer = mamba2_mixer(config, hidden, out_bias="projectors_bias", gated_norm=config.boolean("mamba_rms_norm"))
    layer = "model.layers.*"
    body = [
        *attention(
            f"{layer}.self_attn", shape.layers, hidden, shape.num_attention_heads, shape.num_key_value_heads,
            shape.head_dim, qkv_bias=bias, o_bias=bias,
        ),
        *mixer.tensors(f"{layer}.mamba", shape.layers),
        *gated_mlp(f"{layer}.feed_forward", shape.layers, hidden, intermediate_size, bias=config.boolean("mlp_bias")),
        *norm(f"{layer}.input_layernorm", hidden, shape.layers),
        *norm(f"{layer}.pre_ff_layernorm", hidden, shape.layers),
    ]  # fmt: skip
    full = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)
    caches: list[LayerCache] = [full, mixer.cache(state_dtypes(config))] * shape.num_hidden_layers
    return assemble(
        config, shape, body, caches, prefix=prefix, final_norm=norm("model.final_layernorm", hidden),
        cache_layers=[index for index in shape.layers for _ in range(2)], intermediate_size=intermediate_size,
    )  # fmt: skip
