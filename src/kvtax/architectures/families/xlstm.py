"""xLSTM: layers of mLSTM, which keep a matrix, a vector and a number per head, and gated MLPs."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import Recurrent, State
from kvtax.architectures.config import MAXIMUM_HEADS, MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.decoder import assemble, gated_mlp
from kvtax.architectures.recurrent import COMPONENT, AttentionFree
from kvtax.architectures.tensors import COLUMN, ROW, linear, norm
from kvtax.dtypes import find_dtype
from kvtax.errors import UnknownNameError

_BLOCK = "backbone.blocks.*"
_MULTIPLE = 64


class _Numbers(AttentionFree):
    """The sizes; either of two spellings gives the width and the number of layers."""

    def __init__(self, config: Config) -> None:
        self.config = config
        blocks = config.optional_integer("num_blocks", maximum=MAXIMUM_LAYERS)
        self.num_hidden_layers = config.integer("num_hidden_layers") if blocks is None else blocks
        self.hidden_size = config.optional_integer("hidden_size") or config.integer("embedding_dim")
        if config.states("embedding_dim") and config.integer("embedding_dim") != self.hidden_size:
            config.fail("embedding_dim", f"is not hidden_size {self.hidden_size}")
        self.num_attention_heads = self.num_key_value_heads = self.head_dim = 0
        self.vocab_size = config.integer("vocab_size")
        self.layers = tuple(range(self.num_hidden_layers))
        self.tied = False  # the class ties nothing, whatever tie_word_embeddings says
        self.heads = config.integer("num_heads", maximum=MAXIMUM_HEADS)
        self.keys = _rounded(config, self.hidden_size, "qk_dim_factor", _MULTIPLE)
        self.values = _rounded(config, self.hidden_size, "v_dim_factor", _MULTIPLE)
        for width in (self.keys, self.values):
            if width % self.heads:
                config.fail("num_heads", f"{self.heads} does not divide the width {width} of keys or values")


def _rounded(config: Config, hidden: int, key: str, multiple: int) -> int:
    """hidden_size times a factor, rounded up to a multiple."""
    factor = config.number(key)
    if not 0 < factor <= 1024:
        config.fail(key, f"must be between 0 and 1024, not {factor}")
    return int((hidden * factor + multiple - 1) // multiple * multiple)


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Queries, keys and values, gates for input, forgetting and output, a norm over heads; a gated MLP.

    Source: transformers 5.24.0 models/xlstm/modeling_xlstm.py.
    """
    shape = _Numbers(config)
    mode = config.string("weight_mode", default="single")
    if mode != "single":
        config.unsupported("weight_mode", f"{describe(mode)} is not understood")
    hidden, layers, bias, name = shape.hidden_size, shape.layers, config.boolean("use_bias"), f"{_BLOCK}.mlstm_layer"
    multiple = config.integer("ffn_round_up_to_multiple_of")
    inner = _rounded(config, hidden, "ffn_proj_factor", multiple)
    body = [
        *norm(f"{_BLOCK}.norm_mlstm", hidden, layers, bias=bias),
        *linear(f"{name}.q", shape.keys, hidden, COMPONENT, layers, bias=bias, shard=COLUMN),
        *linear(f"{name}.k", shape.keys, hidden, COMPONENT, layers, bias=bias, shard=COLUMN),
        *linear(f"{name}.v", shape.values, hidden, COMPONENT, layers, bias=bias, shard=COLUMN),
        *linear(f"{name}.ogate_preact", shape.values, hidden, COMPONENT, layers, bias=bias, shard=COLUMN),
        *linear(f"{name}.igate_preact", shape.heads, hidden, COMPONENT, layers, bias=True, shard=COLUMN),
        *linear(f"{name}.fgate_preact", shape.heads, hidden, COMPONENT, layers, bias=True, shard=COLUMN),
        *norm(f"{name}.multihead_norm", shape.values, layers, bias=bias),
        *linear(f"{name}.out_proj", hidden, shape.values, COMPONENT, layers, bias=bias, shard=ROW),
        *norm(f"{_BLOCK}.norm_ffn", hidden, layers, bias=bias),
        *gated_mlp(f"{_BLOCK}.ffn", layers, hidden, inner, bias=bias, names=("proj_up_gate", "proj_up", "proj_down")),
    ]
    keys, values = shape.keys // shape.heads, shape.values // shape.heads
    states = (
        State("recurrent", (shape.heads, keys, values)),
        State("recurrent", (shape.heads, keys)),
        State("recurrent", (shape.heads, 1)),
    )
    cache = Recurrent("linear_attention", states, config.dtype() or "bfloat16", _state_dtype(config))
    return assemble(
        config, shape, body, [cache] * shape.num_hidden_layers, prefix=prefix, embed_name="backbone.embeddings",
        final_norm=norm("backbone.out_norm", hidden), intermediate_size=inner, rotary_dim=0,
    )  # fmt: skip


def _state_dtype(config: Config) -> str:
    """inference_state_dtype, else what such states have anyway."""
    stated = config.string("inference_state_dtype")
    try:
        return find_dtype(stated).name if stated else ""
    except UnknownNameError:
        config.fail("inference_state_dtype", f"{describe(stated)} is not a dtype that is known")
