"""Aria: Idefics 3's tower without a pooling head, queries that read the image, and a text model with experts in every layer."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention
from kvtax.architectures.config import MAXIMUM_EXPERTS, Config, describe
from kvtax.architectures.decoder import Shape, assemble
from kvtax.architectures.mixture import LAYER, block, routed, shared_mlp
from kvtax.architectures.multimodal import text_model
from kvtax.architectures.tensors import EXPERT, Tensor, linear, norm, prefixed
from kvtax.architectures.towers import siglip_vision, with_towers

_JOIN = "model.multi_modal_projector"
_MAXIMUM_SIZES = 1024


def build(config: Config, *, prefix: str = "") -> Architecture:
    """The text model by itself, or with its tower and projector.

    Source: transformers 5.24.0 models/aria/modeling_aria.py (checkpoint names: conversion_mapping.py).
    """
    if config.model_type == "aria_text":
        return build_text(config, prefix=prefix)
    text = text_model(config, model_type="aria_text", module=f"{prefix}model.language_model.")
    vision = config.sub("vision_config").retyped("idefics3_vision")
    added = [
        *siglip_vision(vision.retyped(vision_use_head=False), "model.vision_tower."),
        *_projector(config, vision.integer("hidden_size"), text.hidden_size),
    ]
    return with_towers(config, text, prefixed(added, prefix))


def build_text(config: Config, *, prefix: str = "") -> Architecture:
    """Llama's attention, experts [experts, in, out] in two tensors a layer, and shared experts.

    Source: transformers 5.24.0 models/aria/modeling_aria.py (checkpoint names: conversion_mapping.py).
    """
    shape = Shape(config)
    bias, hidden, name = config.boolean("attention_bias"), shape.hidden_size, f"{LAYER}.mlp"
    moe = routed(config, experts=("moe_num_experts",), used=("moe_topk",), width=("intermediate_size",))
    width, count = moe.moe_intermediate_size, moe.num_experts
    shared = config.integer("moe_num_shared_experts", minimum=0, maximum=MAXIMUM_EXPERTS)
    body = block(shape, shape.layers, qkv_bias=bias, o_bias=bias)
    body += [
        Tensor(f"{name}.router.weight", (count, hidden), "router", shape.layers),
        Tensor(
            f"{name}.experts.fc1.weight", (count, hidden, 2 * width), "routed_experts", shape.layers, shard=EXPERT,
            linear=True,
        ),
        Tensor(
            f"{name}.experts.fc2.weight", (count, width, hidden), "routed_experts", shape.layers, shard=EXPERT, linear=True
        ),
        *shared_mlp(
            f"{name}.shared_experts", shape.layers, hidden, width * shared, bias=config.boolean("mlp_bias")
        ),
    ]  # fmt: skip
    cache = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)
    return assemble(config, shape, body, [cache] * shape.num_hidden_layers, prefix=prefix, **moe.facts())


def _queries(config: Config) -> int:
    """The most queries that projector_patch_to_query_dict gives an image."""
    stated = config.optional_integer("max_value_projector_patch_to_query_dict")
    if stated is not None:
        return stated
    sizes = config.get("projector_patch_to_query_dict")
    if sizes is None:
        return 256
    if not isinstance(sizes, dict) or not 1 <= len(sizes) <= _MAXIMUM_SIZES:
        config.fail("projector_patch_to_query_dict", f"must be an object of numbers, not {describe(sizes)}")
    numbers = config.sub("projector_patch_to_query_dict")
    return max(numbers.integer(key) for key in sizes)


def _projector(config: Config, width: int, hidden: int) -> list[Tensor]:
    """Queries, attention that projects twice, norms, and an MLP into the text model."""
    cross = f"{_JOIN}.cross_attn"
    return [
        Tensor(f"{_JOIN}.query", (_queries(config), width), "vision"),
        *(
            tensor
            for part in ("q_proj", "k_proj", "v_proj")
            for tensor in linear(f"{cross}.{part}", width, width, "vision")
        ),
        Tensor(f"{cross}.multihead_attn.in_proj_weight", (3 * width, width), "vision"),
        Tensor(f"{cross}.multihead_attn.in_proj_bias", (3 * width,), "vision"),
        *linear(f"{cross}.multihead_attn.out_proj", width, width, "vision", bias=True),
        *linear(f"{cross}.linear", width, width, "vision", bias=True),
        *norm(f"{cross}.layer_norm", width, bias=True, component="vision"),
        *norm(f"{cross}.layer_norm_kv", width, bias=True, component="vision"),
        *norm(f"{_JOIN}.layer_norm", width, bias=True, component="vision"),
        *linear(f"{_JOIN}.feed_forward.linear_in", hidden, width, "vision"),
        *linear(f"{_JOIN}.feed_forward.linear_out", hidden, hidden, "vision"),
    ]
