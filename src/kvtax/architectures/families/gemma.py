"""Gemma 1, 2 and 3 (text) and VaultGemma."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.layout import Layout, build_layout
from kvtax.architectures.windows import every_nth, gemma3

_FOUR_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
_BIASED = Layout(qkv_bias="attention_bias", o_bias="attention_bias")

LAYOUTS: dict[str, Layout] = {
    "gemma": _BIASED,
    "gemma2": _BIASED._replace(windows=every_nth(2), norms=_FOUR_NORMS),
    "gemma3_text": _BIASED._replace(windows=gemma3, norms=_FOUR_NORMS, qk_norm="head"),
    "vaultgemma": _BIASED._replace(windows=every_nth(2), norms=("input_layernorm", "pre_feedforward_layernorm")),
}


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Wide heads, a gated MLP, two or four norms a layer; layers alternate between windows and the whole context.

    Source: transformers 5.24.0 models/gemma, gemma2, gemma3 and vaultgemma.
    """
    return build_layout(config, LAYOUTS[config.model_type], prefix=prefix)
