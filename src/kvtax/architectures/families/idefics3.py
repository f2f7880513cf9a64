"""Idefics 3 and SmolVLM: SigLIP's layers, a pixel shuffle into one linear layer, a text model of any type."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.multimodal import text_model
from kvtax.architectures.tensors import linear
from kvtax.architectures.towers import siglip_vision, with_towers


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A SigLIP tower without a head, one linear layer without bias over scale_factor squared patches, a text model.

    Source: transformers 5.24.0 models/idefics3/modeling_idefics3.py, models/smolvlm/modeling_smolvlm.py.
    """
    text = text_model(config, module=f"{prefix}model.text_model.")
    vision = config.sub("vision_config").retyped(f"{config.model_type}_vision", vision_use_head=False)
    merged = vision.integer("hidden_size") * config.integer("scale_factor", maximum=1024) ** 2
    return with_towers(
        config,
        text,
        [
            *siglip_vision(vision, f"{prefix}model."),
            *linear(f"{prefix}model.connector.modality_projection.proj", text.hidden_size, merged, "vision"),
        ],
    )
