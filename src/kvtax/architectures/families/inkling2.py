"""Inkling 2: gated attention with sinks and learned relative positions, short convolutions, residuals over blocks of layers."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import assemble, layers_where
from kvtax.architectures.families.inkling import FULL, LAYER, ROOT, SLIDING, Heads, Hybrid, experts, float32
from kvtax.architectures.mixture import routed
from kvtax.architectures.recurrent import convolution
from kvtax.architectures.tensors import COLUMN, HEADS, ROW, Tensor, linear, norm

_QUERIES = f"{ROOT}.attn_res"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Windowed or full attention, four convolutions a layer, experts in every layer, an unembedding of its own size.

    Source: transformers 5.24.0 models/inkling2/modeling_inkling2.py (checkpoint names: conversion_mapping.py).
    """
    shape = Hybrid(config)
    hidden = shape.hidden_size
    moe = routed(config, experts=("n_routed_experts", "num_local_experts"), width=("moe_intermediate_size",))
    sliding, full = layers_where(shape.kinds, SLIDING), layers_where(shape.kinds, FULL)
    body = [
        *norm(f"{ROOT}.embed_norm", hidden),
        *_attention(shape, shape.heads[SLIDING], sliding, dynamic=False),
        *_attention(shape, shape.heads[FULL], full, dynamic=True),
        *norm(f"{LAYER}.attn_norm", hidden, sliding),
        *(tensor for part in "qkv" if full for tensor in norm(f"{LAYER}.{part}_input_norm", hidden, full)),
        *norm(f"{LAYER}.mlp_norm", hidden, shape.layers),
        Tensor(f"{LAYER}.mlp.gate.weight", (moe.num_experts, hidden), "router", shape.layers),
        *experts(hidden, moe, shape.layers),
        *_block_residuals(shape, hidden, sliding, full),
    ]
    if not sliding:
        body = [tensor for tensor in body if not tensor.name.startswith(f"{LAYER}.attn_norm")]
    for name in ("attn_sconv", "mlp_sconv"):
        body += float32(convolution(f"{LAYER}.{name}", hidden, shape.kernel, shape.layers, shard="replicated"))
    architecture = assemble(
        config, shape, body, shape.caches(), prefix=prefix, cache_layers=shape.cache_layers(), rotary_dim=0,
        embed_name=f"{ROOT}.embed", head_name=f"{ROOT}.unembed", final_norm=norm(f"{ROOT}.norm", hidden), **moe.facts(),
    )  # fmt: skip
    return _without_padding(config, architecture, f"{prefix}{ROOT}.unembed.weight")


def _without_padding(config: Config, architecture: Architecture, name: str) -> Architecture:
    """The head as it is loaded: unpadded_vocab_size rows; the file pads it to vocab_size."""
    rows = config.integer("unpadded_vocab_size")
    found = []
    for tensor in architecture.tensors:
        if tensor.name == name:
            found.append(tensor._replace(loaded=False))
            tensor = tensor._replace(shape=(rows, tensor.shape[1]), stored=False)
        found.append(tensor)
    return architecture.replace(tensors=found)


def _attention(shape: Hybrid, heads: Heads, layers: tuple[int, ...], *, dynamic: bool) -> list[Tensor]:
    """Query with a scale per element, key and value with convolutions, a gated output, sinks, relative positions.

    Full attention makes the weights of its convolutions from the layer's input (`dynamic`).
    """
    if not layers:
        return []
    name, hidden, queries = f"{LAYER}.attn", shape.hidden_size, heads.num_attention_heads
    width, kv_heads = heads.width, (0, heads.num_key_value_heads)
    found = [
        *linear(f"{name}.wq_du", queries * heads.head_dim, hidden, "attention", layers, shard=COLUMN),
        Tensor(f"{name}.q_l2_clip.scale", (queries, heads.head_dim), "norms", layers, shard=COLUMN),
        *linear(f"{name}.wk_dv", width, hidden, "attention", layers, shard=HEADS, heads=kv_heads),
        *linear(f"{name}.wv_dv", width, hidden, "attention", layers, shard=HEADS, heads=kv_heads),
        *linear(f"{name}.gate_attn", queries * heads.head_dim, hidden, "attention", layers, shard=COLUMN),
        *linear(f"{name}.wo_ud", hidden, queries * heads.head_dim, "attention", layers, shard=ROW),
        *linear(f"{name}.attn_sink_proj", queries, hidden, "attention", layers, shard=COLUMN),
        Tensor(f"{name}.rel_logits_proj.proj", (shape.d_rel, heads.extent), "attention", layers),
        *linear(f"{name}.wr_du", queries * shape.d_rel, hidden, "attention", layers, shard=COLUMN),
        Tensor(f"{name}.rel_l2_clip.scale", (queries, shape.d_rel), "norms", layers, shard=COLUMN),
    ]
    for part in ("k_sconv", "v_sconv"):
        if dynamic:
            taps = heads.num_key_value_heads * shape.kernel
            found.append(Tensor(f"{name}.{part}.static_w", (shape.kernel, width), "linear_or_ssm", layers))
            found.append(Tensor(f"{name}.{part}.weight_proj", (taps, hidden), "linear_or_ssm", layers))
        else:
            weight = Tensor(f"{name}.{part}.weight", (width, 1, shape.kernel), "linear_or_ssm", layers, shard=HEADS)
            found.append(weight._replace(heads=kv_heads, dtype="float32"))
    return found


def _block_residuals(shape: Hybrid, hidden: int, sliding: tuple[int, ...], full: tuple[int, ...]) -> list[Tensor]:
    """A query for the input of each MLP, one or (full attention) three for that of attention behind layer 0, one at the end."""
    found = [Tensor(f"{_QUERIES}.mlp_queries.*", (hidden,), "other", shape.layers, dtype="float32")]
    for layers, size in ((sliding, (hidden,)), (full, (3, hidden))):
        # the file numbers these queries from the second layer on
        later = tuple(index - 1 for index in layers if index)
        if later:
            found.append(Tensor(f"{_QUERIES}.attn_queries.*", size, "other", later, dtype="float32"))
    return [*found, Tensor(f"{_QUERIES}.output_query", (hidden,), "other", dtype="float32")]
