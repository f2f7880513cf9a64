"""Step 3.7 and MiniMax-M3 with images: towers of their own before sparse decoders of other families."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.multimodal import outer_tied
from kvtax.architectures.tensors import linear
from kvtax.architectures.towers import with_towers
from kvtax.architectures.towers_vit import minimax_vision, step_vision


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A tower, linear layers to the text model, a decoder; Step's files may keep the text keys at the top level.

    Source: transformers 5.24.0 models/step3p7/modeling_step3p7.py, models/minimax_m3_vl/modeling_minimax_m3_vl.py.
    """
    return _minimax(config, prefix) if config.model_type == "minimax_m3_vl" else _step(config, prefix)


def _step(config: Config, prefix: str) -> Architecture:
    """Step 3.7: the decoder is that of Step 3.5, the tower's output is four times its width."""
    from kvtax.architectures.registry import build as build_any

    flat = config.values.get("text_config") is None and config.states("num_hidden_layers")
    text_config = (config if flat else config.sub("text_config")).retyped("step3p5")
    text = build_any(text_config.retyped(tie_word_embeddings=outer_tied(config, text_config)), prefix=prefix)
    vision = config.sub("vision_config").retyped("step3p5_vision")
    width = vision.integer("width", "hidden_size")
    bias = config.boolean("projector_bias")
    return with_towers(
        config,
        text,
        [
            *step_vision(vision, f"{prefix}vision_model."),
            *linear(f"{prefix}vit_large_projector", text.hidden_size, 4 * width, "vision", bias=bias),
        ],
    )


def _minimax(config: Config, prefix: str) -> Architecture:
    """MiniMax-M3: patches are projected one by one, then spatial_merge_size squared of them become one token."""
    from kvtax.architectures.registry import build as build_any

    text_config = config.sub("text_config").retyped("minimax_m3_vl_text")
    tied = outer_tied(config, text_config, forward=True)
    text = build_any(text_config.retyped(tie_word_embeddings=tied), prefix=f"{prefix}language_model.")
    vision = config.sub("vision_config").retyped("minimax_m3_vl_vision")
    width, hidden_size = vision.integer("hidden_size"), text.hidden_size
    inner = config.integer("projector_hidden_size")
    merged = hidden_size * vision.integer("spatial_merge_size", maximum=1024) ** 2
    first, second = f"{prefix}multi_modal_projector", f"{prefix}patch_merge_mlp"
    return with_towers(
        config,
        text,
        [
            *minimax_vision(vision, f"{prefix}vision_tower."),
            *linear(f"{first}.linear_1", inner, width, "vision", bias=True),
            *linear(f"{first}.linear_2", hidden_size, inner, "vision", bias=True),
            *linear(f"{second}.linear_1", inner, merged, "vision", bias=True),
            *linear(f"{second}.linear_2", hidden_size, inner, "vision", bias=True),
        ],
    )
