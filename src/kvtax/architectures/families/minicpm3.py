"""MiniCPM3: latent attention with a gated MLP in every layer."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import assemble
from kvtax.architectures.latent import LatentDecoder, dense_block, latent_attention, latent_caches
from kvtax.architectures.tensors import norm


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Latent attention, gated MLP, two RMS norms a layer; v_head_dim null is hidden_size // num_attention_heads.

    Source: transformers 5.24.0 models/minicpm3/modeling_minicpm3.py, configuration_minicpm3.py.
    """
    shape = LatentDecoder(config, value_from_hidden=True)
    intermediate_size = config.integer("intermediate_size")
    layer = "model.layers.*"
    body = [
        *latent_attention(f"{layer}.self_attn", shape.layers, shape.latent, bias=config.boolean("attention_bias")),
        *dense_block(
            f"{layer}.mlp", shape.layers, shape.hidden_size, intermediate_size, bias=config.boolean("mlp_bias")
        ),
        *norm(f"{layer}.input_layernorm", shape.hidden_size, shape.layers),
        *norm(f"{layer}.post_attention_layernorm", shape.hidden_size, shape.layers),
    ]
    caches = latent_caches(shape.latent, shape.num_hidden_layers)
    rotary_dim = shape.latent.qk_rope_head_dim
    return assemble(
        config, shape, body, caches, prefix=prefix, intermediate_size=intermediate_size, rotary_dim=rotary_dim
    )
