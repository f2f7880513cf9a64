"""Hunyuan 4: gated sparse latent attention with sinks and shared indexers, fused experts, hyper-connections."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_HEADS, Config, describe
from kvtax.architectures.decoder import assemble, gated_mlp
from kvtax.architectures.latent import (
    IndexShape,
    LatentDecoder,
    MoeShape,
    dense_block,
    index_owners,
    index_shape,
    indexer,
    latent_attention,
    latent_caches,
    moe_shape,
    mtp_count,
    sparse_layers,
)
from kvtax.architectures.tensors import COLUMN, EXPERT, Tensor, linear, norm, not_loaded

SPARSE_ATTENTION = ("indexed_attention", "deepseek_sparse_attention")


class HunyuanV4(LatentDecoder):
    """The numbers of Hunyuan 4."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if self.latent.q_lora_rank is None:
            config.fail("q_lora_rank", "is null, but the indexer makes its queries from that latent")
        self.query_width = self.latent.q_lora_rank
        for kind in config.layer_types(self.num_hidden_layers) or ():
            if kind not in SPARSE_ATTENTION:
                config.unsupported("layer_types", f"layer type {describe(kind)} is not understood")
        self.index: IndexShape = index_shape(config)
        self.owners = _owners(config, self.num_hidden_layers)
        self.moe: MoeShape = moe_shape(config)
        self.sparse = sparse_layers(config, self.num_hidden_layers, dense=1)
        self.intermediate_size = config.integer("intermediate_size")
        self.hc_mult = config.integer("hc_mult", maximum=MAXIMUM_HEADS)
        self.attention_bias = config.boolean("attention_bias")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Latent attention with an output gate and sinks, an indexer in every fourth layer, experts behind a dense layer.

    Source: transformers 5.24.0 models/hy_v4 (modeling, configuration) and conversion_mapping.py, which maps the file's
    names; MTP layer: the model repository's model.safetensors.index.json.
    """
    shape = HunyuanV4(config)
    dense = tuple(layer for layer in shape.layers if layer not in set(shape.sparse))
    layer = "model.layers.*"
    body = [
        *_attention(shape, layer, shape.layers, shape.owners),
        *dense_block(f"{layer}.mlp", dense, shape.hidden_size, shape.intermediate_size),
        *_experts(shape, layer, shape.sparse),
        *_hyper_connections(shape, layer, shape.layers),
        *_hyper_head(shape),
        *_mtp(config, shape),
    ]
    caches = latent_caches(shape.latent, shape.num_hidden_layers, shape.owners, shape.index.bytes_per_token)
    facts: dict[str, Any] = {"intermediate_size": shape.intermediate_size, "rotary_dim": shape.latent.qk_rope_head_dim}
    if shape.sparse:
        facts["num_experts"] = shape.moe.num_experts
        facts["num_experts_per_tok"] = shape.moe.num_experts_per_tok
        facts["moe_intermediate_size"] = shape.moe.moe_intermediate_size
    return assemble(config, shape, body, caches, prefix=prefix, **facts)


def _owners(config: Config, num_hidden_layers: int) -> tuple[int, ...]:
    """Layers with an indexer: as `indexer_types` says, else layers 0, 1, 5, 9 ..."""
    if config.states("indexer_types"):
        return index_owners(config, num_hidden_layers)
    return tuple(index for index in range(num_hidden_layers) if index == 0 or (index - 1) % 4 == 0)


def _attention(shape: HunyuanV4, layer: str, layers: tuple[int, ...], owners: tuple[int, ...]) -> list[Tensor]:
    """Latent attention, its output gate [heads x v_head_dim, hidden_size], a sink per head, indexer and layer norms."""
    name, heads = f"{layer}.self_attn", shape.num_attention_heads
    return [
        *latent_attention(name, layers, shape.latent, bias=shape.attention_bias),
        *linear(
            f"{name}.linear_gate", heads * shape.latent.v_head_dim, shape.hidden_size, "attention", layers, shard=COLUMN
        ),
        Tensor(f"{name}.learnable_sink_param", (heads,), "attention", layers, shard=COLUMN, dtype="float32"),
        *indexer(f"{name}.indexer", owners, shape.hidden_size, shape.query_width, shape.index),
        *norm(f"{layer}.input_layernorm", shape.hidden_size, layers),
        *norm(f"{layer}.post_attention_layernorm", shape.hidden_size, layers),
    ]


def _experts(shape: HunyuanV4, layer: str, layers: tuple[int, ...]) -> list[Tensor]:
    """Router, all routed experts of a layer in two tensors, and a gated MLP of the shared experts."""
    if not layers:
        return []
    name, hidden, moe = f"{layer}.mlp", shape.hidden_size, shape.moe
    up_shape, down_shape = (
        (moe.num_experts, 2 * moe.moe_intermediate_size, hidden),
        (moe.num_experts, hidden, moe.moe_intermediate_size),
    )
    found = [
        Tensor(f"{name}.gate.weight", (moe.num_experts, hidden), "router", layers),
        Tensor(
            f"{name}.gate.e_score_correction_bias",
            (moe.num_experts,),
            "router",
            layers,
            parameter=False,
            dtype="float32",
        ),
        Tensor(f"{name}.experts.gate_up_proj", up_shape, "routed_experts", layers, shard=EXPERT, linear=True),
        Tensor(f"{name}.experts.down_proj", down_shape, "routed_experts", layers, shard=EXPERT, linear=True),
    ]
    if moe.shared_intermediate_size:
        found += gated_mlp(
            f"{name}.shared_experts", layers, hidden, moe.shared_intermediate_size, component="shared_experts"
        )
    return found


def _hyper_connections(shape: HunyuanV4, layer: str, layers: tuple[int, ...]) -> list[Tensor]:
    """2 x hc_mult mixing weights from hc_mult streams, before attention and before the MLP."""
    found = []
    for part in ("hc_attn_layer", "hc_mlp_layer"):
        name = f"{layer}.{part}.hc_pre"
        mixes = 2 * shape.hc_mult
        found.append(
            Tensor(f"{name}.hc_fn", (mixes, shape.hc_mult * shape.hidden_size), "other", layers, dtype="float32")
        )
        found.append(Tensor(f"{name}.hc_base", (mixes,), "other", layers, dtype="float32"))
        found.append(Tensor(f"{name}.hc_scale", (2,), "other", layers, dtype="float32"))
    return found


def _hyper_head(shape: HunyuanV4) -> list[Tensor]:
    """What folds the streams into one behind the last layer."""
    return [
        Tensor(
            "model.hc_head.hc_head_fn", (shape.hc_mult, shape.hc_mult * shape.hidden_size), "other", dtype="float32"
        ),
        Tensor("model.hc_head.hc_head_base", (shape.hc_mult,), "other", dtype="float32"),
        Tensor("model.hc_head.hc_head_scale", (1,), "other", dtype="float32"),
    ]


def _mtp(config: Config, shape: HunyuanV4) -> list[Tensor]:
    """MTP layers: a layer with experts and an indexer, without hyper-connections, behind norms and a projection."""
    count = mtp_count(config)
    if not count:
        return []
    layer, layers, hidden = "model.mtp_layers.*", tuple(range(count)), shape.hidden_size
    found = [*_attention(shape, layer, layers, layers), *_experts(shape, layer, layers)]
    for name in ("enorm", "hnorm", "final_layernorm"):
        found += norm(f"{layer}.{name}", hidden, layers)
    found.append(Tensor(f"{layer}.eh_proj.weight", (hidden, 2 * hidden), "mtp", layers))
    return not_loaded(found)
