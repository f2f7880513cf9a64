"""Inkling: windowed and full attention of different heads, short convolutions on keys, values and both branches, experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache, Recurrent, SlidingWindow, State
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.decoder import Shape, assemble, layers_where
from kvtax.architectures.mixture import Routed, routed
from kvtax.architectures.recurrent import convolution, kernel_size
from kvtax.architectures.tensors import COLUMN, EXPERT, HEADS, ROW, Tensor, linear, norm

ROOT = "model.llm"
LAYER = f"{ROOT}.layers.*"
FULL, SLIDING = "hybrid", "hybrid_sliding"


class Heads(NamedTuple):
    """The attention of one kind of layer; `extent` is how far back its learned position bias reaches [tokens]."""

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    extent: int
    window: int | None = None

    @property
    def width(self) -> int:
        """Width of all keys [elements]."""
        return self.num_key_value_heads * self.head_dim

    def caches(self, hidden_size: int, kernel: int) -> tuple[LayerCache, LayerCache]:
        """Keys and values, and the inputs of four convolutions, which the model keeps in float32."""
        shape = (self.num_key_value_heads, self.head_dim, self.head_dim)
        columns = kernel - 1
        states = [State("conv", (width, columns), dtype="float32") for width in (self.width, self.width)]
        states += [State("conv", (hidden_size, columns), axis=-1, dtype="float32")] * 2
        kept = SlidingWindow(*shape, self.window) if self.window is not None else FullAttention(*shape)
        return kept, Recurrent("short_conv", tuple(states))


class Hybrid(Shape):
    """The numbers that both generations share: two kinds of heads, the relative states, the kernel."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tied = False  # embedding and unembedding are separate in both generations
        self.head_dim = config.integer("head_dim")
        window = config.integer("sliding_window_size", "sliding_window")
        self.kinds = layer_kinds(config, self.num_hidden_layers)
        self.d_rel = config.integer("d_rel")
        self.kernel = kernel_size(config, "conv_kernel_size")
        self.heads = {
            FULL: Heads(
                self.num_attention_heads, self.num_key_value_heads, self.head_dim, config.integer("rel_extent")
            ),
            SLIDING: _sliding(config, window),
        }

    def caches(self) -> list[LayerCache]:
        """Two for each layer."""
        pairs = {kind: heads.caches(self.hidden_size, self.kernel) for kind, heads in self.heads.items()}
        return [cache for kind in self.kinds for cache in pairs[kind]]

    def cache_layers(self) -> list[int]:
        """The layer of each."""
        return [index for index in self.layers for _ in range(2)]


def _sliding(config: Config, window: int) -> Heads:
    heads = config.integer("swa_num_attention_heads", maximum=65_536)
    kv_heads = config.integer("swa_num_key_value_heads", maximum=65_536)
    if heads % kv_heads:
        config.fail("swa_num_key_value_heads", f"{kv_heads} does not divide swa_num_attention_heads {heads}")
    return Heads(heads, kv_heads, config.integer("swa_head_dim"), window, window)


def layer_kinds(config: Config, num_hidden_layers: int) -> list[str]:
    """layer_types, else the windows that local_layer_ids lists, else full attention in every sixth layer."""
    kinds = config.layer_types(num_hidden_layers)
    if kinds is None:
        local = config.integers("local_layer_ids", maximum=MAXIMUM_LAYERS)
        if local is None:
            return [SLIDING if (index + 1) % 6 else FULL for index in range(num_hidden_layers)]
        found = frozenset(local)
        return [SLIDING if index in found else FULL for index in range(num_hidden_layers)]
    for kind in kinds:
        if kind not in (FULL, SLIDING):
            config.unsupported("layer_types", f"layer type {describe(kind)} is not understood")
    return kinds


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Attention with learned relative positions, convolutions behind attention and MLP, routed and shared experts.

    Source: transformers 5.24.0 models/inkling/modeling_inkling.py (checkpoint names: conversion_mapping.py).
    """
    shape = Hybrid(config)
    hidden = shape.hidden_size
    sparse = _sparse(config, shape)
    dense = tuple(index for index in shape.layers if index not in set(sparse))
    body = norm(f"{ROOT}.embed_norm", hidden)
    for kind, heads in shape.heads.items():
        body += _attention(shape, heads, layers_where(shape.kinds, kind))
    for name in ("attn_norm", "mlp_norm"):
        body += norm(f"{LAYER}.{name}", hidden, shape.layers)
    for name in ("attn_sconv", "mlp_sconv"):
        body += float32(convolution(f"{LAYER}.{name}", hidden, shape.kernel, shape.layers, shard="replicated"))
    facts: dict[str, Any] = {}
    if dense:
        facts["intermediate_size"] = config.integer("dense_intermediate_size", "intermediate_size")
        body += _dense(hidden, facts["intermediate_size"], dense)
    if sparse:
        moe = _routed(config)
        facts.update(moe.facts())
        body += experts(hidden, moe, sparse)
        body += _shared(config, hidden, moe, sparse)
    return assemble(
        config, shape, body, shape.caches(), prefix=prefix, cache_layers=shape.cache_layers(), rotary_dim=0,
        embed_name=f"{ROOT}.embed", head_name=f"{ROOT}.unembed", final_norm=norm(f"{ROOT}.norm", hidden), **facts,
    )  # fmt: skip


def float32(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same tensors, which the model keeps in float32."""
    return [tensor._replace(dtype="float32") for tensor in tensors]


def _sparse(config: Config, shape: Shape) -> tuple[int, ...]:
    """mlp_layer_types, else all layers from dense_mlp_idx on."""
    kinds = config.layer_types(shape.num_hidden_layers, "mlp_layer_types")
    if kinds is None:
        return shape.layers[config.integer("dense_mlp_idx", default=0, minimum=0) :]
    for kind in kinds:
        if kind not in ("dense", "sparse"):
            config.unsupported("mlp_layer_types", f"MLP type {describe(kind)} is not understood")
    return layers_where(kinds, "sparse")


def _routed(config: Config) -> Routed:
    """With dense_intermediate_size, intermediate_size is that of the experts."""
    width = "intermediate_size" if config.states("dense_intermediate_size") else "moe_intermediate_size"
    return routed(config, experts=("n_routed_experts", "num_local_experts"), width=(width,))


def _attention(shape: Hybrid, heads: Heads, layers: tuple[int, ...]) -> list[Tensor]:
    """Projections of query, key, value and relative states, convolutions over keys and values, norms, the bank of biases."""
    if not layers:
        return []
    name, hidden, queries = f"{LAYER}.attn", shape.hidden_size, heads.num_attention_heads
    width, kv_heads = heads.width, (0, heads.num_key_value_heads)
    found = [
        *linear(f"{name}.wq_du", queries * heads.head_dim, hidden, "attention", layers, shard=COLUMN),
        *linear(f"{name}.wk_dv", width, hidden, "attention", layers, shard=HEADS, heads=kv_heads),
        *linear(f"{name}.wv_dv", width, hidden, "attention", layers, shard=HEADS, heads=kv_heads),
        *linear(f"{name}.wr_du", queries * shape.d_rel, hidden, "attention", layers, shard=COLUMN),
        *linear(f"{name}.wo_ud", hidden, queries * heads.head_dim, "attention", layers, shard=ROW),
    ]
    for part in ("k_sconv", "v_sconv"):
        weight = Tensor(f"{name}.{part}.weight", (width, 1, shape.kernel), "linear_or_ssm", layers, shard=HEADS)
        found.append(weight._replace(heads=kv_heads, dtype="float32"))
    for part in ("q_norm", "k_norm"):
        found += norm(f"{name}.{part}", heads.head_dim, layers)
    return [*found, Tensor(f"{name}.rel_logits_proj.proj", (shape.d_rel, heads.extent), "attention", layers)]


def _dense(hidden: int, width: int, layers: tuple[int, ...]) -> list[Tensor]:
    """Gate and up in one matrix, down, and a scale of one element."""
    name = f"{LAYER}.mlp"
    return [
        *linear(f"{name}.w13_dn", 2 * width, hidden, "mlp", layers, shard=COLUMN),
        *linear(f"{name}.w2_md", hidden, width, "mlp", layers, shard=ROW),
        Tensor(f"{name}.global_scale", (1,), "mlp", layers),
    ]


def experts(hidden: int, moe: Routed, layers: tuple[int, ...]) -> list[Tensor]:
    """All routed experts of a layer in two tensors, and the bias that the router chooses with."""
    name, count, width = f"{LAYER}.mlp", moe.num_experts, moe.moe_intermediate_size
    up, down = (count, 2 * width, hidden), (count, hidden, width)
    return [
        Tensor(f"{name}.experts.w13_weight", up, "routed_experts", layers, shard=EXPERT, linear=True),
        Tensor(f"{name}.experts.w2_weight", down, "routed_experts", layers, shard=EXPERT, linear=True),
        Tensor(f"{name}.gate.bias", (count,), "router", layers, parameter=False, dtype="float32"),
    ]


def _shared(config: Config, hidden: int, moe: Routed, layers: tuple[int, ...]) -> list[Tensor]:
    """A router that scores routed and shared experts, its scale, and the shared experts in two tensors."""
    shared = config.integer("n_shared_experts", minimum=0, maximum=MAXIMUM_EXPERTS)
    name, width = f"{LAYER}.mlp", moe.moe_intermediate_size
    found = [
        Tensor(f"{name}.gate.weight", (moe.num_experts + shared, hidden), "router", layers),
        Tensor(f"{name}.gate.global_scale", (1,), "router", layers, dtype="float32"),
    ]
    if shared:
        module = f"{name}.shared_experts"
        up, down = (shared, 2 * width, hidden), (shared, hidden, width)
        found.append(Tensor(f"{module}.shared_w13_weight", up, "shared_experts", layers, shard=COLUMN, linear=True))
        found.append(Tensor(f"{module}.shared_w2_weight", down, "shared_experts", layers, shard=ROW, linear=True))
    return found
