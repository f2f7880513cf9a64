"""Llama Nemotron (DeciLM): Llama whose attention and MLP were pruned or resized layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache, NoCache
from kvtax.architectures.config import MAXIMUM_WIDTH, Config, describe
from kvtax.architectures.decoder import Shape, assemble, attention, gated_mlp
from kvtax.architectures.tensors import ROW, Tensor, linear, norm

_LAYER = "model.layers.*"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """`block_configs` says of every layer how many query heads share a key/value head and how wide the MLP is, if any.

    Source: modeling_decilm.py of nvidia/Llama-3_3-Nemotron-Super-49B-v1, vllm 0.33.0
    model_executor/models/nemotron_nas.py.
    """
    shape = _shape(config)
    blocks = config.optional_list("block_configs", length=shape.num_hidden_layers)
    if blocks is None:
        config.fail("block_configs", "is missing: it describes the layers")
    groups: dict[int, list[int]] = {}
    widths: dict[int, list[int]] = {}
    attention_linear: list[int] = []
    mlp_linear: list[int] = []
    caches: list[LayerCache] = []
    for layer, block in enumerate(blocks):
        part = _part(config, block, layer, "attention")
        cache: LayerCache = NoCache()
        if part.get("replace_with_linear"):
            attention_linear.append(layer)
        elif not part.get("no_op"):
            kv_heads = _kv_heads(config, part, layer, shape)
            groups.setdefault(kv_heads, []).append(layer)
            cache = FullAttention(kv_heads, shape.head_dim, shape.head_dim)
        caches.append(cache)
        part = _part(config, block, layer, "ffn")
        if part.get("replace_with_linear"):
            mlp_linear.append(layer)
        elif not part.get("no_op"):
            widths.setdefault(_width(config, part, layer, shape.hidden_size), []).append(layer)
    body = _body(config, shape, groups, widths, attention_linear, mlp_linear)
    return assemble(
        config, shape, body, caches, prefix=prefix,
        intermediate_size=max(widths, default=0), num_key_value_heads=max(groups, default=0),
    )  # fmt: skip


def _shape(config: Config) -> Shape:
    """The sizes; num_key_value_heads of the config is null, and each layer has its own."""
    shape = Shape(config)
    shape.num_key_value_heads = shape.num_attention_heads
    return shape


def _body(
    config: Config,
    shape: Shape,
    groups: Mapping[int, list[int]],
    widths: Mapping[int, list[int]],
    attention_linear: list[int],
    mlp_linear: list[int],
) -> list[Tensor]:
    """The layers, those of one shape together; a part that is left out has no norm either."""
    attention_bias, mlp_bias = config.boolean("attention_bias"), config.boolean("mlp_bias")
    body: list[Tensor] = []
    for kv_heads, layers in groups.items():
        body += attention(
            f"{_LAYER}.self_attn", tuple(layers), shape.hidden_size, shape.num_attention_heads, kv_heads,
            shape.head_dim, qkv_bias=attention_bias, o_bias=attention_bias,
        )  # fmt: skip
    for width, layers in widths.items():
        body += gated_mlp(f"{_LAYER}.mlp", tuple(layers), shape.hidden_size, width, bias=mlp_bias)
    width = shape.hidden_size
    if attention_linear:
        name = f"{_LAYER}.self_attn.linear_attn"
        body += linear(name, width, width, "attention", tuple(attention_linear), bias=attention_bias, shard=ROW)
    if mlp_linear:
        body += linear(f"{_LAYER}.mlp.linear_mlp", width, width, "mlp", tuple(mlp_linear), shard=ROW)
    with_attention = tuple(sorted([*attention_linear, *(layer for layers in groups.values() for layer in layers)]))
    with_mlp = tuple(sorted([*mlp_linear, *(layer for layers in widths.values() for layer in layers)]))
    if with_attention:
        body += norm(f"{_LAYER}.input_layernorm", shape.hidden_size, with_attention)
    if with_mlp:
        body += norm(f"{_LAYER}.post_attention_layernorm", shape.hidden_size, with_mlp)
    return body


def _part(config: Config, block: object, layer: int, name: str) -> Mapping[str, Any]:
    """`attention` or `ffn` of a block, without anything that changes what is kept in ways that are not understood."""
    key = f"block_configs[{layer}].{name}"
    part = block.get(name) if isinstance(block, dict) else None
    if not isinstance(part, dict):
        config.fail(key, f"must be an object, not {describe(part)}")
    for flag in ("no_op", "replace_with_linear"):
        if part.get(flag) not in (None, True, False):
            config.fail(f"{key}.{flag}", f"must be true or false, not {describe(part.get(flag))}")
    for unknown in ("sparsify", "window_length", "num_sink_tokens", "mamba", "moe", "llama4"):
        if part.get(unknown):
            config.unsupported(f"{key}.{unknown}", "only full attention and dense MLPs are understood")
    return part


def _kv_heads(config: Config, part: Mapping[str, Any], layer: int, shape: Shape) -> int:
    """num_attention_heads / n_heads_in_group."""
    group = part.get("n_heads_in_group")
    key = f"block_configs[{layer}].attention.n_heads_in_group"
    if isinstance(group, bool) or not isinstance(group, int) or not 1 <= group <= shape.num_attention_heads:
        config.fail(key, f"must be between 1 and {shape.num_attention_heads}, not {describe(group)}")
    if shape.num_attention_heads % group:
        config.fail(key, f"{group} does not divide num_attention_heads {shape.num_attention_heads}")
    return shape.num_attention_heads // group


def _width(config: Config, part: Mapping[str, Any], layer: int, hidden_size: int) -> int:
    """intermediate_size, or 2/3 of ffn_mult x hidden_size rounded up to 256."""
    key = f"block_configs[{layer}].ffn"
    stated = part.get("intermediate_size")
    if stated is not None:
        if isinstance(stated, bool) or not isinstance(stated, int) or not 1 <= stated <= MAXIMUM_WIDTH:
            config.fail(f"{key}.intermediate_size", f"must be a whole number, not {describe(stated)}")
        return stated
    multiplier = part.get("ffn_mult")
    if isinstance(multiplier, bool) or not isinstance(multiplier, (int, float)) or not 0 < multiplier <= 1024:
        config.fail(f"{key}.ffn_mult", f"must be a number between 0 and 1024, not {describe(multiplier)}")
    return -(-int(2 * round(multiplier, 6) * hidden_size / 3) // 256) * 256
