"""RecurrentGemma: real-gated linear recurrent units with local attention in a repeating pattern."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import LayerCache, Recurrent, SlidingWindow, State
from kvtax.architectures.config import MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.decoder import Shape, assemble, attention, gated_mlp, layers_where
from kvtax.architectures.recurrent import COMPONENT, convolution, kernel_size, state_dtypes
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, linear, norm


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A recurrent block or attention over the last attention_window_size tokens, then a gated MLP.

    Source: transformers 5.24.0 models/recurrent_gemma/modeling_recurrent_gemma.py.
    """
    shape = Shape(config)
    hidden = shape.hidden_size
    kinds = _kinds(config, shape.num_hidden_layers)
    recurring, attending = layers_where(kinds, "recurrent"), layers_where(kinds, "attention")
    width = config.optional_integer("lru_width") or hidden
    kernel = kernel_size(config, "conv1d_width")
    intermediate_size = config.integer("intermediate_size", minimum=2) // 2
    layer, bias = "model.layers.*", config.boolean("attention_bias")
    body = [
        *norm(f"{layer}.temporal_pre_norm", hidden, shape.layers),
        *norm(f"{layer}.channel_pre_norm", hidden, shape.layers),
        *gated_mlp(f"{layer}.mlp_block", shape.layers, hidden, intermediate_size, bias=True),
    ]
    if recurring:
        body += _recurrent_block(config, f"{layer}.temporal_block", recurring, shape, width, kernel)
    if attending:
        body += attention(
            f"{layer}.temporal_block", attending, hidden, shape.num_attention_heads, shape.num_key_value_heads,
            shape.head_dim, qkv_bias=bias, o_bias=True,
        )  # fmt: skip
    window = config.integer("attention_window_size", maximum=2**31)
    sliding = SlidingWindow(shape.num_key_value_heads, shape.head_dim, shape.head_dim, window)
    dtypes = state_dtypes(config)
    recurrent = Recurrent(
        "rg_lru", (State("conv", (width, kernel - 1)), State("recurrent", (width,))), dtypes.model, dtypes.ssm
    )
    caches: list[LayerCache] = [recurrent if kind == "recurrent" else sliding for kind in kinds]
    return assemble(
        config, shape, body, caches, prefix=prefix, final_norm=norm("model.final_norm", hidden),
        intermediate_size=intermediate_size, rotary_dim=shape.head_dim // 2,
    )  # fmt: skip


def _kinds(config: Config, num_hidden_layers: int) -> list[str]:
    """block_types, repeated until every layer has one."""
    pattern = config.optional_list("block_types")
    if not pattern or len(pattern) > MAXIMUM_LAYERS:
        config.fail("block_types", "must name at least one block")
    for index, kind in enumerate(pattern):
        if kind not in ("recurrent", "attention"):
            config.unsupported(f"block_types[{index}]", f"block type {describe(kind)} is not understood")
    return [pattern[index % len(pattern)] for index in range(num_hidden_layers)]


def _recurrent_block(
    config: Config, prefix: str, layers: tuple[int, ...], shape: Shape, width: int, kernel: int
) -> list[Tensor]:
    """Two input projections, a convolution, gates of one block a head, and the output projection; all with biases."""
    heads, hidden = shape.num_attention_heads, shape.hidden_size
    block = width // heads
    if block * heads != width:
        config.fail("lru_width", f"{width} is not divisible by num_attention_heads {heads}")
    lru = f"{prefix}.rg_lru"
    found = [
        *linear(f"{prefix}.linear_y", width, hidden, COMPONENT, layers, bias=True, shard=COLUMN),
        *linear(f"{prefix}.linear_x", width, hidden, COMPONENT, layers, bias=True, shard=COLUMN),
        *linear(f"{prefix}.linear_out", hidden, width, COMPONENT, layers, bias=True, shard=ROW),
        *convolution(f"{prefix}.conv_1d", width, kernel, layers, bias=True),
        Tensor(f"{lru}.recurrent_param", (width,), COMPONENT, layers, shard=COLUMN),
    ]
    for gate in ("input_gate", "recurrent_gate"):
        found.append(Tensor(f"{lru}.{gate}_weight", (heads, block, block), COMPONENT, layers, shard=COLUMN))
        found.append(Tensor(f"{lru}.{gate}_bias", (heads, block), COMPONENT, layers, shard=COLUMN))
    return found
