"""Gemma 3 with images, PaliGemma and ShieldGemma 2: a SigLIP tower, a projector and a Gemma text model."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.tensors import Tensor, linear, norm
from kvtax.architectures.towers import build_text, tied_embeddings, vision_tower, with_towers


def _gemma3_projector(prefix: str, vision_hidden_size: int, hidden_size: int) -> list[Tensor]:
    """A norm of the tower's width and one matrix, kept [in, out], from there to the text model's."""
    return [
        Tensor(
            f"{prefix}multi_modal_projector.mm_input_projection_weight", (vision_hidden_size, hidden_size), "vision"
        ),
        *norm(f"{prefix}multi_modal_projector.mm_soft_emb_norm", vision_hidden_size, component="vision"),
    ]


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A vision tower, a projector and a Gemma text model, whose text config has its own family.

    Source: transformers 5.24.0 models/gemma3/modeling_gemma3.py, models/paligemma/modeling_paligemma.py,
    models/shieldgemma2/modeling_shieldgemma2.py.
    """
    vision = config.sub("vision_config")
    vision_hidden_size = vision.integer("hidden_size")
    if config.model_type == "paligemma":
        text = build_text(config, prefix=f"{prefix}language_model.", tied=tied_embeddings(config))
        # the outer projection_dim replaces the tower's own
        width = config.integer("projection_dim")
        projector = linear(f"{prefix}multi_modal_projector.linear", width, vision_hidden_size, "vision", bias=True)
    else:
        shield = config.model_type == "shieldgemma2"
        inner = f"{prefix}model." if shield else prefix
        text = build_text(config, prefix=f"{inner}language_model.", tied=tied_embeddings(config, either=shield))
        projector = _gemma3_projector(inner, vision_hidden_size, text.hidden_size)
        prefix = inner
    return with_towers(config, text, [*vision_tower(vision, f"{prefix}vision_tower."), *projector])
