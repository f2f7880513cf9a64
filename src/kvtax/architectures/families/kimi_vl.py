"""Kimi models that see: K2.5 and its successors, Kimi-VL and K3; a MoonViT tower, a patch merger and a text model."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config, describe
from kvtax.architectures.multimodal import outer_tied
from kvtax.architectures.tensors import Tensor, linear, norm
from kvtax.architectures.towers import with_towers
from kvtax.architectures.towers_vit import moon_vit, moon_vit_2, moon_width, pair

_TEXT_TYPES = {"": "deepseek_v3", "kimi_k2": "deepseek_v3"}


def build(config: Config, *, prefix: str = "") -> Architecture:
    """MoonViT, a merger of merge_kernel_size patches, a text model of DeepSeek V3's or Kimi Linear's shape.

    Source: transformers 5.24.0 models/kimi_k25/modeling_kimi_k25.py; repository files modeling_kimi_vl.py and
    modeling_kimi_k3.py.
    """
    from kvtax.architectures.registry import build as build_any

    text_config = config.sub("text_config")
    text_config = text_config.retyped(_TEXT_TYPES.get(text_config.model_type, ""))
    tied = outer_tied(config, text_config)
    text = build_any(text_config.retyped(tie_word_embeddings=tied), prefix=f"{prefix}language_model.")
    if config.model_type == "kimi_k3":
        return with_towers(config, text, _k3_tower(config, prefix, text.hidden_size))
    vision = config.sub("vision_config").retyped("kimi_k25_vision")
    tower = moon_vit(vision, f"{prefix}vision_tower.")
    width = moon_width(vision)
    rows, columns = pair(vision, "merge_kernel_size")
    merged = width * rows * columns
    if config.model_type == "kimi_vl":
        name, first, second = f"{prefix}multi_modal_projector", "linear_1", "linear_2"
        normed = width
    else:
        name, first, second = f"{prefix}mm_projector", "proj.0", "proj.2"
        normed = _projection_width(config, vision)
    return with_towers(
        config,
        text,
        [
            *tower,
            *norm(f"{name}.pre_norm", normed, bias=True, component="vision"),
            *linear(f"{name}.{first}", merged, merged, "vision", bias=True),
            *linear(f"{name}.{second}", text.hidden_size, merged, "vision", bias=True),
        ],
    )


def _projection_width(config: Config, vision: Config) -> int:
    """projection_hidden_size, which the published files call mm_hidden_size of the tower."""
    if not config.states("projection_hidden_size") and vision.states("mm_hidden_size"):
        return vision.integer("mm_hidden_size")
    return config.integer("projection_hidden_size", default=1152)


def _k3_tower(config: Config, prefix: str, hidden_size: int) -> list[Tensor]:
    """The second MoonViT and its merger, which has its norm behind the linear layers."""
    vision = config.sub("vision_config")
    kind = vision.string("mm_projector_type", default="patchmergerv2")
    if kind != "patchmergerv2":
        vision.unsupported("mm_projector_type", f"projector {describe(kind)} is not understood")
    rows, columns = pair(vision, "merge_kernel_size")
    width = vision.optional_integer("mm_hidden_size") or moon_width(vision)
    merged = width * rows * columns
    name = f"{prefix}mm_projector"
    return [
        *moon_vit_2(vision, f"{prefix}vision_tower."),
        *linear(f"{name}.proj.0", merged, merged, "vision"),
        *linear(f"{name}.proj.2", hidden_size, merged, "vision"),
        *norm(f"{name}.post_norm", hidden_size, component="vision"),
    ]
