"""MPT, as transformers has it (MptForCausalLM) and as llm-foundry wrote it (MPTForCausalLM)."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config, describe
from kvtax.architectures.decoder import Shape
from kvtax.architectures.layout import Layout, build_layout, square_head_dim
from kvtax.architectures.tensors import Tensor

_MPT = Layout(
    root="transformer",
    layers="blocks",
    embed="wte",
    final_norm="norm_f",
    norms=("norm_1", "norm_2"),
    attention="attn",
    qkv=("Wqkv",),
    o_proj="out_proj",
    mlp_module="ffn",
    mlp=("up_proj", "down_proj"),
    any_head_dim=False,
    rotary=0.0,
)


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Full heads, no biases, an MLP of four times the width; llm-foundry's own class reads more of its config.

    Source: transformers 5.24.0 models/mpt; for MPTForCausalLM modeling_mpt.py of mosaicml/mpt-7b.
    """
    shape = Shape(config)
    shape.num_key_value_heads = shape.num_attention_heads
    shape.head_dim = square_head_dim(shape)
    if config.architecture != "MPTForCausalLM":
        return build_layout(config, _MPT, prefix=prefix, shape=shape, intermediate_size=4 * shape.hidden_size)
    attention = config.sub("attn_config")
    layout = _MPT
    if not config.boolean("no_bias", default=False):
        layout = layout._replace(qkv_bias=True, o_bias=True, mlp_bias=True, norm_bias=True)
    if attention.boolean("qk_ln") or attention.boolean("qk_gn"):
        config.unsupported("attn_config", "norms on query and key are not understood")
    kind = attention.string("attn_type", default="multihead_attention")
    if kind == "multiquery_attention":
        shape.num_key_value_heads = 1
    elif kind == "grouped_query_attention":
        shape.num_key_value_heads = attention.integer("kv_n_heads")
        if shape.num_attention_heads % shape.num_key_value_heads:
            attention.fail("kv_n_heads", f"does not divide n_heads {shape.num_attention_heads}")
    elif kind != "multihead_attention":
        attention.unsupported("attn_type", f"attention {describe(kind)} is not understood")
    width = shape.hidden_size * config.integer("expansion_ratio", default=4, maximum=4096)
    # positions are learned unless alibi or rope is stated: the class default here is that of the other class
    computed = any(attention.states(key) and attention.boolean(key) for key in ("alibi", "rope"))
    learned = config.boolean("learned_pos_emb", default=True) and not computed
    return build_layout(
        config, layout, prefix=prefix, shape=shape, intermediate_size=width,
        extra=lambda shape: _positions(config, shape) if learned else [],
    )  # fmt: skip


def _positions(config: Config, shape: Shape) -> list[Tensor]:
    """The learned positions."""
    return [Tensor("transformer.wpe.weight", (config.integer("max_seq_len"), shape.hidden_size), "embedding")]
