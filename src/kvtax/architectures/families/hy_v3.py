"""Hunyuan 3 (Hy3)."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble, attention_caches, experts
from kvtax.architectures.latent import dense_block, mtp_count, mtp_indices
from kvtax.architectures.mixture import LAYER, Routed, block, others, routed, shared_mlp, stated_sparse
from kvtax.architectures.tensors import Tensor, norm, not_loaded


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention with norms of query and key; a dense first layer, then routed and shared experts.

    Source: transformers 5.24.0 models/hy_v3/modeling_hy_v3.py; MTP layers: the published size of tencent/Hy3.
    """
    shape = Shape(config)
    sparse = _sparse_layers(config, shape)
    dense = others(shape.layers, sparse)
    bias = config.boolean("mlp_bias")
    extra = mtp_indices(shape.num_hidden_layers, mtp_count(config))
    numbers = routed(config, experts=("num_experts", "num_local_experts")) if sparse or extra else None
    facts: dict[str, Any] = {} if numbers is None else numbers.facts()
    body = _attention(config, shape, shape.layers)
    if numbers is not None:
        body += _experts(config, shape, numbers, sparse, bias)
        body += _mtp(config, shape, numbers, extra, bias)
    if dense:
        facts["intermediate_size"] = config.integer("intermediate_size")
        body += dense_block(f"{LAYER}.mlp", dense, shape.hidden_size, facts["intermediate_size"], bias=bias)
    caches = attention_caches(
        config, ["full_attention"] * shape.num_hidden_layers, shape.num_key_value_heads, shape.head_dim
    )
    return assemble(config, shape, body, caches, prefix=prefix, **facts)


def _sparse_layers(config: Config, shape: Shape) -> tuple[int, ...]:
    """mlp_layer_types, else all layers from first_k_dense_replace (1) on."""
    stated = stated_sparse(config, shape.num_hidden_layers)
    if stated is not None:
        return stated
    first = config.optional_integer("first_k_dense_replace", default=1, minimum=0, maximum=MAXIMUM_LAYERS)
    return tuple(index for index in shape.layers if index >= (1 if first is None else first))


def _attention(config: Config, shape: Shape, layers: tuple[int, ...]) -> list[Tensor]:
    """Attention and the two norms of a layer."""
    bias = config.boolean("attention_bias")
    return block(shape, layers, qkv_bias=bias, o_bias=bias, qk_norm="head")


def _experts(config: Config, shape: Shape, numbers: Routed, layers: tuple[int, ...], bias: bool) -> list[Tensor]:
    """Router, routed experts without bias, and the shared MLP; nothing without layers."""
    if not layers:
        return []
    module, hidden = f"{LAYER}.mlp", shape.hidden_size
    shared = config.optional_integer("num_shared_experts", minimum=0, maximum=MAXIMUM_EXPERTS) or 0
    # a shared width of 0 is the dense one in the class
    width = shared * numbers.moe_intermediate_size or config.integer("intermediate_size")
    return [
        *experts(
            module, layers, numbers.num_experts, hidden, numbers.moe_intermediate_size, router="router.gate",
            correction_bias="expert_bias",
        ),
        *shared_mlp(f"{module}.shared_mlp", layers, hidden, width, bias=bias),
    ]  # fmt: skip


def _mtp(config: Config, shape: Shape, numbers: Routed, layers: tuple[int, ...], bias: bool) -> list[Tensor]:
    """MTP layers: a layer with experts behind norms and a projection of two streams."""
    if not layers:
        return []
    found = [*_attention(config, shape, layers), *_experts(config, shape, numbers, layers, bias)]
    for name in ("enorm", "hnorm", "final_layernorm"):
        found += norm(f"{LAYER}.{name}", shape.hidden_size, layers)
    found.append(Tensor(f"{LAYER}.eh_proj.weight", (shape.hidden_size, 2 * shape.hidden_size), "mtp", layers))
    return not_loaded(found)
