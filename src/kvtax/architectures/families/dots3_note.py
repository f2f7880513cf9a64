"""Dots 3 Note: latent attention, sparse in some layers and windowed with widths of its own in the others, and experts."""

from __future__ import annotations

import json
from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import LayerCache, SlidingWindow
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.decoder import Shape, assemble, gated_mlp
from kvtax.architectures.latent import (
    IndexShape,
    LatentShape,
    dense_block,
    index_shape,
    indexer,
    latent_attention,
    moe_block,
    moe_shape,
    sparse_layers,
)
from kvtax.architectures.mixture import flags, others
from kvtax.architectures.tensors import COLUMN, Tensor, linear, norm

_LAYER = "model.layers.*"
_FULL, _INDEXED, _SLIDING = "full_attention", "indexed_attention", "sliding_attention"
# what layers with a window have where neither the file nor a key that begins with swa_ says otherwise
_SLIDING_WIDTHS = {
    "num_attention_heads": 64,
    "q_lora_rank": 1024,
    "kv_lora_rank": 1024,
    "head_dim": 256,
    "qk_nope_head_dim": 192,
    "v_head_dim": 128,
}
_WIDTHS = ("num_attention_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


class _Numbers(Shape):
    """The numbers of the decoder, and the widths of the attention of each layer."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.num_hidden_layers = config.integer("num_hidden_layers")
        self.hidden_size = config.integer("hidden_size")
        self.num_attention_heads = config.integer("num_attention_heads")
        self.vocab_size = config.integer("vocab_size")
        self.layers = tuple(range(self.num_hidden_layers))
        self.tied = config.tie_word_embeddings()
        self.kinds = _kinds(config, self.num_hidden_layers)
        self.widths = [_widths(config, changes, self.hidden_size) for changes in _changes(config, self.kinds)]
        self.num_key_value_heads = self.num_attention_heads
        self.head_dim = max(latent.qk_head_dim for latent in self.widths)
        self.window = config.optional_integer("sliding_window", "sliding_window_size") or 512

    def cache(self, layer: int, index_bytes: int) -> LayerCache:
        """The latent of every token, or of the last ones; the same on every rank."""
        latent = self.widths[layer]
        if self.kinds[layer] == _SLIDING:
            return SlidingWindow(1, latent.kv_lora_rank, latent.qk_rope_head_dim, self.window)
        return latent.cache(index_bytes if self.kinds[layer] == _INDEXED else 0)


def _kinds(config: Config, num_hidden_layers: int) -> list[str]:
    """layer_types, else full in layers 0, 1, 5, 9 ...; use_dsa makes the full ones sparse (unless per_layer_config is there)."""
    sparse: bool | None = None
    if config.states("use_dsa") or "per_layer_config" not in config.values:
        sparse = config.boolean("use_dsa", default=True)
    kinds = config.layer_types(num_hidden_layers)
    if kinds is None:
        windows = config.boolean("use_sliding_window", default=True)
        full = _FULL if sparse is False else _INDEXED
        kinds = [_SLIDING if windows and i >= 2 and i % 4 != 1 else full for i in range(num_hidden_layers)]
    if sparse is not None:
        old, new = (_FULL, _INDEXED) if sparse else (_INDEXED, _FULL)
        kinds = [new if kind == old else kind for kind in kinds]
    for index, kind in enumerate(kinds):
        if kind not in (_FULL, _INDEXED, _SLIDING):
            config.unsupported(f"layer_types[{index}]", f"layer type {describe(kind)} is not understood")
    return kinds


def _changes(config: Config, kinds: list[str]) -> list[dict[str, Any]]:
    """What each layer has instead of the numbers of the config: per_layer_config, else the swa_ keys for windows."""
    stated = config.values.get("per_layer_config")
    if isinstance(stated, dict):
        changes = [stated.get(str(index), {}) for index in range(len(kinds))]
        for index, change in enumerate(changes):
            if not isinstance(change, dict):
                config.fail(f"per_layer_config.{index}", f"must be an object, not {describe(change)}")
        return changes
    own = {key: config.integer(f"swa_{key}", default=value) for key, value in _SLIDING_WIDTHS.items()}
    rope = config.optional_integer("swa_qk_rope_head_dim", minimum=0)
    own["qk_rope_head_dim"] = own["head_dim"] - own["qk_nope_head_dim"] if rope is None else rope
    return [own if kind == _SLIDING else {} for kind in kinds]


def _widths(config: Config, changes: dict[str, Any], hidden: int) -> LatentShape:
    """The widths of the attention of one layer."""
    layer = config.retyped(**{key: value for key, value in changes.items() if key in _WIDTHS}) if changes else config
    return LatentShape(
        hidden,
        layer.integer("num_attention_heads"),
        layer.integer("q_lora_rank"),
        layer.integer("kv_lora_rank"),
        layer.integer("qk_nope_head_dim", minimum=0),
        layer.integer("qk_rope_head_dim"),
        layer.integer("v_head_dim"),
    )


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Latent attention with a gate per head and a norm of the rotary key, then a gated MLP or experts.

    Source: transformers 5.24.0 models/dots3_note/modeling_dots3_note.py, configuration_dots3_note.py.
    """
    shape = _Numbers(config)
    hidden, index = shape.hidden_size, index_shape(config)
    sparse = _sparse(config, shape.num_hidden_layers)
    width = config.integer("intermediate_size")
    body = [
        *_attention(config, shape, index),
        *norm(f"{_LAYER}.input_layernorm", hidden, shape.layers),
        *norm(f"{_LAYER}.post_attention_layernorm", hidden, shape.layers),
        *dense_block(f"{_LAYER}.mlp", others(shape.layers, sparse), hidden, width),
    ]
    facts: dict[str, Any] = {"intermediate_size": width, "rotary_dim": shape.widths[0].qk_rope_head_dim}
    if sparse:
        moe = moe_shape(config, "num_local_experts", "n_routed_experts")
        facts["num_experts"] = moe.num_experts
        facts["num_experts_per_tok"] = moe.num_experts_per_tok
        facts["moe_intermediate_size"] = moe.moe_intermediate_size
        body += moe_block(f"{_LAYER}.mlp", sparse, hidden, moe._replace(shared_intermediate_size=0))
        shared = config.integer("moe_shared_expert_intermediate_size", "shared_experts_intermediate_size")
        shared *= config.integer("n_shared_experts", maximum=MAXIMUM_EXPERTS)
        body += gated_mlp(f"{_LAYER}.mlp.shared_experts", sparse, hidden, shared, component="shared_experts")
    caches = [shape.cache(layer, index.bytes_per_token) for layer in shape.layers]
    return assemble(config, shape, body, caches, prefix=prefix, **facts)


def _sparse(config: Config, num_hidden_layers: int) -> tuple[int, ...]:
    """mlp_layer_types, else layers from first_k_dense_replace on that moe_layer_freq (a number, or one per layer) keeps."""
    if config.states("mlp_layer_types") or not isinstance(config.values.get("moe_layer_freq"), list):
        return sparse_layers(config, num_hidden_layers, dense=1)
    first = config.integer("first_k_dense_replace", default=1, minimum=0, maximum=MAXIMUM_LAYERS)
    return tuple(index for index in flags(config, "moe_layer_freq", num_hidden_layers) or () if index >= first)


def _attention(config: Config, shape: _Numbers, index: IndexShape) -> list[Tensor]:
    """Groups of layers with the same widths; an indexer where attention is sparse."""
    bias, name = config.boolean("attention_bias"), f"{_LAYER}.self_attn"
    groups: dict[str, list[int]] = {}
    for layer, latent in enumerate(shape.widths):
        groups.setdefault(json.dumps(latent), []).append(layer)
    found: list[Tensor] = []
    for members in groups.values():
        layers, latent = tuple(members), shape.widths[members[0]]
        found += latent_attention(name, layers, latent, bias=bias)
        found += norm(f"{name}.k_rope_only_layernorm", latent.qk_rope_head_dim, layers)
        found += linear(
            f"{name}.g_proj", latent.num_attention_heads, shape.hidden_size, "attention", layers, shard=COLUMN
        )
        owners = tuple(layer for layer in layers if shape.kinds[layer] == _INDEXED)
        found += indexer(f"{name}.indexer", owners, shape.hidden_size, latent.q_lora_rank or 0, index)
    return found
