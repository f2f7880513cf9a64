"""Zamba 1: multi-head Mamba 1 layers, some of which also run the one attention block that all of them share."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache, Recurrent, State
from kvtax.architectures.config import MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble, attention, gated_mlp, layers_where
from kvtax.architectures.recurrent import COMPONENT, convolution, kernel_size, layer_kinds, state_dtypes
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, linear, norm

_LAYER = "model.layers.*"


class _Zamba(Shape):
    """The sizes; attention reads the stream and the embedding side by side."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.num_hidden_layers = config.integer("num_hidden_layers")
        self.hidden_size = config.integer("hidden_size")
        self.num_attention_heads = config.integer("num_attention_heads")
        self.num_key_value_heads = config.num_key_value_heads(self.num_attention_heads)
        self.attention_width = config.optional_integer("attention_hidden_size") or 2 * self.hidden_size
        self.head_dim = config.head_dim(2 * self.hidden_size, self.num_attention_heads)
        self.vocab_size = config.integer("vocab_size")
        self.layers = tuple(range(self.num_hidden_layers))
        self.tied = config.tie_word_embeddings(True)
        self.inner = config.integer("mamba_expand", maximum=1024) * self.hidden_size
        self.mamba_heads = config.integer("n_mamba_heads", maximum=65_536)
        if self.inner % self.mamba_heads:
            config.fail("n_mamba_heads", f"{self.mamba_heads} does not divide the mixer's width {self.inner}")
        self.state_size = config.integer("mamba_d_state")
        self.kernel = kernel_size(config, "mamba_d_conv")
        rank = config.get("mamba_dt_rank")
        self.rank = -(-self.hidden_size // 16) if rank == "auto" else config.integer("mamba_dt_rank")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Mamba 1 in every layer; hybrid layers first run the shared attention and MLP, whose weights count once.

    Source: transformers 5.24.0 models/zamba/modeling_zamba.py.
    """
    shape = _Zamba(config)
    hidden = shape.hidden_size
    kinds = layer_kinds(config, shape.num_hidden_layers, ("linear_attention", "hybrid")) or _default_kinds(
        config, shape
    )
    plain, hybrid = layers_where(kinds, "linear_attention"), layers_where(kinds, "hybrid")
    width = config.integer("intermediate_size")
    body: list[Tensor] = []
    if plain:
        body += [*_mixer(config, shape, f"{_LAYER}.mamba", plain), *norm(f"{_LAYER}.input_layernorm", hidden, plain)]
    if hybrid:
        inner, shared, first = f"{_LAYER}.mamba_decoder", f"{_LAYER}.shared_transf", hybrid[:1]
        body += linear(f"{_LAYER}.linear", hidden, hidden, "other", hybrid)
        body += _mixer(config, shape, f"{inner}.mamba", hybrid)
        body += norm(f"{inner}.input_layernorm", hidden, hybrid)
        heads, kv_heads = shape.num_attention_heads, shape.num_key_value_heads
        body += attention(f"{shared}.self_attn", first, shape.attention_width, heads, kv_heads, shape.head_dim)[:3]
        body += linear(f"{shared}.self_attn.o_proj", hidden, heads * shape.head_dim, "attention", first, shard=ROW)
        body += gated_mlp(f"{shared}.feed_forward", first, hidden, width)
        body += norm(f"{shared}.input_layernorm", shape.attention_width, first)
        body += norm(f"{shared}.pre_ff_layernorm", hidden, first)
    caches, cache_layers = _caches(config, shape, kinds)
    return assemble(
        config, shape, body, caches, prefix=prefix, final_norm=norm("model.final_layernorm", hidden),
        cache_layers=cache_layers, intermediate_size=width, rotary_dim=0,
    )  # fmt: skip


def _default_kinds(config: Config, shape: _Zamba) -> list[str]:
    """Mamba, mamba, hybrid, then hybrid where the layer (counted from the fourth) modulo attn_layer_period is attn_layer_offset."""
    period = config.integer("attn_layer_period", maximum=MAXIMUM_LAYERS)
    offset = config.integer("attn_layer_offset", minimum=0, maximum=MAXIMUM_LAYERS)
    if shape.num_hidden_layers < 3:
        config.fail("layers_block_type", "is missing, and its default is for three layers at least")
    rest = [
        "linear_attention" if index % period != offset else "hybrid" for index in range(shape.num_hidden_layers - 3)
    ]
    return ["linear_attention", "linear_attention", "hybrid", *rest]


def _mixer(config: Config, shape: _Zamba, prefix: str, layers: tuple[int, ...]) -> list[Tensor]:
    """Mamba 1 whose inner projections are one matrix per head, kept in one tensor."""
    heads, inner, state, rank = shape.mamba_heads, shape.inner, shape.state_size, shape.rank
    width, bias = inner // heads, config.boolean("mamba_proj_bias")
    shapes = {
        "x_proj_weight": (heads, rank + 2 * state, width),
        "dt_proj_weight": (heads, width, rank),
        "dt_proj_bias": (heads, width),
        "A_log": (heads, width, state),
        "D": (heads, width),
    }
    return [
        *(Tensor(f"{prefix}.{name}", size, COMPONENT, layers, shard=COLUMN) for name, size in shapes.items()),
        *convolution(
            f"{prefix}.conv1d", inner, shape.kernel, layers, bias=config.boolean("mamba_conv_bias", default=True)
        ),
        *linear(f"{prefix}.in_proj", 2 * inner, shape.hidden_size, COMPONENT, layers, bias=bias, shard=COLUMN),
        *linear(f"{prefix}.out_proj", shape.hidden_size, inner, COMPONENT, layers, bias=bias, shard=ROW),
    ]


def _caches(config: Config, shape: _Zamba, kinds: list[str]) -> tuple[list[LayerCache], list[int]]:
    """Conv and state in every layer, keys and values of its own in each hybrid one."""
    dtypes = state_dtypes(config)
    states = (
        State("conv", (shape.inner, shape.kernel - 1)),
        State("recurrent", (shape.inner, shape.state_size)),
    )
    recurrent = Recurrent("mamba1", states, dtypes.model, dtypes.ssm)
    full = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)
    found: list[LayerCache] = []
    layers: list[int] = []
    for index, kind in enumerate(kinds):
        kept: list[LayerCache] = [full, recurrent] if kind == "hybrid" else [recurrent]
        found += kept
        layers += [index] * len(kept)
    return found, layers
