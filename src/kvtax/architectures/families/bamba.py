"""Bamba and Granite 4 hybrid: Mamba 2 layers with attention in some, an MLP or experts and a shared MLP in each."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble, attention, gated_mlp, layers_where
from kvtax.architectures.recurrent import Mamba2, expanded, kernel_size, layer_kinds, state_dtypes
from kvtax.architectures.tensors import COLUMN, EXPERT, ROW, Tensor, linear, norm


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention or Mamba 2, then a gated MLP; Granite: a shared MLP and, if it has any, experts.

    Source: transformers 5.24.0 models/bamba/modeling_bamba.py, models/granitemoehybrid/modeling_granitemoehybrid.py
    (checkpoint names: conversion_mapping.py).
    """
    shape = Shape(config)
    granite = config.model_type == "granitemoehybrid"
    kinds = _granite_kinds(config, shape) if granite else _bamba_kinds(config, shape)
    attending, recurring = layers_where(kinds, "full_attention"), layers_where(kinds, "linear_attention")
    mixer = mamba2_mixer(config, shape.hidden_size)
    layer, bias = "model.layers.*", config.boolean("attention_bias")
    body = norm(f"{layer}.input_layernorm", shape.hidden_size, shape.layers)
    if attending:
        body += attention(
            f"{layer}.self_attn", attending, shape.hidden_size, shape.num_attention_heads, shape.num_key_value_heads,
            shape.head_dim, qkv_bias=bias, o_bias=bias,
        )  # fmt: skip
    if recurring:
        body += mixer.tensors(f"{layer}.mamba", recurring)
    full = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)
    recurrent = mixer.cache(state_dtypes(config))
    caches: list[LayerCache] = [full if kind == "full_attention" else recurrent for kind in kinds]
    if granite:
        return _granite(config, shape, body, caches, prefix)
    intermediate_size = config.integer("intermediate_size")
    body += norm(f"{layer}.pre_ff_layernorm", shape.hidden_size, shape.layers)
    body += gated_mlp(
        f"{layer}.feed_forward", shape.layers, shape.hidden_size, intermediate_size, bias=config.boolean("mlp_bias")
    )
    return assemble(
        config, shape, body, caches, prefix=prefix, final_norm=norm("model.final_layernorm", shape.hidden_size),
        intermediate_size=intermediate_size, rotary_dim=shape.head_dim // 2,
    )  # fmt: skip


def mamba2_mixer(
    config: Config, hidden_size: int, *, out_bias: str = "mamba_proj_bias", gated_norm: bool = True
) -> Mamba2:
    """The mixer under the key names of Bamba, Granite and Falcon H1, which may state its width as mamba_d_ssm."""
    width = config.optional_integer("mamba_d_ssm") or expanded(config, hidden_size, "mamba_expand")
    num_heads = config.integer("mamba_n_heads")
    mixer = Mamba2(
        hidden_size,
        width,
        num_heads,
        _mamba_head_dim(config, width, num_heads),
        config.integer("mamba_d_state"),
        config.integer("mamba_n_groups"),
        kernel_size(config, "mamba_d_conv"),
        conv_bias=config.boolean("mamba_conv_bias", default=True),
        in_bias=config.boolean("mamba_proj_bias"),
        out_bias=config.boolean(out_bias),
        gated_norm=gated_norm,
    )
    return mixer.check(config, "mamba_n_heads")


def _mamba_head_dim(config: Config, intermediate_size: int, num_heads: int) -> int:
    """mamba_d_head; `auto` is what fills the mixer's width."""
    if config.get("mamba_d_head") in ("auto", None):
        return intermediate_size // num_heads
    return config.integer("mamba_d_head")


def _bamba_kinds(config: Config, shape: Shape) -> list[str]:
    attending = set(config.integers("attn_layer_indices", minimum=-MAXIMUM_LAYERS) or ())
    return ["full_attention" if index in attending else "linear_attention" for index in shape.layers]


def _granite_kinds(config: Config, shape: Shape) -> list[str]:
    kinds = layer_kinds(config, shape.num_hidden_layers, ("full_attention", "linear_attention"))
    return kinds or ["linear_attention"] * shape.num_hidden_layers


def _granite(config: Config, shape: Shape, body: list[Tensor], caches: list[LayerCache], prefix: str) -> Architecture:
    """Gate and up of the shared MLP and of all experts of a layer stand in one tensor each."""
    layer, hidden, layers = "model.layers.*", shape.hidden_size, shape.layers
    shared = config.integer("shared_intermediate_size")
    num_experts = config.integer("num_local_experts", minimum=0, maximum=MAXIMUM_EXPERTS)
    width = config.integer("intermediate_size")
    body += norm(f"{layer}.post_attention_layernorm", hidden, layers)
    component = "shared_experts" if num_experts else "mlp"
    body += linear(f"{layer}.shared_mlp.input_linear", 2 * shared, hidden, component, layers, shard=COLUMN)
    body += linear(f"{layer}.shared_mlp.output_linear", hidden, shared, component, layers, shard=ROW)
    if num_experts:
        moe, routed = f"{layer}.block_sparse_moe", "routed_experts"
        body += [
            Tensor(f"{moe}.router.layer.weight", (num_experts, hidden), "router", layers),
            Tensor(
                f"{moe}.input_linear.weight",
                (num_experts, 2 * width, hidden),
                routed,
                layers,
                shard=EXPERT,
                linear=True,
            ),
            Tensor(
                f"{moe}.output_linear.weight", (num_experts, hidden, width), routed, layers, shard=EXPERT, linear=True
            ),
        ]
    return assemble(
        config, shape, body, caches, prefix=prefix, intermediate_size=shared, num_experts=num_experts,
        num_experts_per_tok=config.integer("num_experts_per_tok", maximum=num_experts) if num_experts else 0,
        moe_intermediate_size=width if num_experts else 0,
        rotary_dim=shape.head_dim if config.get("position_embedding_type") == "rope" else 0,
    )  # fmt: skip
