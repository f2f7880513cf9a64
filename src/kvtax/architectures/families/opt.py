"""OPT, XGLM and BioGPT."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import Shape, attention
from kvtax.architectures.layout import Layout, build_layout, square_head_dim
from kvtax.architectures.tensors import Tensor, linear, norm

_OPT = Layout(
    root="model.decoder",
    norms=("self_attn_layer_norm", "final_layer_norm"),
    norm_bias=True,
    final_norm="final_layer_norm",
    o_proj="out_proj",
    qkv_bias=True,
    o_bias=True,
    mlp_module="",
    mlp=("fc1", "fc2"),
    mlp_bias=True,
    any_head_dim=False,
    rotary=0.0,
)

LAYOUTS: dict[str, Layout] = {
    "opt": _OPT._replace(qkv_bias="enable_bias", o_bias="enable_bias", mlp_bias="enable_bias"),
    # positions are computed, not learned
    "xglm": _OPT._replace(root="model", final_norm="layer_norm"),
    "biogpt": _OPT._replace(root="biogpt", final_norm="layer_norm", head="output_projection"),
}


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Full heads, biases, an MLP without gate; OPT's embedding may be narrower than its layers.

    Source: transformers 5.24.0 models/opt, xglm, biogpt.
    """
    kind = config.model_type
    layout = LAYOUTS[kind]
    shape = Shape(config)
    shape.num_key_value_heads = shape.num_attention_heads
    shape.head_dim = square_head_dim(shape)
    width = config.integer("intermediate_size" if kind == "biogpt" else "ffn_dim")
    if kind == "opt":
        return _opt(config, layout, shape, width, prefix)
    return build_layout(
        config, layout, prefix=prefix, shape=shape, intermediate_size=width,
        extra=lambda shape: (
            _positions(config, "biogpt", shape.hidden_size) if kind == "biogpt" else _cross_attention(config, shape)
        ),
    )  # fmt: skip


def _positions(config: Config, root: str, hidden_size: int) -> list[Tensor]:
    """Learned positions; the first two rows are not used."""
    rows = config.integer("max_position_embeddings") + 2
    return [Tensor(f"{root}.embed_positions.weight", (rows, hidden_size), "embedding")]


def _cross_attention(config: Config, shape: Shape) -> list[Tensor]:
    """XGLM's attention to the output of an encoder: its caches are the encoder-decoder's business."""
    if not config.boolean("add_cross_attention"):
        return []
    heads = shape.num_attention_heads
    return [
        *attention(
            "model.layers.*.encoder_attn", shape.layers, shape.hidden_size, heads, heads, shape.head_dim,
            qkv_bias=True, o_bias=True, names=("q_proj", "k_proj", "v_proj", "out_proj"),
        ),
        *norm("model.layers.*.encoder_attn_layer_norm", shape.hidden_size, shape.layers, bias=True),
    ]  # fmt: skip


def _opt(config: Config, layout: Layout, shape: Shape, width: int, prefix: str) -> Architecture:
    """The embedding and the head have word_embed_proj_dim columns, with a projection in and out where that differs."""
    hidden_size = shape.hidden_size
    narrow = config.optional_integer("word_embed_proj_dim") or hidden_size
    affine = config.boolean("layer_norm_elementwise_affine", default=True)
    final = []
    if (
        affine
        and config.boolean("do_layer_norm_before", default=True)
        and not config.boolean("_remove_final_layer_norm")
    ):
        final = norm("model.decoder.final_layer_norm", hidden_size, bias=True)
    if not affine:
        layout = layout._replace(norms=())

    def extra(shape: Shape) -> list[Tensor]:
        found = _positions(config, "model.decoder", shape.hidden_size)
        if narrow != shape.hidden_size:
            found += linear("model.decoder.project_in", shape.hidden_size, narrow, "other")
            found += linear("model.decoder.project_out", narrow, shape.hidden_size, "other")
        return found

    return build_layout(
        config, layout, prefix=prefix, shape=shape, intermediate_size=width, extra=extra, final_norm=final,
        embedding_width=narrow,
    )  # fmt: skip
