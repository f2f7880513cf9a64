"""ZAYA: attention over compressed, convolved queries and keys, one expert per token behind a router with a state."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache, Recurrent, SlidingWindow, State
from kvtax.architectures.config import Config, describe
from kvtax.architectures.decoder import Shape, assemble, gated_mlp
from kvtax.architectures.mixture import Routed, routed
from kvtax.architectures.recurrent import kernel_size
from kvtax.architectures.tensors import COLUMN, HEADS, ROW, Tensor, linear, norm

_LAYER = "model.layers.*"
_ATTENTION = f"{_LAYER}.self_attn"


class _Numbers(Shape):
    """The numbers of attention and its two convolutions."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.head_dim = config.integer("head_dim")
        self.kernels = (kernel_size(config, "cca_time0"), kernel_size(config, "cca_time1"))
        self.bias = config.boolean("attention_bias")
        self.heads = self.num_attention_heads + self.num_key_value_heads
        if self.num_key_value_heads * self.head_dim % 2:
            config.fail("head_dim", "leaves an odd width of values, which are made in two halves")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Queries and keys go through two convolutions, values come half from the token before; experts in every layer.

    Source: transformers 5.24.0 models/zaya/modeling_zaya.py.
    """
    shape = _Numbers(config)
    hidden, moe = shape.hidden_size, routed(config, experts=("num_experts",))
    if moe.num_experts_per_tok != 1:
        config.unsupported("num_experts_per_tok", "more than one expert per token is not understood")
    body = [
        *(Tensor(f"model.input_hidden_states_{part}", (hidden,), "other") for part in ("scale", "bias")),
        *_attention(shape),
        *_router(config, shape, moe),
        *gated_mlp(
            f"{_LAYER}.mlp.experts.*", shape.layers, hidden, moe.moe_intermediate_size,
            component="routed_experts", per_layer=moe.num_experts,
        ),
        *norm(f"{_LAYER}.input_layernorm", hidden, shape.layers),
        *norm(f"{_LAYER}.post_attention_layernorm", hidden, shape.layers),
    ]  # fmt: skip
    for module in ("post_attention_residual_scale", "post_mlp_residual_scale"):
        body += [
            Tensor(f"{_LAYER}.{module}.{part}", (hidden,), "other", shape.layers)
            for part in ("hidden_states_scale", "hidden_states_bias", "residual_scale", "residual_bias")
        ]
    caches, cache_layers = _caches(config, shape)
    return assemble(
        config, shape, body, caches, prefix=prefix, cache_layers=cache_layers,
        head_bias=config.boolean("lm_head_bias"), **moe.facts(),
    )  # fmt: skip


def _attention(shape: _Numbers) -> list[Tensor]:
    """Projections, a convolution per channel and one per head over queries and keys, a temperature per key head."""
    name, layers, hidden, bias = f"{_ATTENTION}.qkv_proj", shape.layers, shape.hidden_size, shape.bias
    queries, keys = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    kv_heads, (first, second) = (0, shape.num_key_value_heads), shape.kernels
    wide = queries + keys
    found = [
        *linear(f"{name}.q_proj", queries, hidden, "attention", layers, bias=bias, shard=COLUMN),
        *linear(f"{name}.k_proj", keys, hidden, "attention", layers, bias=bias, shard=HEADS, heads=kv_heads),
        *linear(f"{_ATTENTION}.o_proj", hidden, queries, "attention", layers, bias=bias, shard=ROW),
        Tensor(f"{_ATTENTION}.qk_norm.temp", (shape.num_key_value_heads,), "norms", layers),
    ]
    for part in ("current", "delayed"):
        found += linear(
            f"{name}.v_proj_{part}", keys // 2, hidden, "attention", layers, bias=bias, shard=HEADS, heads=kv_heads
        )
    for part, size in (("depthwise", (wide, 1, first)), ("grouped", (wide, shape.head_dim, second))):
        found.append(Tensor(f"{name}.conv_qk_{part}.weight", size, "linear_or_ssm", layers))
        found.append(Tensor(f"{name}.conv_qk_{part}.bias", (wide,), "linear_or_ssm", layers))
    return found


def _router(config: Config, shape: _Numbers, moe: Routed) -> list[Tensor]:
    """A projection down, an MLP that scores the experts and a way around them, and a scale of the layer before's state."""
    name, layers, width = f"{_LAYER}.mlp.gate", shape.layers, config.integer("router_hidden_size")
    classes = moe.num_experts + 1
    found = [
        *linear(f"{name}.down_proj", width, shape.hidden_size, "router", layers, bias=True),
        *norm(f"{name}.router_mlp.norm", width, layers, component="router"),
        *linear(f"{name}.router_mlp.fc1", width, width, "router", layers, bias=True),
        *linear(f"{name}.router_mlp.fc2", width, width, "router", layers, bias=True),
        *linear(f"{name}.router_mlp.out_proj", classes, width, "router", layers),
        Tensor(f"{name}.balancing_biases", (classes,), "router", layers, parameter=False, dtype="float32"),
    ]
    if len(layers) > 1:
        found.append(Tensor(f"{name}.router_states_scale", (width,), "router", layers[1:]))
    return found


def _caches(config: Config, shape: _Numbers) -> tuple[list[LayerCache], list[int]]:
    """Keys and values, and the state: inputs of both convolutions, and the values that the next token takes over."""
    kinds = config.layer_types(shape.num_hidden_layers) or ["hybrid"] * shape.num_hidden_layers
    window = config.optional_integer("sliding_window")
    sizes, columns = (shape.num_key_value_heads, shape.head_dim, shape.head_dim), sum(shape.kernels) - 2
    states = (
        State("conv", (shape.heads * shape.head_dim, columns)),
        State("conv", (shape.num_key_value_heads * shape.head_dim // 2,)),
    )
    state = Recurrent("short_conv", states, config.dtype() or "bfloat16")
    found: list[LayerCache] = []
    for index, kind in enumerate(kinds):
        if kind == "hybrid_sliding":
            if window is None:
                config.fail("sliding_window", "is missing or null, but layer_types has hybrid_sliding layers")
            found.append(SlidingWindow(*sizes, window))
        elif kind == "hybrid":
            found.append(FullAttention(*sizes))
        else:
            config.unsupported(f"layer_types[{index}]", f"layer type {describe(kind)} is not understood")
        found.append(state)
    return found, [index for index in shape.layers for _ in range(2)]
