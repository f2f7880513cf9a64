"""MiMo-V2-Flash: value heads narrower than key heads, windows with sinks and more key/value heads than the full layers."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache, SlidingWindow
from kvtax.architectures.config import MAXIMUM_HEADS, MAXIMUM_POSITIONS, Config, describe
from kvtax.architectures.decoder import Shape, assemble, attention, experts, layers_where
from kvtax.architectures.latent import dense_block, mtp_count
from kvtax.architectures.mixture import LAYER, flags, others, routed, stated_sparse
from kvtax.architectures.tensors import COLUMN, Tensor, norm, not_loaded


class Attention(NamedTuple):
    """The numbers of one kind of attention layer."""

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    sinks: bool


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Full attention in the first and every sixth layer, windows in the others; a dense first layer, then experts.

    Source: transformers 5.24.0 models/mimo_v2_flash/modeling_mimo_v2_flash.py; vllm 0.33.0 model_executor/models/mimo_v2_flash.py.
    """
    shape = Shape(config)
    kinds = _kinds(config, shape)
    full, windowed = _attention_shapes(config, shape)
    sparse = _sparse_layers(config, shape)
    dense = others(shape.layers, sparse)
    bias = config.boolean("attention_bias")
    extra = tuple(range(mtp_count(config)))
    facts: dict[str, Any] = {}
    body = _attention(shape, layers_where(kinds, "full_attention"), full, bias)
    body += _attention(shape, layers_where(kinds, "sliding_attention"), windowed, bias)
    body += norm(f"{LAYER}.input_layernorm", shape.hidden_size, shape.layers)
    body += norm(f"{LAYER}.post_attention_layernorm", shape.hidden_size, shape.layers)
    if sparse:
        numbers = routed(config, experts=("n_routed_experts", "num_local_experts", "num_experts"))
        facts.update(numbers.facts())
        body += experts(
            f"{LAYER}.mlp", sparse, numbers.num_experts, shape.hidden_size, numbers.moe_intermediate_size,
            correction_bias="gate.e_score_correction_bias",
        )  # fmt: skip
    if dense or extra:
        width = facts["intermediate_size"] = config.integer("intermediate_size")
        body += dense_block(f"{LAYER}.mlp", dense, shape.hidden_size, width)
        body += _mtp(shape, extra, windowed, bias, width)
    held = max((windowed if kind == "sliding_attention" else full).num_key_value_heads for kind in kinds)
    return assemble(
        config, shape, body, _caches(config, kinds, full, windowed), prefix=prefix, num_key_value_heads=held, **facts
    )


def _kinds(config: Config, shape: Shape) -> list[str]:
    """layer_types, else hybrid_layer_pattern (1 is a window), else full attention in the first and every sixth layer."""
    stated = config.layer_types(shape.num_hidden_layers)
    if stated is not None:
        for kind in stated:
            if kind not in ("full_attention", "sliding_attention"):
                config.unsupported("layer_types", f"layer type {describe(kind)} is not understood")
        return stated
    windows = flags(config, "hybrid_layer_pattern", shape.num_hidden_layers)
    if windows is None:
        windows = tuple(index for index in shape.layers if index and (index + 1) % 6)
    known = frozenset(windows)
    return ["sliding_attention" if index in known else "full_attention" for index in shape.layers]


def _sparse_layers(config: Config, shape: Shape) -> tuple[int, ...]:
    """mlp_layer_types, else moe_layer_freq, else all layers but the first."""
    stated = stated_sparse(config, shape.num_hidden_layers)
    if stated is None:
        stated = flags(config, "moe_layer_freq", shape.num_hidden_layers)
    return shape.layers[1:] if stated is None else stated


def _attention_shapes(config: Config, shape: Shape) -> tuple[Attention, Attention]:
    """Full layers and windowed ones, which have twice the key/value heads unless swa_num_key_value_heads says otherwise."""
    v_head_dim = config.optional_integer("v_head_dim") or shape.head_dim
    full_sinks = config.boolean("add_full_attention_sink_bias")
    full = Attention(shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim, v_head_dim, full_sinks)
    heads = config.optional_integer("swa_num_attention_heads", maximum=MAXIMUM_HEADS) or shape.num_attention_heads
    kv_heads = (
        config.optional_integer("swa_num_key_value_heads", maximum=MAXIMUM_HEADS) or 2 * shape.num_key_value_heads
    )
    if heads % kv_heads:
        config.fail("swa_num_key_value_heads", f"{kv_heads} key/value heads do not divide {heads} query heads")
    windowed = Attention(
        heads,
        kv_heads,
        config.optional_integer("swa_head_dim") or shape.head_dim,
        config.optional_integer("swa_v_head_dim") or v_head_dim,
        config.boolean("add_swa_attention_sink_bias", default=True),
    )
    return full, windowed


def _attention(
    shape: Shape, layers: tuple[int, ...], numbers: Attention, bias: bool, layer: str = LAYER
) -> list[Tensor]:
    """Attention of `layers`, which are all of one kind; nothing without layers."""
    if not layers:
        return []
    found = attention(
        f"{layer}.self_attn", layers, shape.hidden_size, numbers.num_attention_heads, numbers.num_key_value_heads,
        numbers.head_dim, v_head_dim=numbers.v_head_dim, qkv_bias=bias,
    )  # fmt: skip
    if numbers.sinks:
        name = f"{layer}.self_attn.attention_sink_bias"
        found.append(Tensor(name, (numbers.num_attention_heads,), "attention", layers, shard=COLUMN))
    return found


def _mtp(shape: Shape, layers: tuple[int, ...], numbers: Attention, bias: bool, width: int) -> list[Tensor]:
    """MTP layers: windowed attention and a dense MLP behind norms and a projection of two streams."""
    if not layers:
        return []
    module, hidden = "model.mtp.layers.*", shape.hidden_size
    found = _attention(shape, layers, numbers, bias, module)
    found += dense_block(f"{module}.mlp", layers, hidden, width)
    for name in ("enorm", "hnorm", "input_layernorm", "pre_mlp_layernorm", "final_layernorm"):
        found += norm(f"{module}.{name}", hidden, layers)
    found.append(Tensor(f"{module}.eh_proj.weight", (hidden, 2 * hidden), "mtp", layers))
    return not_loaded(found)


def _caches(config: Config, kinds: list[str], full: Attention, windowed: Attention) -> list[LayerCache]:
    """One cache per layer; the window is sliding_window_size + 1 (the query itself) where that key stands, else sliding_window."""
    whole = FullAttention(full.num_key_value_heads, full.head_dim, full.v_head_dim)
    if "sliding_attention" not in kinds:
        return [whole] * len(kinds)
    size = config.optional_integer("sliding_window_size", minimum=0, maximum=MAXIMUM_POSITIONS)
    window = config.integer("sliding_window") if size is None else size + 1
    part = SlidingWindow(windowed.num_key_value_heads, windowed.head_dim, windowed.v_head_dim, window)
    return [part if kind == "sliding_attention" else whole for kind in kinds]
