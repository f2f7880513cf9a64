"""Cohere Compass (North Micro Vision): Qwen3-VL's tower and a decoder with one norm a layer."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.layout import Layout, build_layout
from kvtax.architectures.multimodal import nested
from kvtax.architectures.tensors import prefixed
from kvtax.architectures.towers import with_towers
from kvtax.architectures.towers_qwen import qwen3_vl_tower
from kvtax.architectures.windows import Windows, stated_kinds

_FULL = "full_attention"


def _windows(config: Config, num_hidden_layers: int) -> Windows:
    """layer_types; without them every layer is full."""
    return stated_kinds(config, num_hidden_layers) or [_FULL] * num_hidden_layers, config.optional_integer(
        "sliding_window"
    )


# attention and MLP read the same normed input
_LAYOUT = Layout(windows=_windows, norms=("input_layernorm",), qkv_bias="attention_bias", o_bias="attention_bias")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """The decoder by itself, or with a vision tower that feeds several of its layers.

    Source: transformers 5.24.0 models/cohere_compass/modeling_cohere_compass.py.
    """
    if config.model_type == "cohere_compass_text":
        return build_layout(config, _LAYOUT, prefix=prefix)
    text = config.sub("text_config").retyped("cohere_compass_text")
    text = text.retyped(tie_word_embeddings=config.boolean("tie_word_embeddings"))
    architecture = nested(build_layout(text, _LAYOUT), f"{prefix}model.language_model.")
    vision = config.sub("vision_config").retyped("cohere_compass_vision")
    return with_towers(config, architecture, prefixed(qwen3_vl_tower(vision), prefix))
