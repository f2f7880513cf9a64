"""GLM-4.1V and GLM-4.5V: a GLM vision tower and a GLM decoder, dense with four norms a layer or MoE."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention
from kvtax.architectures.config import MAXIMUM_EXPERTS, Config
from kvtax.architectures.decoder import Shape, assemble, attention, experts, gated_mlp
from kvtax.architectures.multimodal import text_model
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, linear, norm, prefixed
from kvtax.architectures.towers import with_towers
from kvtax.architectures.towers_qwen import glm4v_tower


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A tower with a gated merger and a decoder; the text types build the decoder alone.

    Source: transformers 5.24.0 models/glm4v/modeling_glm4v.py, models/glm4v_moe/modeling_glm4v_moe.py.
    """
    if config.model_type.endswith("_text"):
        return build_text(config, prefix=prefix)
    text = text_model(
        config, model_type=f"{config.model_type}_text", forward=True, module=f"{prefix}model.language_model."
    )
    vision = config.sub("vision_config").retyped(f"{config.model_type}_vision")
    return with_towers(config, text, prefixed(glm4v_tower(vision), prefix))


def build_text(config: Config, *, prefix: str = "") -> Architecture:
    """The decoder alone: query, key and value with bias, no bias behind attention.

    Source: transformers 5.24.0 models/glm4v/modeling_glm4v.py, models/glm4v_moe/modeling_glm4v_moe.py.
    """
    shape = Shape(config)
    moe = config.model_type == "glm4v_moe_text"
    if not moe:
        if shape.hidden_size % shape.num_attention_heads:
            config.fail(
                "num_attention_heads", f"{shape.num_attention_heads} does not divide hidden_size {shape.hidden_size}"
            )
        shape.head_dim = shape.hidden_size // shape.num_attention_heads
    layer = "model.layers.*"
    facts: dict[str, Any] = {"intermediate_size": config.integer("intermediate_size")}
    body = attention(
        f"{layer}.self_attn", shape.layers, shape.hidden_size, shape.num_attention_heads, shape.num_key_value_heads,
        shape.head_dim, qkv_bias=config.boolean("attention_bias", default=True) if moe else True,
    )  # fmt: skip
    body += _moe(config, shape, facts) if moe else _dense(shape, facts["intermediate_size"])
    names = ["input_layernorm", "post_attention_layernorm"]
    if not moe:
        names += ["post_self_attn_layernorm", "post_mlp_layernorm"]
    for name in names:
        body += norm(f"{layer}.{name}", shape.hidden_size, shape.layers)
    cache = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)
    return assemble(config, shape, body, [cache] * shape.num_hidden_layers, prefix=prefix, **facts)


def _dense(shape: Shape, inner: int) -> list[Tensor]:
    """Gate and up in one matrix."""
    name = "model.layers.*.mlp"
    return [
        *linear(f"{name}.gate_up_proj", 2 * inner, shape.hidden_size, "mlp", shape.layers, shard=COLUMN),
        *linear(f"{name}.down_proj", shape.hidden_size, inner, "mlp", shape.layers, shard=ROW),
    ]


def _moe(config: Config, shape: Shape, facts: dict[str, Any]) -> list[Tensor]:
    """A dense MLP in the first first_k_dense_replace layers, routed and shared experts in the others."""
    first = min(config.integer("first_k_dense_replace", minimum=0), shape.num_hidden_layers)
    name = "model.layers.*.mlp"
    found: list[Tensor] = []
    if first:
        found += gated_mlp(name, shape.layers[:first], shape.hidden_size, facts["intermediate_size"])
    sparse = shape.layers[first:]
    if sparse:
        count = config.integer("n_routed_experts", "num_local_experts", maximum=MAXIMUM_EXPERTS)
        width = config.integer("moe_intermediate_size")
        shared = config.integer("n_shared_experts", minimum=0, maximum=MAXIMUM_EXPERTS)
        facts["num_experts"], facts["moe_intermediate_size"] = count, width
        facts["num_experts_per_tok"] = config.integer("num_experts_per_tok", maximum=count)
        found += experts(name, sparse, count, shape.hidden_size, width, correction_bias="gate.e_score_correction_bias")
        if shared:
            found += gated_mlp(
                f"{name}.shared_experts", sparse, shape.hidden_size, width * shared, component="shared_experts"
            )
    return found
