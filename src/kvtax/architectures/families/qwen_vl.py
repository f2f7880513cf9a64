"""Qwen2-VL, Qwen2.5-VL, Qwen3-VL, dense and MoE, and Qwen3.5, whose text part is the hybrid of its own family."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_EXPERTS, Config
from kvtax.architectures.decoder import Shape, assemble, attention, attention_caches, experts, gated_mlp
from kvtax.architectures.multimodal import outer_tied, text_model
from kvtax.architectures.tensors import Tensor, norm, prefixed
from kvtax.architectures.towers import with_towers
from kvtax.architectures.towers_qwen import qwen2_5_vl_tower, qwen2_vl_tower, qwen3_vl_tower

_TEXT_TYPES = (
    "qwen2_vl_text",
    "qwen2_5_vl_text",
    "qwen2_5_omni_text",
    "qwen3_vl_text",
    "qwen3_vl_moe_text",
    "qwen3_omni_moe_text",
)
_FLAT = ("qwen2_vl", "qwen2_5_vl")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A vision tower with a merger, and a decoder; the first two generations keep the text keys at the top level.

    Source: transformers 5.24.0 models/qwen2_vl, qwen2_5_vl, qwen3_vl, qwen3_vl_moe, qwen3_5, qwen3_5_moe.
    """
    kind = config.model_type
    if kind in _TEXT_TYPES:
        return build_text(config, prefix=prefix)
    vision = config.sub("vision_config").retyped(f"{kind}_vision")
    if kind in _FLAT:
        text = config if config.values.get("text_config") is None else config.sub("text_config")
        text = text.retyped(f"{kind}_text")
        tied = outer_tied(config, text, forward=True)
        architecture = build_text(text.retyped(tie_word_embeddings=tied))
        tower = (qwen2_vl_tower if kind == "qwen2_vl" else qwen2_5_vl_tower)(vision)
    else:
        architecture = text_model(config, model_type=f"{kind}_text")
        tower = qwen3_vl_tower(vision, deepstack=kind.startswith("qwen3_vl"))
    whole = with_towers(config, architecture, tower)
    return whole.replace(tensors=prefixed(whole.tensors, prefix)) if prefix else whole


def build_text(config: Config, *, prefix: str = "") -> Architecture:
    """The text part by itself: Qwen2's attention with bias and its windows, or Qwen3's with norms of query and key.

    The experts of Qwen3-VL-MoE are listed one by one, though its 16-bit files keep those of a layer in one tensor.
    Source: transformers 5.24.0 models/qwen2_vl/modeling_qwen2_vl.py, models/qwen3_vl_moe/modeling_qwen3_vl_moe.py.
    """
    shape = Shape(config)
    second = config.model_type.startswith("qwen2")
    if second and config.model_type != "qwen2_5_omni_text":
        if shape.hidden_size % shape.num_attention_heads:
            config.fail(
                "num_attention_heads", f"{shape.num_attention_heads} does not divide hidden_size {shape.hidden_size}"
            )
        shape.head_dim = shape.hidden_size // shape.num_attention_heads
    bias = config.boolean("attention_bias")
    layer = "model.layers.*"
    body = [
        *attention(
            f"{layer}.self_attn", shape.layers, shape.hidden_size, shape.num_attention_heads, shape.num_key_value_heads,
            shape.head_dim, qkv_bias=second or bias, o_bias=not second and bias, qk_norm="" if second else "head",
        ),
        *norm(f"{layer}.input_layernorm", shape.hidden_size, shape.layers),
        *norm(f"{layer}.post_attention_layernorm", shape.hidden_size, shape.layers),
    ]  # fmt: skip
    facts: dict[str, Any] = {}
    if config.model_type.endswith("_moe_text"):
        body += _moe(config, shape, facts)
    else:
        facts["intermediate_size"] = config.integer("intermediate_size")
        body += gated_mlp(f"{layer}.mlp", shape.layers, shape.hidden_size, facts["intermediate_size"])
    caches = attention_caches(
        config, _kinds(config, shape) if second else ["full_attention"] * shape.num_hidden_layers,
        shape.num_key_value_heads, shape.head_dim, sliding_window=_window(config) if second else None,
    )  # fmt: skip
    return assemble(config, shape, body, caches, prefix=prefix, **facts)


def _window(config: Config) -> int | None:
    """sliding_window, where use_sliding_window turns it on."""
    return config.optional_integer("sliding_window") if config.boolean("use_sliding_window") else None


def _kinds(config: Config, shape: Shape) -> list[str]:
    """layer_types, else windows from layer max_window_layers on where windows are turned on."""
    stated = config.layer_types(shape.num_hidden_layers)
    if stated is not None:
        return stated
    if _window(config) is None:
        return ["full_attention"] * shape.num_hidden_layers
    first = config.integer("max_window_layers", minimum=0)
    return ["sliding_attention" if index >= first else "full_attention" for index in shape.layers]


def _moe(config: Config, shape: Shape, facts: dict[str, Any]) -> list[Tensor]:
    """Experts in every decoder_sparse_step-th layer that is not in mlp_only_layers, a dense MLP in the others."""
    num_experts = config.integer("num_experts", "num_local_experts", minimum=0, maximum=MAXIMUM_EXPERTS)
    step = config.integer("decoder_sparse_step")
    dense_only = set(config.integers("mlp_only_layers") or ())
    sparse = tuple(i for i in shape.layers if num_experts and i not in dense_only and (i + 1) % step == 0)
    dense = tuple(i for i in shape.layers if i not in sparse)
    name = "model.layers.*.mlp"
    found: list[Tensor] = []
    if sparse:
        facts["num_experts"] = num_experts
        facts["num_experts_per_tok"] = config.integer("num_experts_per_tok", maximum=num_experts)
        facts["moe_intermediate_size"] = config.integer("moe_intermediate_size")
        found += experts(name, sparse, num_experts, shape.hidden_size, facts["moe_intermediate_size"])
    if dense:
        facts["intermediate_size"] = config.integer("intermediate_size")
        found += gated_mlp(name, dense, shape.hidden_size, facts["intermediate_size"])
    return found
