"""HunYuan-VL (HunyuanOCR) and Hy4-VL: a tower with learned positions, a merger of two convolutions, a Hunyuan text model."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.families.hy_v4 import build as build_hy_v4
from kvtax.architectures.families.llama_like import LAYOUTS
from kvtax.architectures.layout import build_layout
from kvtax.architectures.tensors import Tensor, linear, norm, prefixed
from kvtax.architectures.towers import convolution, encoder_layers, with_towers


def build(config: Config, *, prefix: str = "") -> Architecture:
    """The text model by itself, or with a tower whose merger halves (or more) the grid of patches.

    Source: transformers 5.24.0 models/hunyuan_vl/modeling_hunyuan_vl.py, models/hy_v4_vl/modeling_hy_v4_vl.py (checkpoint
    names: conversion_mapping.py).
    """
    kind = config.model_type
    if kind.endswith("_text"):
        return _text(config, prefix)
    # published files keep the keys of the text model at the top
    flat = kind == "hunyuan_vl" and config.values.get("text_config") is None
    text = (config if flat else config.sub("text_config")).retyped(f"{kind}_text")
    tied = config.boolean("tie_word_embeddings")
    if kind == "hunyuan_vl":
        tied = tied or text.boolean("tie_word_embeddings")
    architecture = _text(text.retyped(tie_word_embeddings=tied), prefix)
    vision = config.sub("vision_config").retyped(f"{kind}_vision")
    added = [*_tower(vision), *_merger(vision, architecture.hidden_size, plain=kind == "hy_v4_vl")]
    return with_towers(config, architecture, prefixed(added, prefix))


def _text(config: Config, prefix: str) -> Architecture:
    """Hunyuan's dense decoder, or Hunyuan 4."""
    if config.model_type == "hy_v4_vl_text":
        return build_hy_v4(config, prefix=prefix)
    return build_layout(config, LAYOUTS["hunyuan_v1_dense"], prefix=prefix)


def _tower(config: Config) -> list[Tensor]:
    """Patches, positions of the largest image and one more, and pre-norm layers."""
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    if width % heads:
        config.fail("num_attention_heads", f"{heads} does not divide hidden_size {width}")
    patch, image = config.integer("patch_size", maximum=65_536), config.integer("max_image_size", maximum=65_536)
    channels = config.integer("num_channels", maximum=1024)
    found = [
        *convolution("vit.embeddings.patch_embedding", width, channels, patch, patch),
        Tensor("vit.embeddings.position_embedding.weight", ((image // patch) ** 2 + 1, width), "vision"),
    ]
    return found + encoder_layers(
        "vit.layers", config.integer("num_hidden_layers"), width, heads, config.integer("intermediate_size"),
        names=("q_proj", "k_proj", "v_proj", "o_proj"), mlp_names=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        norm_names=("input_layernorm", "post_attention_layernorm"),
    )  # fmt: skip


def _merger(config: Config, hidden: int, *, plain: bool) -> list[Tensor]:
    """A norm, a strided convolution, one of a single pixel, a vector for the end of a row.

    HunYuan-VL has a linear layer behind them, vectors around an image and a norm at the end (`plain` is without).
    """
    width, merge, name = (
        config.integer("hidden_size"),
        config.integer("spatial_merge_size", maximum=1024),
        "vit.perceive",
    )
    if plain:
        out_width, merged = config.integer("out_hidden_size"), width * merge * merge
        return [
            Tensor(f"{name}.image_newline", (out_width,), "vision"),
            *convolution(f"{name}.proj.0", merged, width, merge, merge),
            *convolution(f"{name}.proj.2", out_width, merged, 1, 1),
            *norm(f"{name}.norm", width, component="vision"),
        ]
    return [
        *convolution(f"{name}.proj.0", 2 * width, width, merge, merge),
        *convolution(f"{name}.proj.2", 4 * width, 2 * width, 1, 1),
        *linear(f"{name}.mlp", hidden, 4 * width, "vision", bias=True),
        Tensor(f"{name}.image_newline", (4 * width,), "vision"),
        *(Tensor(f"{name}.{part}", (hidden,), "vision") for part in ("image_begin", "image_end", "image_sep")),
        *norm(f"{name}.before_rms", width, component="vision"),
        *norm(f"{name}.after_rms", hidden, component="vision"),
    ]
