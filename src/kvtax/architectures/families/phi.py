"""Phi 1 to 4: phi, phi3 (also Phi-4 and Phi-4-mini) and Phi-3-small."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.layout import Layout, build_layout
from kvtax.architectures.windows import uniform

_PHI = Layout(
    norms=("input_layernorm",),
    norm_bias=True,
    final_norm="final_layernorm",
    qkv_bias=True,
    o_proj="dense",
    o_bias=True,
    qk_norm_names=("q_layernorm", "k_layernorm"),
    qk_norm_bias=True,
    mlp=("fc1", "fc2"),
    mlp_bias=True,
    head_bias=True,
    rotary=0.5,
)
_PHI3 = Layout(windows=uniform, qkv=("qkv_proj",), mlp=("gate_up_proj", "down_proj"), fused_gate=True)
_PHI3_SMALL = Layout(
    norm_bias=True,
    final_norm="final_layernorm",
    qkv=("query_key_value",),
    qkv_bias=True,
    o_proj="dense",
    o_bias=True,
    mlp=("up_proj", "down_proj"),
    fused_gate=True,
    mlp_bias=True,
    any_head_dim=False,
)


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Biases everywhere and one LayerNorm a layer (phi), or Llama with fused projections and one window (phi3).

    Phi-3-small's block-sparse layers keep every token: the blocks that a query may look at move with it.

    Source: transformers 5.24.0 models/phi, phi3; for phi3small modeling_phi3_small.py of
    microsoft/Phi-3-small-8k-instruct.
    """
    if config.model_type == "phi3small":
        width = _phi3_small_width(config)
        return build_layout(config, _PHI3_SMALL, prefix=prefix, intermediate_size=width)
    if config.model_type == "phi3":
        return build_layout(config, _PHI3, prefix=prefix)
    layout = _PHI
    if config.boolean("qk_layernorm"):
        layout = layout._replace(qk_norm="square")
    return build_layout(config, layout, prefix=prefix)


def _phi3_small_width(config: Config) -> int:
    """ff_intermediate_size; null: ff_dim_multiplier x 2/3 of hidden_size, rounded up to 256."""
    width = config.optional_integer("ff_intermediate_size")
    if width is not None:
        return width
    multiplier = config.integer("ff_dim_multiplier", maximum=4096)
    width = multiplier * (config.integer("hidden_size") // 3) * 2
    return -(-width // 256) * 256 if config.boolean("gegelu_pad_to_256", default=True) else width
