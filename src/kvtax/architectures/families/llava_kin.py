"""Text models of any type behind a tower and a projector of their own: VipLlava, Video-LLaVA, DeepSeek-VL, Cohere 2 Vision, LightOnOCR."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config, describe
from kvtax.architectures.families.mistral3 import vision_feature_layers
from kvtax.architectures.multimodal import text_model
from kvtax.architectures.tensors import Tensor, linear, norm, prefixed
from kvtax.architectures.towers import pixtral_vision, projector, with_towers
from kvtax.architectures.towers_vit import any_vision_tower

_JOIN = "model.multi_modal_projector"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A tower, a projector, and the text model that the nested config names.

    Source: transformers 5.24.0 models/vipllava, video_llava, deepseek_vl, cohere2_vision, lighton_ocr (modeling).
    """
    text = text_model(config, module=f"{prefix}model.language_model.")
    vision = config.sub("vision_config")
    parts = _PARTS[config.model_type]
    return with_towers(config, text, prefixed(parts(config, vision, text.hidden_size), prefix))


def _vipllava(config: Config, vision: Config, hidden: int) -> list[Tensor]:
    """A norm over the layers of the tower side by side, then two linear layers."""
    width = vision.integer("hidden_size") * vision_feature_layers(config)
    return [
        *any_vision_tower(vision, "model.vision_tower."),
        *norm(f"{_JOIN}.projector_layernorm", width, bias=True, component="vision"),
        *projector(_JOIN, width, hidden),
    ]


def _video_llava(config: Config, vision: Config, hidden: int) -> list[Tensor]:
    """One tower for images and one of the same shape for videos."""
    width = vision.integer("hidden_size") * vision_feature_layers(config)
    return [
        *any_vision_tower(vision, "model.image_tower."),
        *any_vision_tower(vision, "model.video_tower."),
        *projector(_JOIN, width, hidden, bias=config.boolean("multimodal_projector_bias", default=True)),
    ]


def _deepseek_vl(_config: Config, vision: Config, hidden: int) -> list[Tensor]:
    """Two linear layers."""
    return [
        *any_vision_tower(vision, "model."),
        *projector("model.aligner", vision.integer("hidden_size"), hidden, names=("linear1", "linear2")),
    ]


def _cohere2(config: Config, vision: Config, hidden: int) -> list[Tensor]:
    """Patches put together, and an MLP whose first layer gives gate and value."""
    merged = vision.integer("hidden_size") * config.integer("downsample_factor", maximum=1024) ** 2
    inner = config.integer("alignment_intermediate_size", minimum=2)
    return [
        *any_vision_tower(vision, "model.vision_tower."),
        *linear(f"{_JOIN}.linear_1", inner, merged, "vision", bias=True),
        *linear(f"{_JOIN}.linear_2", hidden, inner // 2, "vision", bias=True),
    ]


def _lighton(config: Config, vision: Config, hidden: int) -> list[Tensor]:
    """A norm, a layer that merges spatial_merge_size^2 patches into one, two linear layers without bias."""
    if vision.model_type != "pixtral":
        vision.unsupported("model_type", f"vision tower {describe(vision.model_type)} is not understood")
    width, merge = vision.integer("hidden_size"), config.integer("spatial_merge_size", maximum=1024)
    name = "model.vision_projection"
    return [
        *pixtral_vision(vision, "model.vision_encoder."),
        *norm(f"{name}.norm", width, component="vision"),
        *linear(f"{name}.patch_merger.merging_layer", width, width * merge * merge, "vision"),
        *projector(name, width, hidden, bias=False),
    ]


_PARTS = {
    "vipllava": _vipllava,
    "video_llava": _video_llava,
    "deepseek_vl": _deepseek_vl,
    "cohere2_vision": _cohere2,
    "lighton_ocr": _lighton,
}
