"""GLM-OCR and GLM-4.6V: GLM-4V's towers, and a GLM decoder with four norms a layer or the text model that is named."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import gated_mlp
from kvtax.architectures.layout import Layout, build_layout
from kvtax.architectures.multimodal import NESTED, nested, text_model
from kvtax.architectures.tensors import Tensor, linear, norm, prefixed
from kvtax.architectures.towers import with_towers
from kvtax.architectures.towers_qwen import (
    MAXIMUM_PATCH,
    block_norms,
    depth_layers,
    fused_attention,
    glm4v_tower,
    patch_convolution,
)

_LAYOUT = Layout(
    norms=("input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm"),
    mlp=("gate_up_proj", "down_proj"),
    fused_gate=True,
)


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A tower with a gated merger and a decoder.

    Source: transformers 5.24.0 models/glm_ocr/modeling_glm_ocr.py, models/glm46v/modeling_glm46v.py.
    """
    if config.model_type == "glm_ocr_text":
        return build_layout(config, _LAYOUT, prefix=prefix)
    if config.model_type == "glm46v":
        text = text_model(config, module=prefix + NESTED)
        return with_towers(
            config, text, prefixed(glm4v_tower(config.sub("vision_config").retyped("glm4v_vision")), prefix)
        )
    inner = config.sub("text_config").retyped("glm_ocr_text")
    tied = config.boolean("tie_word_embeddings") or inner.boolean("tie_word_embeddings")
    text = nested(build_layout(inner.retyped(tie_word_embeddings=tied), _LAYOUT), prefix + NESTED)
    return with_towers(config, text, prefixed(_tower(config.sub("vision_config").retyped("glm_ocr_vision")), prefix))


def _tower(config: Config, prefix: str = "model.visual") -> list[Tensor]:
    """ViT with RMS norms, norms of query and key, gated MLPs of its own width, and GLM-4V's merger.

    Source: transformers 5.24.0 models/glm_ocr/modeling_glm_ocr.py.
    """
    width, out_width = config.integer("hidden_size"), config.integer("out_hidden_size")
    inner, merge = config.integer("intermediate_size"), config.integer("spatial_merge_size", maximum=MAXIMUM_PATCH)
    layers, bias = depth_layers(config), config.boolean("attention_bias")
    block, merger = f"{prefix}.blocks.*", f"{prefix}.merger"
    head_dim = width // config.integer("num_heads")
    return [
        *patch_convolution(config, prefix, width, bias=True),
        *block_norms(block, layers, width, bias=False),
        *fused_attention(config, block, layers, width, qkv_bias=bias, proj_bias=bias),
        *norm(f"{block}.attn.q_norm", head_dim, layers, component="vision"),
        *norm(f"{block}.attn.k_norm", head_dim, layers, component="vision"),
        *gated_mlp(f"{block}.mlp", layers, width, inner, bias=bias, component="vision"),
        *norm(f"{prefix}.post_layernorm", width, component="vision"),
        Tensor(f"{prefix}.downsample.weight", (out_width, width, merge, merge), "vision"),
        Tensor(f"{prefix}.downsample.bias", (out_width,), "vision"),
        *linear(f"{merger}.proj", out_width, out_width, "vision"),
        *norm(f"{merger}.post_projection_norm", out_width, bias=True, component="vision"),
        *gated_mlp(
            merger, (), out_width, out_width * config.integer("in_channels", maximum=MAXIMUM_PATCH), component="vision"
        ),
    ]
