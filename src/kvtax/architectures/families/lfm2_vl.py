"""LFM2-VL: a SigLIP 2 tower, a projector over downsample_factor squared patches, an LFM2 text model."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.multimodal import nested
from kvtax.architectures.tensors import linear, norm
from kvtax.architectures.towers import with_towers
from kvtax.architectures.towers_vit import any_vision_tower


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A tower, a projector with or without a norm (projector_use_layernorm), a text model.

    tie_embedding goes before tie_word_embeddings.

    Source: transformers 5.24.0 models/lfm2_vl/modeling_lfm2_vl.py.
    """
    from kvtax.architectures.registry import build as build_any

    tied = config.boolean("tie_embedding", default=config.boolean("tie_word_embeddings", default=True))
    text = nested(
        build_any(config.sub("text_config").retyped(tie_word_embeddings=tied)), f"{prefix}model.language_model."
    )
    vision = config.sub("vision_config")
    merged = vision.integer("hidden_size") * config.integer("downsample_factor", maximum=1024) ** 2
    inner = config.integer("projector_hidden_size")
    bias = config.boolean("projector_bias", default=True)
    name = f"{prefix}model.multi_modal_projector"
    added = any_vision_tower(vision, f"{prefix}model.vision_tower.")
    if config.boolean("projector_use_layernorm", default=True):
        added += norm(f"{name}.layer_norm", merged, bias=True, component="vision")
    added += linear(f"{name}.linear_1", inner, merged, "vision", bias=bias)
    added += linear(f"{name}.linear_2", text.hidden_size, inner, "vision", bias=bias)
    return with_towers(config, text, added)
