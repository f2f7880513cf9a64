"""MiniMax-Text-01 and M1: lightning (linear) attention, full attention every so many layers, experts in each."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache, Recurrent, State
from kvtax.architectures.config import MAXIMUM_EXPERTS, Config, describe
from kvtax.architectures.decoder import Shape, assemble, attention, experts, gated_mlp, layers_where
from kvtax.architectures.recurrent import COMPONENT, layer_kinds, state_dtypes
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, linear, norm

_ATTENTION = {0: "linear_attention", 1: "full_attention"}
_REMOTE = ("MiniMaxText01", "MiniMaxM1", "minimax_m1")  # other names of one configuration class


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Gated linear attention over fused projections or grouped-query attention, then routed experts.

    The decay tables that transformers keeps as buffers are computed, not stored.

    Source: transformers 5.24.0 models/minimax/modeling_minimax.py (checkpoint names: conversion_mapping.py);
    vllm 0.33.0 models/minimax_text_01.py for the keys of the original files.
    """
    config = config.retyped("minimax_text_01") if config.model_type in _REMOTE else config
    shape = Shape(config)
    hidden, width = shape.hidden_size, shape.num_attention_heads * shape.head_dim
    kinds = _kinds(config, shape.num_hidden_layers)
    recurring, attending = layers_where(kinds, "linear_attention"), layers_where(kinds, "full_attention")
    intermediate_size = config.integer("intermediate_size")
    num_experts = config.integer("num_local_experts", "num_experts", maximum=MAXIMUM_EXPERTS)
    layer = "model.layers.*"
    body = [
        *norm(f"{layer}.input_layernorm", hidden, shape.layers),
        *norm(f"{layer}.post_attention_layernorm", hidden, shape.layers),
        *experts(
            f"{layer}.block_sparse_moe", shape.layers, num_experts, hidden, intermediate_size, names=("w1", "w3", "w2")
        ),
        *_shared_mlp(config, hidden, layer, shape.layers),
    ]
    if recurring:
        body += _lightning_attention(f"{layer}.self_attn", hidden, width, recurring)
    if attending:
        heads = (shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim)
        body += attention(f"{layer}.self_attn", attending, hidden, *heads)
    full = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)
    dtypes = state_dtypes(config)
    state = State("recurrent", (shape.num_attention_heads, shape.head_dim, shape.head_dim))
    recurrent = Recurrent("linear_attention", (state,), dtypes.model, dtypes.ssm)
    caches: list[LayerCache] = [full if kind == "full_attention" else recurrent for kind in kinds]
    return assemble(
        config, shape, body, caches, prefix=prefix, num_experts=num_experts, moe_intermediate_size=intermediate_size,
        num_experts_per_tok=config.integer("num_experts_per_tok", maximum=num_experts),
        rotary_dim=config.optional_integer("rotary_dim", maximum=shape.head_dim) or shape.head_dim,
    )  # fmt: skip


def _kinds(config: Config, num_hidden_layers: int) -> list[str]:
    """layer_types, else attn_type_list (0 linear, 1 full), else full attention on every other layer."""
    kinds = layer_kinds(config, num_hidden_layers, tuple(_ATTENTION.values()))
    if kinds is not None:
        return kinds
    stated = config.integers("attn_type_list", "decoder_attention_types", length=num_hidden_layers)
    if stated is None:
        if config.model_type != "minimax":
            config.fail("attn_type_list", "is missing, and its model type has no default for it")
        return ["linear_attention" if index % 2 else "full_attention" for index in range(num_hidden_layers)]
    for index, kind in enumerate(stated):
        if kind not in _ATTENTION:
            config.unsupported(f"attn_type_list[{index}]", f"attention type {describe(kind)} is not understood")
    return [_ATTENTION[kind] for kind in stated]


def _lightning_attention(prefix: str, hidden: int, width: int, layers: tuple[int, ...]) -> list[Tensor]:
    """Queries, keys and values in one projection, an output gate, and a norm over all heads."""
    return [
        *linear(f"{prefix}.qkv_proj", 3 * width, hidden, COMPONENT, layers, shard=COLUMN),
        *linear(f"{prefix}.output_gate", width, hidden, COMPONENT, layers, shard=COLUMN),
        *linear(f"{prefix}.out_proj", hidden, width, COMPONENT, layers, shard=ROW),
        *norm(f"{prefix}.norm", width, layers, shard=COLUMN),
    ]


def _shared_mlp(config: Config, hidden: int, layer: str, layers: tuple[int, ...]) -> list[Tensor]:
    """A shared MLP with a learned share of the output, in layers where shared_intermediate_size is not 0."""
    value = config.get("shared_intermediate_size")
    if isinstance(value, list):
        widths = config.integers("shared_intermediate_size") or []
        if len(widths) not in (0, 1, len(layers)):
            config.fail("shared_intermediate_size", f"has {len(widths)} items, but the model has {len(layers)} layers")
        widths = widths * len(layers) if len(widths) == 1 else widths
    else:
        widths = [config.integer("shared_intermediate_size", default=0, minimum=0)] * len(layers)
    found: list[Tensor] = []
    for width in sorted(set(widths) - {0}):
        where = tuple(index for index, own in zip(layers, widths, strict=True) if own == width)
        found += gated_mlp(f"{layer}.shared_mlp", where, hidden, width, component="shared_experts")
        found.append(Tensor(f"{layer}.coefficient.weight", (1, hidden), "router", where))
    return found
