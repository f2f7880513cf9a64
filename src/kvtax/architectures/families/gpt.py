"""GPT-2 and what grew from it: gpt_bigcode, gpt_neo, gptj, codegen and the first GPT."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.decoder import Shape
from kvtax.architectures.layout import Layout, build_layout, square_head_dim
from kvtax.architectures.tensors import COLUMN, HEADS, ROW, Tensor, linear, norm

_GPT2 = Layout(
    root="transformer",
    layers="h",
    embed="wte",
    final_norm="ln_f",
    norms=("ln_1", "ln_2"),
    norm_bias=True,
    attention="attn",
    qkv=("c_attn",),
    qkv_bias=True,
    o_proj="c_proj",
    o_bias=True,
    mlp=("c_fc", "c_proj"),
    mlp_bias=True,
    any_head_dim=False,
    rotary=0.0,
)
_SPLIT = ("q_proj", "k_proj", "v_proj")
_GPTJ = _GPT2._replace(
    norms=("ln_1",),
    qkv=_SPLIT,
    qkv_bias=False,
    o_proj="out_proj",
    o_bias=False,
    mlp=("fc_in", "fc_out"),
    head_bias=True,
)

LAYOUTS: dict[str, Layout] = {
    # weights of these two are kept [in, out]
    "gpt2": _GPT2._replace(transposed=True),
    "openai-gpt": _GPT2._replace(transposed=True, embed="tokens_embed", final_norm=""),
    "gpt_bigcode": _GPT2,
    "gpt_neo": _GPT2._replace(attention="attn.attention", qkv=_SPLIT, qkv_bias=False, o_proj="out_proj"),
    "gptj": _GPTJ,
    "codegen": _GPTJ._replace(qkv=("qkv_proj",)),
}
_POSITIONS = {"gpt2": "wpe", "gpt_bigcode": "wpe", "gpt_neo": "wpe", "openai-gpt": "positions_embed"}


def build(config: Config, *, prefix: str = "") -> Architecture:
    """As many key/value heads as query heads (one in gpt_bigcode with multi_query), an MLP without gate, LayerNorms.

    GPT-Neo's local layers look at a window, but nothing that runs it drops the tokens before: their cache is full.

    Source: transformers 5.24.0 models/gpt2, gpt_bigcode, gpt_neo, gptj, codegen, openai.
    """
    kind = config.model_type
    layout = LAYOUTS.get(kind, LAYOUTS["gpt2"])
    shape = Shape(config)
    shape.num_key_value_heads = shape.num_attention_heads
    if kind == "gpt_bigcode" and config.boolean("multi_query"):
        shape.num_key_value_heads = 1
    shape.head_dim = square_head_dim(shape)
    if kind == "gpt_neo":
        _check_attention_types(config, shape)
    width = config.optional_integer("intermediate_size" if kind == "gpt_neo" else "n_inner")
    if kind == "openai-gpt":
        width = None
    return build_layout(
        config, layout, prefix=prefix, shape=shape, intermediate_size=width or 4 * shape.hidden_size,
        rotary_dim=_rotary_dim(config, shape),
        extra=lambda shape: [*_positions(config, shape), *_cross_attention(config, layout, shape)],
    )  # fmt: skip


def _positions(config: Config, shape: Shape) -> list[Tensor]:
    """The learned positions."""
    name = _POSITIONS.get(config.model_type, "" if config.model_type in ("gptj", "codegen") else "wpe")
    rows = config.integer("max_position_embeddings")
    return [Tensor(f"transformer.{name}.weight", (rows, shape.hidden_size), "embedding")] if name else []


def _cross_attention(config: Config, layout: Layout, shape: Shape) -> list[Tensor]:
    """What a decoder that reads an encoder has in every layer besides; its cross caches are the encoder-decoder's."""
    if config.model_type not in ("gpt2", "gpt-sw3", "gpt_bigcode") or not config.boolean("add_cross_attention"):
        return []
    if shape.num_key_value_heads != shape.num_attention_heads:
        config.unsupported("add_cross_attention", "cross-attention with multi_query is not understood")
    width, heads, layers = shape.hidden_size, shape.num_attention_heads, shape.layers
    prefix = "transformer.h.*.crossattention"
    found = [
        *linear(f"{prefix}.c_attn", 2 * width, width, "attention", layers, bias=True, shard=HEADS, heads=(0, heads)),
        *linear(f"{prefix}.q_attn", width, width, "attention", layers, bias=True, shard=COLUMN),
        *linear(f"{prefix}.c_proj", width, width, "attention", layers, bias=True, shard=ROW),
    ]
    if layout.transposed:
        found = [tensor._replace(shape=tensor.shape[::-1]) for tensor in found]
    return [*found, *norm("transformer.h.*.ln_cross_attn", width, layers, bias=True)]


def _rotary_dim(config: Config, shape: Shape) -> int:
    """rotary_dim of gptj and codegen; null: the whole head."""
    if config.model_type not in ("gptj", "codegen"):
        return 0
    return min(config.optional_integer("rotary_dim", minimum=0) or shape.head_dim, shape.head_dim)


def _check_attention_types(config: Config, shape: Shape) -> None:
    """attention_types lists [[kinds], repeats] for as many layers as the model has.

    Raises:
        ConfigError: it does not.
        UnsupportedArchitectureError: a kind other than global and local.
    """
    groups = config.optional_list("attention_types")
    if groups is None:
        return
    layers = 0
    for group in groups:
        if not isinstance(group, list) or len(group) != 2 or not isinstance(group[0], list):
            config.fail("attention_types", f"holds {describe(group)}, which is not [[kinds], repeats]")
        kinds, repeats = group
        if isinstance(repeats, bool) or not isinstance(repeats, int) or not 0 <= repeats <= MAXIMUM_LAYERS:
            config.fail("attention_types", f"repeats {describe(repeats)} times")
        if any(kind not in ("global", "local") for kind in kinds):
            config.unsupported("attention_types", "attention other than global and local is not understood")
        layers += len(kinds) * repeats
    if layers != shape.num_hidden_layers:
        config.fail("attention_types", f"describes {layers} layers, but the model has {shape.num_hidden_layers}")
