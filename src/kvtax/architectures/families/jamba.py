"""Jamba: Mamba 1 layers, attention every so many, a mixture of experts in every so many."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble, attention, experts, gated_mlp
from kvtax.architectures.families.mamba import time_step_rank
from kvtax.architectures.recurrent import Mamba1, expanded, kernel_size, state_dtypes
from kvtax.architectures.tensors import norm


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention without rope or Mamba 1 with norms over B, C and the time step; one gated MLP or many.

    Source: transformers 5.24.0 models/jamba/modeling_jamba.py.
    """
    shape = Shape(config)
    hidden = shape.hidden_size
    intermediate_size = config.integer("intermediate_size")
    attending = _every(config, shape.num_hidden_layers, "attn_layer_period", "attn_layer_offset")
    num_experts = config.integer("num_experts", maximum=MAXIMUM_EXPERTS)
    sparse = (
        _every(config, shape.num_hidden_layers, "expert_layer_period", "expert_layer_offset") if num_experts > 1 else ()
    )
    recurring = tuple(index for index in shape.layers if index not in set(attending))
    mixer = _mixer(config, hidden)
    layer = "model.layers.*"
    dense = tuple(index for index in shape.layers if index not in set(sparse))
    body = [
        *norm(f"{layer}.input_layernorm", hidden, shape.layers),
        *norm(f"{layer}.pre_ff_layernorm", hidden, shape.layers),
    ]
    if attending:
        body += attention(
            f"{layer}.self_attn",
            attending,
            hidden,
            shape.num_attention_heads,
            shape.num_key_value_heads,
            shape.head_dim,
        )
    if recurring:
        body += mixer.tensors(f"{layer}.mamba", recurring)
    if dense:
        body += gated_mlp(f"{layer}.feed_forward", dense, hidden, intermediate_size)
    if sparse:
        body += experts(f"{layer}.feed_forward", sparse, num_experts, hidden, intermediate_size, router="router")
    full = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)
    recurrent = mixer.cache(state_dtypes(config))
    caches: list[LayerCache] = [full if index in set(attending) else recurrent for index in shape.layers]
    return assemble(
        config, shape, body, caches, prefix=prefix, final_norm=norm("model.final_layernorm", hidden),
        intermediate_size=intermediate_size, rotary_dim=0,
        num_experts=num_experts if sparse else 0, moe_intermediate_size=intermediate_size if sparse else 0,
        num_experts_per_tok=config.integer("num_experts_per_tok", maximum=num_experts) if sparse else 0,
    )  # fmt: skip


def _mixer(config: Config, hidden_size: int) -> Mamba1:
    return Mamba1(
        hidden_size,
        expanded(config, hidden_size, "mamba_expand"),
        config.integer("mamba_d_state"),
        kernel_size(config, "mamba_d_conv"),
        time_step_rank(config, hidden_size, "mamba_dt_rank"),
        conv_bias=config.boolean("mamba_conv_bias", default=True),
        proj_bias=config.boolean("mamba_proj_bias"),
        norms=("dt_layernorm", "b_layernorm", "c_layernorm"),
    )


def _every(config: Config, num_hidden_layers: int, period_key: str, offset_key: str) -> tuple[int, ...]:
    """Layers whose index divided by the period leaves the offset."""
    period = config.integer(period_key, maximum=MAXIMUM_LAYERS)
    offset = config.integer(offset_key, minimum=0, maximum=period - 1)
    return tuple(range(offset, num_hidden_layers, period))
