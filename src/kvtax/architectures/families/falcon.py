"""Falcon 1."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import Shape
from kvtax.architectures.layout import Layout, build_layout, square_head_dim

_FALCON = Layout(
    root="transformer",
    layers="h",
    embed="word_embeddings",
    final_norm="ln_f",
    norm_bias=True,
    attention="self_attention",
    qkv=("query_key_value",),
    qkv_bias="bias",
    o_proj="dense",
    o_bias="bias",
    mlp=("dense_h_to_4h", "dense_4h_to_h"),
    mlp_bias="bias",
    any_head_dim=False,
)


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Multi-query attention, or groups in the new decoder architecture; attention and MLP may share one norm.

    The cache holds the key/value heads that the weights have, as engines keep it, not the copies per query head
    that transformers makes in the new decoder architecture.

    Source: transformers 5.24.0 models/falcon.
    """
    shape = Shape(config)
    # n_embed of older files replaces hidden_size
    shape.hidden_size = config.optional_integer("n_embed") or shape.hidden_size
    shape.head_dim = square_head_dim(shape)
    new_architecture = config.boolean("new_decoder_architecture")
    if new_architecture:
        shape.num_key_value_heads = config.optional_integer("num_kv_heads") or shape.num_attention_heads
        if shape.num_attention_heads % shape.num_key_value_heads:
            config.fail("num_kv_heads", f"does not divide num_attention_heads {shape.num_attention_heads}")
    else:
        shape.num_key_value_heads = 1 if config.boolean("multi_query") else shape.num_attention_heads
    layout = _FALCON
    if config.boolean("alibi"):
        layout = layout._replace(rotary=0.0)
    if config.boolean("parallel_attn"):
        norms = config.optional_integer("num_ln_in_parallel_attn", minimum=0)
        two = new_architecture if norms is None else norms == 2
        layout = layout._replace(norms=("ln_attn", "ln_mlp") if two else ("input_layernorm",))
    width = config.optional_integer("ffn_hidden_size") or 4 * shape.hidden_size
    return build_layout(config, layout, prefix=prefix, shape=shape, intermediate_size=width)
