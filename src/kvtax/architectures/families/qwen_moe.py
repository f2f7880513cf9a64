"""Qwen 1.5 MoE, Qwen 2 MoE and Qwen 3 MoE."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import LayerCache
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble, attention_caches, experts
from kvtax.architectures.latent import dense_block
from kvtax.architectures.mixture import LAYER, block, others, routed, shared_mlp
from kvtax.architectures.tensors import Tensor

EXPERT_KEYS = ("num_experts", "num_local_experts")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Experts in every decoder_sparse_step-th layer that is not in mlp_only_layers, a dense MLP in the others; two RMS norms a layer.

    The second generation has biases on query, key and value and a gated shared expert, the third norms of query and key.
    Source: transformers 5.24.0 models/qwen2_moe/modeling_qwen2_moe.py, models/qwen3_moe/modeling_qwen3_moe.py.
    """
    shape = Shape(config)
    second = config.model_type == "qwen2_moe"
    bias = config.boolean("qkv_bias", default=True) if second else config.boolean("attention_bias")
    sparse = sparse_layers(config, shape)
    facts: dict[str, Any] = {}
    body = block(shape, shape.layers, qkv_bias=bias, o_bias=bias and not second, qk_norm="" if second else "head")
    if sparse:
        body += _experts(config, shape, sparse, facts, shared=second)
    dense = others(shape.layers, sparse)
    if dense:
        facts["intermediate_size"] = config.integer("intermediate_size")
        body += dense_block(f"{LAYER}.mlp", dense, shape.hidden_size, facts["intermediate_size"])
    return assemble(config, shape, body, _caches(config, shape, second), prefix=prefix, **facts)


def sparse_layers(config: Config, shape: Shape) -> tuple[int, ...]:
    """Layers with experts; none where num_experts is 0."""
    if not config.integer(*EXPERT_KEYS, minimum=0, maximum=MAXIMUM_EXPERTS):
        return ()
    step = config.integer("decoder_sparse_step", maximum=MAXIMUM_LAYERS)
    dense_only = frozenset(config.integers("mlp_only_layers", minimum=-MAXIMUM_LAYERS) or ())
    return tuple(index for index in shape.layers if index not in dense_only and (index + 1) % step == 0)


def _experts(
    config: Config, shape: Shape, sparse: tuple[int, ...], facts: dict[str, Any], *, shared: bool
) -> list[Tensor]:
    """The experts and, with `shared`, a shared expert behind a gate of one output."""
    numbers = routed(config, experts=EXPERT_KEYS)
    facts.update(numbers.facts())
    found = experts(f"{LAYER}.mlp", sparse, numbers.num_experts, shape.hidden_size, numbers.moe_intermediate_size)
    if shared:
        width = config.integer("shared_expert_intermediate_size", minimum=0)
        found += shared_mlp(f"{LAYER}.mlp.shared_expert", sparse, shape.hidden_size, width)
        found.append(Tensor(f"{LAYER}.mlp.shared_expert_gate.weight", (1, shape.hidden_size), "router", sparse))
    return found


def _caches(config: Config, shape: Shape, second: bool) -> list[LayerCache]:
    """Windows where use_sliding_window turns them on: by layer_types in the second generation, in every layer in the third."""
    window = config.optional_integer("sliding_window") if config.boolean("use_sliding_window") else None
    kinds = config.layer_types(shape.num_hidden_layers) if second else None
    if kinds is None:
        kinds = ["full_attention" if window is None else "sliding_attention"] * shape.num_hidden_layers
        if second and window is not None:
            limit = config.integer("max_window_layers", minimum=0, maximum=MAXIMUM_LAYERS)
            kinds = [
                "sliding_attention" if index % 2 == 0 and index < limit else "full_attention" for index in shape.layers
            ]
    return attention_caches(config, kinds, shape.num_key_value_heads, shape.head_dim, sliding_window=window)
