"""InternVL, in transformers' layout and in that of its own repositories."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.multimodal import text_model
from kvtax.architectures.tensors import Tensor, linear, norm
from kvtax.architectures.towers import with_towers
from kvtax.architectures.towers_vit import intern_vit, internvl_vision


def build(config: Config, *, prefix: str = "") -> Architecture:
    """InternViT, a pixel shuffle into a norm and two linear layers, a text model of any type.

    Source: transformers 5.24.0 models/internvl/modeling_internvl.py.
    """
    if config.model_type == "internvl_chat":
        return _chat(config, prefix)
    text = text_model(config, prefix=f"{prefix}language_model.")
    vision = config.sub("vision_config").retyped("internvl_vision")
    merged = vision.integer("hidden_size") * _shuffled(config)
    name = f"{prefix}multi_modal_projector"
    return with_towers(
        config,
        text,
        [
            *internvl_vision(vision, f"{prefix}vision_tower."),
            *_projector((f"{name}.layer_norm", f"{name}.linear_1", f"{name}.linear_2"), merged, text.hidden_size),
        ],
    )


def _chat(config: Config, prefix: str) -> Architecture:
    """The layout with llm_config, whose own tie_word_embeddings counts.

    Source: repository files modeling_internvl_chat.py, configuration_internvl_chat.py of OpenGVLab's models.
    """
    from kvtax.architectures.registry import build as build_any

    if not config.has_sub("llm_config"):
        config.fail("llm_config", "is missing, and the model type has no default for it")
    language = config.sub("llm_config")
    # the class of the whole is called ...Model, yet the text model has a head: its own `architectures` says so
    language.parent = None
    text = build_any(language, prefix=f"{prefix}language_model.")
    vision = config.sub("vision_config").retyped("intern_vit_6b")
    merged = vision.integer("hidden_size") * _shuffled(config)
    name = f"{prefix}mlp1"
    added = [
        *intern_vit(vision, f"{prefix}vision_model."),
        *_projector((f"{name}.0", f"{name}.1", f"{name}.3"), merged, text.hidden_size),
    ]
    stated = config.dtype()
    return with_towers(config, text, added, dtype=stated or text.dtype, dtype_stated=bool(stated) or text.dtype_stated)


def _shuffled(config: Config) -> int:
    """Patches that become one: int(1 / downsample_ratio) squared."""
    ratio = config.number("downsample_ratio", default=0.5)
    if not 1e-3 <= ratio <= 1:
        config.fail("downsample_ratio", f"must be between 0.001 and 1, not {ratio}")
    return int(1 / ratio) ** 2


def _projector(names: tuple[str, str, str], merged: int, hidden_size: int) -> list[Tensor]:
    """A layer norm and two linear layers with bias."""
    return [
        *norm(names[0], merged, bias=True, component="vision"),
        *linear(names[1], hidden_size, merged, "vision", bias=True),
        *linear(names[2], hidden_size, hidden_size, "vision", bias=True),
    ]
