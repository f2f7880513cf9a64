"""PaddleOCR-VL: SigLIP's layers, a norm and two linear layers over merged patches, an ERNIE 4.5 text model."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.families.llama_like import LAYOUTS
from kvtax.architectures.layout import build_layout
from kvtax.architectures.multimodal import NESTED, nested
from kvtax.architectures.tensors import linear, norm, prefixed
from kvtax.architectures.towers import siglip_vision, with_towers


def build(config: Config, *, prefix: str = "") -> Architecture:
    """The text model by itself (published files keep its keys at the top), or with the tower.

    Source: transformers 5.24.0 models/paddleocr_vl/modeling_paddleocr_vl.py, configuration_paddleocr_vl.py.
    """
    if config.model_type == "paddleocr_vl_text":
        return build_layout(config, LAYOUTS["ernie4_5"], prefix=prefix)
    flat = config.values.get("text_config") is None
    text = (config if flat else config.sub("text_config")).retyped("paddleocr_vl_text")
    tied = config.boolean("tie_word_embeddings") or text.boolean("tie_word_embeddings")
    architecture = nested(build_layout(text.retyped(tie_word_embeddings=tied), LAYOUTS["ernie4_5"]), prefix + NESTED)
    vision = config.sub("vision_config").retyped("paddleocr_vl_vision")
    width = vision.integer("hidden_size")
    merged = width * vision.integer("spatial_merge_size", maximum=1024) ** 2
    added = [
        *siglip_vision(vision.retyped(vision_use_head=False), "model.visual."),
        *norm("model.projector.pre_norm", width, bias=True, component="vision"),
        *linear("model.projector.linear_1", merged, merged, "vision", bias=True),
        *linear("model.projector.linear_2", architecture.hidden_size, merged, "vision", bias=True),
    ]
    return with_towers(config, architecture, prefixed(added, prefix))
