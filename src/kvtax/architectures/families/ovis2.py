"""Ovis 2: a tower that gives probabilities over a visual vocabulary, its embedding table, a text model of any type."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import has_head
from kvtax.architectures.multimodal import nested
from kvtax.architectures.tensors import Tensor, lm_head
from kvtax.architectures.towers import with_towers
from kvtax.architectures.towers_vit import ovis2_vision


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Tower, table and text model; an lm_head of its own has the sizes of the outer config.

    Source: transformers 5.24.0 models/ovis2/modeling_ovis2.py.
    """
    from kvtax.architectures.registry import build as build_any

    text = nested(
        build_any(config.sub("text_config").retyped(tie_word_embeddings=True)), f"{prefix}model.language_model."
    )
    vision = config.sub("vision_config").retyped("ovis2_vision")
    table = (vision.integer("vocab_size"), config.integer("hidden_size"))
    added = [
        *ovis2_vision(vision, f"{prefix}model.vision_tower."),
        Tensor(f"{prefix}model.visual_embeddings_table.weight", table, "vision"),
    ]
    if has_head(config) and not config.boolean("tie_word_embeddings"):
        added += lm_head(config.integer("vocab_size"), table[1], False, name=f"{prefix}lm_head")
    return with_towers(config, text, added)
