"""Phi-3-vision: CLIP's large tower, fixed in the repository's code, a projector, and Phi-3."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config, describe
from kvtax.architectures.tensors import Tensor, linear
from kvtax.architectures.towers import clip_vision, with_towers

# the tower that the class fixes, whatever the config says
_CLIP = {
    "hidden_size": 1024,
    "image_size": 336,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "patch_size": 14,
    "num_channels": 3,
}


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Phi-3 with image features in place of some token embeddings; a tower where embd_layer asks for images.

    Source: repository files modeling_phi3_v.py, image_embedding_phi3_v.py of microsoft/Phi-3-vision-128k-instruct.
    """
    from kvtax.architectures.registry import build as build_any

    text = build_any(config.retyped("phi3"), prefix=prefix)
    layer = _object(config, "embd_layer")
    if layer.string("embedding_cls", default="image") != "image":
        config.unsupported("embd_layer", f"embedding_cls {describe(layer.get('embedding_cls'))} is not understood")
    return with_towers(
        config, text, _image_embedding(config, layer, f"{prefix}model.vision_embed_tokens.", text.hidden_size)
    )


def _object(config: Config, key: str) -> Config:
    """A nested object that has no defaults of its own."""
    return config.sub(key, model_type="phi3_v_embedding")


def _image_embedding(config: Config, layer: Config, prefix: str, hidden_size: int) -> list[Tensor]:
    """The tower, learned separators with use_hd_transform, and one or two linear layers (projection_cls)."""
    processor = _object(config, "img_processor")
    if processor.string("name", default="clip_vision_model") != "clip_vision_model":
        config.unsupported("img_processor", f"tower {describe(processor.get('name'))} is not understood")
    width = processor.integer("image_dim_out", default=_CLIP["hidden_size"])
    values: dict[str, Any] = dict(_CLIP)
    found = clip_vision(processor.retyped("clip_vision_model", **values), f"{prefix}img_processor.")
    hd = layer.boolean("use_hd_transform")
    merged = 4 * width if hd else width
    if layer.boolean("with_learnable_separator"):
        found.append(Tensor(f"{prefix}glb_GN", (1, 1, merged), "vision"))
        found.append(Tensor(f"{prefix}sub_GN", (1, 1, 1, merged), "vision"))
    kind = layer.string("projection_cls", default="linear")
    name = f"{prefix}img_projection"
    if kind == "linear":
        return [*found, *linear(name, hidden_size, width, "vision", bias=True)]
    if kind != "mlp":
        config.unsupported("embd_layer", f"projection_cls {describe(kind)} is not understood")
    found += linear(f"{name}.0", hidden_size, merged, "vision", bias=True)
    return [*found, *linear(f"{name}.2", hidden_size, hidden_size, "vision", bias=True)]
