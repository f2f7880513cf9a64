"""Mistral Large 4: sparse latent attention, on some layers without rope or with another layer's cache; experts; Pixtral's tower."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import LayerCache, MultiHeadLatent, Shared
from kvtax.architectures.config import MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.decoder import assemble, experts, gated_mlp
from kvtax.architectures.families.mistral3 import vision_feature_layers
from kvtax.architectures.latent import (
    IndexShape,
    LatentDecoder,
    LatentShape,
    index_owners,
    index_shape,
    indexer,
    moe_shape,
)
from kvtax.architectures.layout import rotary_dim
from kvtax.architectures.mixture import flags, others, stated_sparse
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, linear, norm, prefixed
from kvtax.architectures.towers import pixtral_vision, with_towers

_LAYER = "layers.*"
_MLP = ("w1", "w3", "w2")


class _Numbers(LatentDecoder):
    """The numbers of the text model; `sources` is the layer whose latents each layer reads."""

    def __init__(self, config: Config) -> None:
        super().__init__(config.retyped(q_lora_rank=None))
        self.config = config
        for kind in config.layer_types(self.num_hidden_layers) or ():
            if kind != "indexed_attention":
                config.unsupported("layer_types", f"layer type {describe(kind)} is not understood")
        self.roped = _roped(config, self.num_hidden_layers)
        self.sources = _sources(config, self.num_hidden_layers)
        self.index: IndexShape = index_shape(config)
        self.index_owners = index_owners(config, self.num_hidden_layers)
        self.bias = config.boolean("attention_bias")
        sparse = stated_sparse(config, self.num_hidden_layers)
        if sparse is None:
            sparse = self.layers[config.integer("first_k_dense_replace", minimum=0, maximum=MAXIMUM_LAYERS) :]
        self.sparse = sparse

    def latent_of(self, roped: bool) -> LatentShape:
        """A layer without rope folds the width of the rotary key into the latent's part."""
        if roped:
            return self.latent
        return self.latent._replace(qk_nope_head_dim=self.latent.qk_head_dim, qk_rope_head_dim=0)


def _roped(config: Config, num_hidden_layers: int) -> frozenset[int]:
    """Layers with rope: no_rope_layers has a 1 there, else all but every no_rope_layer_interval-th."""
    stated = flags(config, "no_rope_layers", num_hidden_layers)
    if stated is not None:
        return frozenset(stated)
    interval = config.integer("no_rope_layer_interval", default=4, maximum=MAXIMUM_LAYERS)
    return frozenset(index for index in range(num_hidden_layers) if (index + 1) % interval)


def _sources(config: Config, num_hidden_layers: int) -> list[int]:
    """kv_source_layers: its own index for a layer with latents of its own, else that of an earlier such layer."""
    sources = config.integers("kv_source_layers", length=num_hidden_layers, maximum=MAXIMUM_LAYERS)
    if sources is None:
        return list(range(num_hidden_layers))
    for index, source in enumerate(sources):
        if source > index or sources[source] != source:
            config.fail("kv_source_layers", f"layer {index} cannot read layer {source}, which has no latents by then")
    return sources


def build(config: Config, *, prefix: str = "") -> Architecture:
    """The text model by itself, or with a Pixtral tower, a merger of patches and two linear layers.

    Source: transformers 5.24.0 models/mistral_large4/modeling_mistral_large4.py (checkpoint names: conversion_mapping.py).
    """
    if config.model_type.endswith("_text"):
        return build_text(config, prefix=prefix)
    text = config.sub("text_config").retyped("mistral_large4_text")
    text = text.retyped(tie_word_embeddings=config.boolean("tie_word_embeddings"))
    architecture = build_text(text, prefix=prefix)
    vision, hidden = config.sub("vision_config"), architecture.hidden_size
    if vision.model_type != "pixtral":
        vision.unsupported("model_type", f"vision tower {describe(vision.model_type)} is not understood")
    width, merge = vision.integer("hidden_size"), config.integer("spatial_merge_size", maximum=1024)
    bias = config.boolean("multimodal_projector_bias")
    added = [
        *(tensor._replace(name=_tower_name(tensor.name)) for tensor in pixtral_vision(vision, "vision_encoder.")),
        *norm("pre_mm_projector_norm", width, component="vision"),
        *linear("patch_merger.merging_layer", width, width * merge * merge, "vision"),
        *linear("vision_language_adapter.w_in", hidden, width * vision_feature_layers(config), "vision", bias=bias),
        *linear("vision_language_adapter.w_out", hidden, hidden, "vision", bias=bias),
    ]
    return with_towers(config, architecture, prefixed(added, prefix))


def _tower_name(name: str) -> str:
    """The name that the file gives a tensor of the tower."""
    for part, own in (("q", "wq"), ("k", "wk"), ("v", "wv"), ("o", "wo"), ("gate", "w1"), ("up", "w3"), ("down", "w2")):
        name = name.replace(f".{part}_proj.", f".{own}.")
    return name


def build_text(config: Config, *, prefix: str = "") -> Architecture:
    """Latent attention with scaled softmax and an indexer, then a gated MLP or routed and shared experts.

    Source: transformers 5.24.0 models/mistral_large4/modeling_mistral_large4.py (checkpoint names: conversion_mapping.py).
    """
    shape = _Numbers(config)
    hidden, width = shape.hidden_size, config.integer("intermediate_size")
    body = [*_attention(shape), *_indexer(shape)]
    for name in ("attention_norm", "ffn_norm"):
        body += norm(f"{_LAYER}.{name}", hidden, shape.layers)
    dense = others(shape.layers, shape.sparse)
    if dense:
        body += gated_mlp(f"{_LAYER}.feed_forward", dense, hidden, width, names=_MLP)
    facts: dict[str, Any] = {"intermediate_size": width, "rotary_dim": shape.latent.qk_rope_head_dim}
    body += _experts(config, shape, facts)
    turned = rotary_dim(config, shape.latent.qk_rope_head_dim, 1.0)
    body.append(Tensor("lerope.alpha", (-(-turned // 2),), "other", dtype="float32"))
    return assemble(
        config, shape, body, _caches(shape), prefix=prefix, embed_name="tok_embeddings", head_name="output",
        final_norm=norm("norm", hidden), **facts,
    )  # fmt: skip


def _attention(shape: _Numbers) -> list[Tensor]:
    """Queries at once, latents where a layer has its own, what widens them, output, and a scale and bias per head."""
    name, hidden, heads, latent = f"{_LAYER}.attention", shape.hidden_size, shape.num_attention_heads, shape.latent
    layers = shape.layers
    own = tuple(layer for layer in layers if shape.sources[layer] == layer)
    found = [
        *linear(f"{name}.wq", heads * latent.qk_head_dim, hidden, "attention", layers, shard=COLUMN),
        *norm(f"{name}.kv_a_norm", latent.kv_lora_rank, own),
        *linear(f"{name}.wo", hidden, heads * latent.v_head_dim, "attention", layers, bias=shape.bias, shard=ROW),
        Tensor(f"{name}.ssmax_scaling.s", (heads,), "attention", layers, shard=COLUMN),
        Tensor(f"{name}.ssmax_scaling.b", (heads,), "attention", layers, shard=COLUMN),
    ]
    for roped in (True, False):
        kind = shape.latent_of(roped)
        these = tuple(layer for layer in layers if (layer in shape.roped) == roped)
        owning = tuple(layer for layer in own if (layer in shape.roped) == roped)
        if owning:
            rows = kind.kv_lora_rank + kind.qk_rope_head_dim
            found += linear(f"{name}.wkv_a_with_mqa", rows, hidden, "attention", owning, bias=shape.bias)
        if these:
            rows = heads * (kind.qk_nope_head_dim + kind.v_head_dim)
            found += linear(f"{name}.wkv_b", rows, kind.kv_lora_rank, "attention", these, shard=COLUMN)
    return found


def _indexer(shape: _Numbers) -> list[Tensor]:
    """An indexer whose queries come from normed hidden states, and a scale and bias for each of its heads."""
    name, layers, hidden = f"{_LAYER}.attention.indexer", shape.index_owners, shape.hidden_size
    if not layers:
        return []
    heads = shape.index.index_n_heads
    return [
        *indexer(name, layers, hidden, hidden, shape.index),
        *norm(f"{name}.q_input_norm", hidden, layers, bias=True),
        Tensor(f"{name}.ssmax_scaling.s", (heads,), "attention", layers),
        Tensor(f"{name}.ssmax_scaling.b", (heads,), "attention", layers),
    ]


def _experts(config: Config, shape: _Numbers, facts: dict[str, Any]) -> list[Tensor]:
    """A router without a bias, routed experts and an MLP of all shared ones; nothing without layers that have them."""
    if not shape.sparse:
        return []
    moe = moe_shape(config, "num_experts", "num_local_experts", "n_routed_experts")
    facts["num_experts"] = moe.num_experts
    facts["num_experts_per_tok"] = moe.num_experts_per_tok
    facts["moe_intermediate_size"] = moe.moe_intermediate_size
    found = experts(_LAYER, shape.sparse, moe.num_experts, shape.hidden_size, moe.moe_intermediate_size, names=_MLP)
    if moe.shared_intermediate_size:
        found += gated_mlp(
            f"{_LAYER}.shared_experts", shape.sparse, shape.hidden_size, moe.shared_intermediate_size,
            component="shared_experts", names=_MLP,
        )  # fmt: skip
    return found


def _caches(shape: _Numbers) -> list[LayerCache]:
    """Latents where a layer has its own, index keys where it has an indexer; what it borrows is kept once."""
    indexed, row = frozenset(shape.index_owners), shape.index.bytes_per_token
    found: list[LayerCache] = []
    for layer, source in enumerate(shape.sources):
        index_bytes = row if layer in indexed else 0
        if source == layer:
            found.append(shape.latent_of(layer in shape.roped).cache(index_bytes))
        else:
            found.append(MultiHeadLatent(0, 0, index_bytes) if index_bytes else Shared(source))
    return found
