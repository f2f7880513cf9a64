"""Olmo Hybrid: Gated DeltaNet layers with separate projections, post-normed attention every so many."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import Shape, assemble, attention, gated_mlp, layers_where
from kvtax.architectures.recurrent import COMPONENT, GatedDeltaNet, convolution, kernel_size, layer_kinds, state_dtypes
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, linear, norm


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Pre-normed Gated DeltaNet or attention with norms over all queries and all keys, each with a gated MLP.

    Source: transformers 5.24.0 models/olmo_hybrid/modeling_olmo_hybrid.py (checkpoint names: conversion_mapping.py).
    """
    shape = Shape(config)
    hidden = shape.hidden_size
    intermediate_size = config.integer("intermediate_size")
    kinds = layer_kinds(config, shape.num_hidden_layers, ("full_attention", "linear_attention")) or _default_kinds(
        shape
    )
    recurring, attending = layers_where(kinds, "linear_attention"), layers_where(kinds, "full_attention")
    delta = _mixer(config, shape)
    layer, bias = "model.layers.*", config.boolean("attention_bias")
    body = gated_mlp(f"{layer}.mlp", shape.layers, hidden, intermediate_size)
    if recurring:
        body += _delta(delta, f"{layer}.linear_attn", recurring)
        body += norm(f"{layer}.attention_layer_norm", hidden, recurring)
        body += norm(f"{layer}.feedforward_layer_norm", hidden, recurring)
    if attending:
        body += attention(
            f"{layer}.self_attn", attending, hidden, shape.num_attention_heads, shape.num_key_value_heads,
            shape.head_dim, qkv_bias=bias, o_bias=bias, qk_norm="full",
        )  # fmt: skip
        body += norm(f"{layer}.post_attention_layernorm", hidden, attending)
        body += norm(f"{layer}.post_feedforward_layernorm", hidden, attending)
    full = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)
    recurrent = delta.cache(state_dtypes(config))
    caches: list[LayerCache] = [full if kind == "full_attention" else recurrent for kind in kinds]
    return assemble(config, shape, body, caches, prefix=prefix, intermediate_size=intermediate_size)


def _default_kinds(shape: Shape) -> list[str]:
    """Attention on every fourth layer, or on the last where there are fewer than four."""
    kinds = ["full_attention" if index % 4 == 3 else "linear_attention" for index in shape.layers]
    if "full_attention" not in kinds:
        kinds[-1] = "full_attention"
    return kinds


def _mixer(config: Config, shape: Shape) -> GatedDeltaNet:
    """Keys take three quarters of the residual stream and values twice as much as keys, unless stated."""
    num_k_heads = config.optional_integer("linear_num_key_heads") or shape.num_attention_heads
    num_v_heads = config.optional_integer("linear_num_value_heads") or shape.num_attention_heads
    head_k_dim = config.optional_integer("linear_key_head_dim") or int(0.75 * shape.hidden_size / num_k_heads)
    if head_k_dim < 1:
        config.fail("linear_num_key_heads", f"{num_k_heads} heads do not fit in hidden_size {shape.hidden_size}")
    if num_v_heads % num_k_heads:
        config.fail("linear_num_key_heads", f"{num_k_heads} does not divide linear_num_value_heads {num_v_heads}")
    head_v_dim = config.optional_integer("linear_value_head_dim") or 2 * head_k_dim
    kernel = kernel_size(config, "linear_conv_kernel_dim")
    return GatedDeltaNet(shape.hidden_size, num_k_heads, num_v_heads, head_k_dim, head_v_dim, kernel)


def _delta(delta: GatedDeltaNet, prefix: str, layers: tuple[int, ...]) -> list[Tensor]:
    hidden, keys, values, heads = delta.hidden_size, delta.key_dim, delta.value_dim, delta.num_v_heads
    found = [Tensor(f"{prefix}.{name}", (heads,), COMPONENT, layers, shard=COLUMN) for name in ("A_log", "dt_bias")]
    for name, width in (("q", keys), ("k", keys), ("v", values)):
        found += convolution(f"{prefix}.{name}_conv1d", width, delta.conv_kernel, layers)
    for name, width in (("q", keys), ("k", keys), ("v", values), ("a", heads), ("b", heads), ("g", values)):
        found += linear(f"{prefix}.{name}_proj", width, hidden, COMPONENT, layers, shard=COLUMN)
    found += linear(f"{prefix}.o_proj", hidden, values, COMPONENT, layers, shard=ROW)
    return [*found, *norm(f"{prefix}.o_norm", delta.head_v_dim, layers)]
