"""Llama 4: chunked local layers between layers without rope, experts beside a shared one, and a vision tower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import ChunkedLocal, FullAttention, LayerCache
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, MAXIMUM_POSITIONS, Config, describe
from kvtax.architectures.decoder import Shape, assemble, attention, gated_mlp
from kvtax.architectures.tensors import EXPERT, Tensor, linear, norm
from kvtax.architectures.towers import build_text, encoder_layers, hidden_and_heads, patch_grid, with_towers


def _layer_kinds(config: Config, num_hidden_layers: int) -> list[str]:
    """Layer types: layer_types, else no_rope_layers (1 is a layer with rope, which is chunked), else its interval."""
    kinds = config.layer_types(num_hidden_layers)
    if kinds is not None:
        return kinds
    flags = config.integers("no_rope_layers", maximum=1)
    if not flags:
        interval = config.integer("no_rope_layer_interval", maximum=MAXIMUM_POSITIONS)
        flags = [int((index + 1) % interval != 0) for index in range(num_hidden_layers)]
    if len(flags) < num_hidden_layers:
        config.fail("no_rope_layers", f"has {len(flags)} items, but the model has {num_hidden_layers} layers")
    chunked = config.optional_integer("attention_chunk_size", maximum=MAXIMUM_POSITIONS) is not None
    return ["chunked_attention" if flag and chunked else "full_attention" for flag in flags[:num_hidden_layers]]


def _caches(config: Config, shape: Shape, kinds: Sequence[str]) -> list[LayerCache]:
    """One cache a layer.

    Raises:
        UnsupportedArchitectureError: another layer type.
    """
    chunk = config.optional_integer("attention_chunk_size", maximum=MAXIMUM_POSITIONS)
    found: list[LayerCache] = []
    for index, kind in enumerate(kinds):
        if kind == "full_attention":
            found.append(FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim))
        elif kind == "chunked_attention":
            if chunk is None:
                config.fail("attention_chunk_size", "is missing or null, but layer_types has chunked_attention layers")
            found.append(ChunkedLocal(shape.num_key_value_heads, shape.head_dim, shape.head_dim, chunk))
        else:
            config.unsupported(f"layer_types[{index}]", f"layer type {describe(kind)} is not understood")
    return found


def _moe_layers(config: Config, num_hidden_layers: int) -> tuple[int, ...]:
    """Layers with experts: moe_layers, else every interleave_moe_layer_step-th."""
    stated = config.integers("moe_layers", maximum=MAXIMUM_LAYERS)
    if stated is None:
        step = config.integer("interleave_moe_layer_step", maximum=MAXIMUM_LAYERS)
        return tuple(range(step - 1, num_hidden_layers, step))
    return tuple(index for index in range(num_hidden_layers) if index in set(stated))


def _experts(name: str, layers: tuple[int, ...], hidden_size: int, width: int, num_experts: int) -> list[Tensor]:
    """Router, shared expert and routed experts, which are two stacks [experts, in, out]."""
    found = [
        Tensor(f"{name}.router.weight", (num_experts, hidden_size), "router", layers, linear=True),
        *gated_mlp(f"{name}.shared_expert", layers, hidden_size, width, component="shared_experts"),
    ]
    return [
        *found,
        Tensor(
            f"{name}.experts.gate_up_proj", (num_experts, hidden_size, 2 * width), "routed_experts", layers,
            shard=EXPERT, linear=True,
        ),
        Tensor(
            f"{name}.experts.down_proj", (num_experts, width, hidden_size), "routed_experts", layers,
            shard=EXPERT, linear=True,
        ),
    ]  # fmt: skip


def _text(config: Config, prefix: str) -> Architecture:
    """The decoder."""
    shape = Shape(config)
    width = config.integer("intermediate_size")
    bias = config.boolean("attention_bias")
    sparse = _moe_layers(config, shape.num_hidden_layers)
    dense = tuple(index for index in shape.layers if index not in set(sparse))
    layer = "model.layers.*"
    body = attention(
        f"{layer}.self_attn", shape.layers, shape.hidden_size, shape.num_attention_heads, shape.num_key_value_heads,
        shape.head_dim, qkv_bias=bias, o_bias=bias,
    )  # fmt: skip
    facts: dict[str, Any] = {"intermediate_size": width}
    if sparse:
        num_experts = config.integer("num_local_experts", maximum=MAXIMUM_EXPERTS)
        body += _experts(f"{layer}.feed_forward", sparse, shape.hidden_size, width, num_experts)
        facts.update(
            num_experts=num_experts,
            num_experts_per_tok=config.integer("num_experts_per_tok", maximum=num_experts),
            moe_intermediate_size=width,
        )
    if dense:
        facts["intermediate_size"] = config.integer("intermediate_size_mlp")
        body += gated_mlp(f"{layer}.feed_forward", dense, shape.hidden_size, facts["intermediate_size"])
    body += norm(f"{layer}.input_layernorm", shape.hidden_size, shape.layers)
    body += norm(f"{layer}.post_attention_layernorm", shape.hidden_size, shape.layers)
    caches = _caches(config, shape, _layer_kinds(config, shape.num_hidden_layers))
    return assemble(config, shape, body, caches, prefix=prefix, **facts)


def _vision(config: Config, prefix: str) -> list[Tensor]:
    """Patches as one matrix, a class token, learned positions, encoder layers and a pixel-shuffle MLP."""
    hidden_size, heads = hidden_and_heads(config)
    patch_size, side = patch_grid(config)
    intermediate_size = config.integer("intermediate_size")
    output = config.integer("projector_output_dim")
    patches = config.integer("num_channels") * patch_size**2
    return [
        Tensor(f"{prefix}class_embedding", (hidden_size,), "vision"),
        Tensor(f"{prefix}positional_embedding_vlm", (side * side + 1, hidden_size), "vision"),
        *linear(f"{prefix}patch_embedding.linear", hidden_size, patches, "vision"),
        *norm(f"{prefix}layernorm_pre", hidden_size, bias=True, component="vision"),
        *norm(f"{prefix}layernorm_post", hidden_size, bias=True, component="vision"),
        *encoder_layers(
            f"{prefix}model.layers", config.integer("num_hidden_layers"), hidden_size, heads, intermediate_size,
            names=("q_proj", "k_proj", "v_proj", "o_proj"), norm_names=("input_layernorm", "post_attention_layernorm"),
        ),
        *linear(f"{prefix}vision_adapter.mlp.fc1", config.integer("projector_input_dim"), intermediate_size, "vision"),
        *linear(f"{prefix}vision_adapter.mlp.fc2", output, output, "vision"),
    ]  # fmt: skip


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Attention in chunks but for every fourth layer; dense MLPs, or one shared and many routed experts.

    Source: transformers 5.24.0 models/llama4/modeling_llama4.py.
    """
    if config.model_type == "llama4_text":
        return _text(config, prefix)
    # the text model is a whole one inside, so that its own config decides on the head
    tied = config.sub("text_config").boolean("tie_word_embeddings")
    text = build_text(config, prefix=f"{prefix}language_model.", tied=tied)
    vision = config.sub("vision_config")
    tensors = _vision(vision, f"{prefix}vision_model.")
    tensors += linear(
        f"{prefix}multi_modal_projector.linear_1", text.hidden_size, vision.integer("vision_output_dim"), "vision"
    )
    return with_towers(config, text, tensors)
