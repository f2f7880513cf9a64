"""GPT-NeoX, Bloom and Persimmon: one matrix for query, key and value, as many key/value heads as query heads."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import Shape
from kvtax.architectures.layout import Layout, build_layout, square_head_dim
from kvtax.architectures.tensors import Tensor, norm

_FUSED = Layout(
    norm_bias=True,
    qkv=("query_key_value",),
    qkv_bias=True,
    o_proj="dense",
    o_bias=True,
    mlp=("dense_h_to_4h", "dense_4h_to_h"),
    mlp_bias=True,
    any_head_dim=False,
)

LAYOUTS: dict[str, Layout] = {
    "gpt_neox": _FUSED._replace(
        root="gpt_neox", embed="embed_in", final_norm="final_layer_norm", head="embed_out", attention="attention",
        qkv_bias="attention_bias", o_bias="attention_bias", rotary=0.25,
    ),
    "gpt_neox_japanese": _FUSED._replace(
        root="gpt_neox_japanese", embed="embed_in", final_norm="final_layer_norm", head="embed_out",
        attention="attention", qkv_bias=False, o_bias=False, mlp_bias=False,
    ),
    "bloom": _FUSED._replace(
        root="transformer", layers="h", embed="word_embeddings", final_norm="ln_f", attention="self_attention",
        rotary=0.0,
    ),
    "persimmon": _FUSED._replace(
        final_norm="final_layernorm", qk_norm_names=("q_layernorm", "k_layernorm"), qk_norm_bias=True, rotary=0.5
    ),
}  # fmt: skip


def build(config: Config, *, prefix: str = "") -> Architecture:
    """LayerNorms, an MLP without gate of four times the width, or of what the config says.

    Source: transformers 5.24.0 models/gpt_neox, gpt_neox_japanese, bloom, persimmon.
    """
    kind = config.model_type
    layout = LAYOUTS[kind]
    shape = Shape(config)
    if kind == "bloom":
        # n_embed of older files replaces hidden_size
        shape.hidden_size = config.optional_integer("n_embed") or shape.hidden_size
    shape.num_key_value_heads = shape.num_attention_heads
    shape.head_dim = square_head_dim(shape)
    width = None
    if kind == "bloom":
        width = 4 * shape.hidden_size
    elif kind == "gpt_neox_japanese":
        width = int(shape.hidden_size * config.integer("intermediate_multiple_size"))
    elif kind == "persimmon" and config.boolean("qk_layernorm"):
        layout = layout._replace(qk_norm="head")
    return build_layout(
        config, layout, prefix=prefix, shape=shape, intermediate_size=width, extra=lambda shape: _extra(kind, shape)
    )


def _extra(kind: str, shape: Shape) -> list[Tensor]:
    """Bloom's norm of the embedding; the bias that NeoX Japanese has in its last layer only."""
    if kind == "bloom":
        return norm("transformer.word_embeddings_layernorm", shape.hidden_size, bias=True)
    if kind == "gpt_neox_japanese":
        last = shape.layers[-1:]
        return [Tensor("gpt_neox_japanese.layers.*.attention.dense_bias", (shape.hidden_size,), "attention", last)]
    return []
