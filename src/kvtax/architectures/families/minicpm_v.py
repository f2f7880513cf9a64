"""MiniCPM-V 4.6 and 4.7: SigLIP's layers with a merger among them, a merger behind them, and a Qwen3.5 text model."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import attention
from kvtax.architectures.multimodal import text_model
from kvtax.architectures.tensors import Tensor, linear, norm, prefixed
from kvtax.architectures.towers import convolution, encoder_layers, hidden_and_heads, patch_grid, with_towers
from kvtax.architectures.towers_vit import pair

_TOWER = "model.vision_tower"
_MERGED = 4  # patches that a merger puts together


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A tower that merges windows of patches after one of its layers, mergers, and the text model.

    Source: transformers 5.24.0 models/minicpmv4_6/modeling_minicpmv4_6.py, models/minicpmv4_7/modeling_minicpmv4_7.py.
    """
    text = text_model(config, module=f"{prefix}model.language_model.")
    vision = config.sub("vision_config").retyped(f"{config.model_type}_vision")
    width, times = vision.integer("hidden_size"), config.integer("merger_times", maximum=64)
    added = _tower(vision)
    for index in range(times):
        out_width = text.hidden_size if index + 1 == times else width
        added += _merger(f"model.merger.mlp.{index}", _MERGED * width, _MERGED * width, out_width)
    return with_towers(config, text, prefixed(added, prefix))


def _tower(config: Config) -> list[Tensor]:
    """Patches, learned positions, pre-norm layers, a norm, and the merger: attention and an MLP over a window."""
    width, heads = hidden_and_heads(config)
    inner = config.integer("intermediate_size")
    patch, side = patch_grid(config)
    window = pair(config, "window_kernel_size")
    area, merger = window[0] * window[1], f"{_TOWER}.vit_merger"
    return [
        *convolution(
            f"{_TOWER}.embeddings.patch_embedding", width, config.integer("num_channels", maximum=1024), patch, patch
        ),
        Tensor(f"{_TOWER}.embeddings.position_embedding.weight", (side * side, width), "vision"),
        *encoder_layers(f"{_TOWER}.encoder.layers", config.integer("num_hidden_layers"), width, heads, inner),
        *norm(f"{_TOWER}.post_layernorm", width, bias=True, component="vision"),
        *attention(
            f"{merger}.self_attn", (), width, heads, heads, width // heads, qkv_bias=True, o_bias=True,
            names=("q_proj", "k_proj", "v_proj", "out_proj"), component="vision",
        ),
        *norm(f"{merger}.layer_norm1", width, bias=True, component="vision"),
        *_merger(merger, area * width, area * inner, width),
    ]  # fmt: skip


def _merger(name: str, merged: int, inner: int, out_width: int) -> list[Tensor]:
    """A norm over the patches put together and two linear layers."""
    return [
        *norm(f"{name}.pre_norm", merged, bias=True, component="vision"),
        *linear(f"{name}.linear_1", inner, merged, "vision", bias=True),
        *linear(f"{name}.linear_2", out_width, inner, "vision", bias=True),
    ]
