"""LLaVA and its kin: a vision tower of any type, a projector of two linear layers, a text model of any type."""

from __future__ import annotations

import re

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config, describe
from kvtax.architectures.multimodal import outer_tied, text_model
from kvtax.architectures.tensors import Tensor, linear, norm
from kvtax.architectures.towers import projector, with_towers
from kvtax.architectures.towers_vit import any_vision_tower
from kvtax.terms import Notice

# class in `architectures`, or model type, of the first LLaVA code base -> type of its text model
_FLAT_TEXT = {
    "LlavaLlamaForCausalLM": "llama",
    "LlavaMistralForCausalLM": "mistral",
    "LlavaQwenForCausalLM": "qwen2",
    "llava": "llama",
    "llava_llama": "llama",
    "llava_mistral": "mistral",
    "llava_qwen": "qwen2",
}
_NEWLINE = ("llava_next", "llava_next_video", "llava_onevision")
_FORWARD = ("llava", "llava_next_video", "llava_onevision")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A tower, a projector and a text model; LLaVA-NeXT and OneVision keep a vector for the end of an image row.

    Source: transformers 5.24.0 models/llava, llava_next, llava_next_video, llava_onevision, aya_vision.
    """
    if config.model_type in ("llava_llama", "llava_mistral", "llava_qwen") or (
        config.values.get("text_config") is None and config.states("hidden_size")
    ):
        return _flat(config, prefix)
    text = text_model(config, prefix=f"{prefix}language_model.", forward=config.model_type in _FORWARD)
    vision = config.sub("vision_config")
    width, hidden_size = vision.integer("hidden_size"), text.hidden_size
    added = any_vision_tower(vision, f"{prefix}vision_tower.")
    name = f"{prefix}multi_modal_projector"
    if config.model_type == "aya_vision":
        added += _aya_projector(config, name, width, hidden_size)
    else:
        added += projector(
            name,
            width * _feature_layers(config),
            hidden_size,
            bias=config.boolean("multimodal_projector_bias", default=True),
        )
    if config.model_type in _NEWLINE:
        added.append(Tensor(f"{prefix}image_newline", (hidden_size,), "vision"))
    return with_towers(config, text, added)


def _feature_layers(config: Config) -> int:
    """How many layers of the tower the projector reads side by side."""
    value = config.get("vision_feature_layer")
    if not isinstance(value, list):
        return 1
    if not 1 <= len(value) <= 64:
        config.fail("vision_feature_layer", f"must name 1 to 64 layers, not {len(value)}")
    return len(value)


def _aya_projector(config: Config, name: str, width: int, hidden_size: int) -> list[Tensor]:
    """A norm over the patches put together and a gated MLP whose first layer gives gate and value."""
    merged = width * config.integer("downsample_factor", maximum=1024) ** 2
    inner = config.integer("alignment_intermediate_size", default=hidden_size)
    if inner < 2:
        config.fail("alignment_intermediate_size", f"must be at least 2, not {inner}")
    return [
        *norm(f"{name}.layernorm", merged, bias=True, component="vision"),
        *linear(f"{name}.linear_1", inner, merged, "vision", bias=True),
        *linear(f"{name}.linear_2", hidden_size, inner // 2, "vision", bias=True),
    ]


def _flat(config: Config, prefix: str) -> Architecture:
    """The layout of the first code base: text keys at the top, the tower only named, so its weights cannot be counted.

    Source: repository files llava/model/llava_arch.py, multimodal_projector/builder.py of haotian-liu/LLaVA.
    """
    from kvtax.architectures.registry import build as build_any

    kind = _FLAT_TEXT.get(config.architecture) or _FLAT_TEXT.get(config.model_type)
    if kind is None or (config.architecture and config.architecture not in _FLAT_TEXT):
        config.unsupported(
            "architectures", f"{describe(config.architecture)} in LLaVA's first layout is not understood"
        )
    flat = config.retyped(kind)
    text = build_any(flat.retyped(kind, tie_word_embeddings=outer_tied(flat, flat)), prefix=prefix)
    tower = config.string("mm_vision_tower", "vision_tower")
    if not tower:
        return with_towers(config, text, [])
    added = _mlp_projector(config, f"{prefix}model.mm_projector", text.hidden_size)
    if "unpad" in config.string("mm_patch_merge_type", default="flat"):
        added.append(Tensor(f"{prefix}model.image_newline", (text.hidden_size,), "vision"))
    notice = Notice(
        "vision-tower-not-counted",
        f"the config only names its vision tower, {describe(tower)}: the tower's weights are not counted",
        "add the size of that model, or use the checkpoint in transformers' own layout",
    )
    return with_towers(config, text, added, notices=(*text.notices, notice))


def _mlp_projector(config: Config, name: str, hidden_size: int) -> list[Tensor]:
    """`linear`, `identity` or `mlpNx_gelu`: N linear layers with a GELU between them."""
    kind = config.string("mm_projector_type", default="linear")
    if kind == "identity":
        return []
    width = config.integer("mm_hidden_size")
    if kind == "linear":
        return linear(name, hidden_size, width, "vision", bias=True)
    found = re.fullmatch(r"mlp([1-9])x_gelu", kind)
    if found is None:
        config.unsupported("mm_projector_type", f"projector {describe(kind)} is not understood")
    tensors: list[Tensor] = []
    for index in range(int(found.group(1))):
        tensors += linear(f"{name}.{2 * index}", hidden_size, width if index == 0 else hidden_size, "vision", bias=True)
    return tensors
