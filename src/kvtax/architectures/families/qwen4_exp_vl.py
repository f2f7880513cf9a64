"""Qwen4-Exp with its tower: that of Qwen3.5."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.multimodal import text_model
from kvtax.architectures.tensors import prefixed
from kvtax.architectures.towers import with_towers
from kvtax.architectures.towers_qwen import qwen3_vl_tower


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A vision tower with one merger, and the text model of its own family.

    Source: transformers 5.24.0 models/qwen4_exp/modeling_qwen4_exp.py.
    """
    text = text_model(config, model_type="qwen4_exp_text", module=f"{prefix}model.language_model.")
    vision = config.sub("vision_config").retyped("qwen4_exp_vision")
    return with_towers(config, text, prefixed(qwen3_vl_tower(vision, deepstack=False), prefix))
