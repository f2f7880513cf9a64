"""MiniMax-M3 (text): block-sparse attention with an index branch, experts beside a shared one."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache
from kvtax.architectures.config import MAXIMUM_HEADS, Config, describe
from kvtax.architectures.decoder import Shape, assemble, experts, layers_where
from kvtax.architectures.latent import dense_block
from kvtax.architectures.mixture import LAYER, block, flags, others, routed, shared_mlp, stated_sparse
from kvtax.architectures.tensors import REPLICATED, Tensor, linear, norm

SPARSE = "minimax_m3_sparse"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention with norms of query and key, an index branch in sparse layers, dense MLPs or experts.

    Source: transformers 5.24.0 models/minimax_m3_vl/modeling_minimax_m3_vl.py, conversion_mapping.py.
    """
    shape = Shape(config)
    legacy = _legacy(config)
    indexed = _indexed_layers(config, shape, legacy)
    sparse = stated_sparse(config, shape.num_hidden_layers)
    if sparse is None:
        sparse = flags(config, "moe_layer_freq", shape.num_hidden_layers)
    sparse = shape.layers if sparse is None else sparse
    dense = others(shape.layers, sparse)
    index_head_dim = legacy.optional_integer("sparse_index_dim") or config.integer("index_head_dim")
    index_heads = legacy.optional_integer("sparse_num_index_heads", maximum=MAXIMUM_HEADS) or config.integer(
        "index_n_heads", maximum=MAXIMUM_HEADS
    )
    facts: dict[str, Any] = {}
    body = block(shape, shape.layers, qk_norm="head")
    body += _index_branch(shape, indexed, index_heads, index_head_dim)
    if sparse:
        numbers = routed(config, experts=("num_local_experts", "num_experts"), width=("intermediate_size",))
        facts.update(numbers.facts())
        module = f"{LAYER}.block_sparse_moe"
        body += experts(
            module, sparse, numbers.num_experts, shape.hidden_size, numbers.moe_intermediate_size, names=("w1", "w3", "w2"),
            correction_bias="e_score_correction_bias",
        )  # fmt: skip
        width = config.integer("shared_intermediate_size", minimum=0)
        body += shared_mlp(f"{module}.shared_experts", sparse, shape.hidden_size, width)
    if dense:
        facts["intermediate_size"] = config.integer("dense_intermediate_size")
        body += dense_block(f"{LAYER}.mlp", dense, shape.hidden_size, facts["intermediate_size"])
    caches = _caches(shape, indexed, index_head_dim)
    return assemble(config, shape, body, caches, prefix=prefix, **facts)


def _legacy(config: Config) -> Config:
    """sparse_attention_config, the older place of the index branch's numbers; they win where they stand."""
    return config.sub("sparse_attention_config", model_type="")


def _indexed_layers(config: Config, shape: Shape, legacy: Config) -> tuple[int, ...]:
    """Layers with block-sparse attention: layer_types, else sparse_attention_freq, else none."""
    kinds = config.layer_types(shape.num_hidden_layers)
    if kinds is not None:
        for kind in kinds:
            if kind not in (SPARSE, "full_attention"):
                config.unsupported("layer_types", f"layer type {describe(kind)} is not understood")
        return layers_where(kinds, SPARSE)
    if not legacy.boolean("use_sparse_attention", default=True):
        return ()
    return flags(legacy, "sparse_attention_freq", shape.num_hidden_layers) or ()


def _index_branch(shape: Shape, layers: tuple[int, ...], heads: int, head_dim: int) -> list[Tensor]:
    """Queries and one key of the index branch, and their norms; on every rank."""
    if not layers:
        return []
    module = f"{LAYER}.self_attn"
    return [
        *linear(f"{module}.index_q_proj", heads * head_dim, shape.hidden_size, "attention", layers, shard=REPLICATED),
        *linear(f"{module}.index_k_proj", head_dim, shape.hidden_size, "attention", layers, shard=REPLICATED),
        *norm(f"{module}.index_q_norm", head_dim, layers),
        *norm(f"{module}.index_k_norm", head_dim, layers),
    ]


def _caches(shape: Shape, indexed: tuple[int, ...], index_head_dim: int) -> list[LayerCache]:
    """Keys and values of every token, and in sparse layers one index key of 16 bits an element beside them."""
    plain = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)
    known = frozenset(indexed)
    return [plain._replace(index_bytes=2 * index_head_dim) if index in known else plain for index in shape.layers]
