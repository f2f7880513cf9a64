"""DeepSeek V2, V3, V3.2, Kimi K2, GLM-5, GLM-4.7 Flash, Mistral 4 and kin: latent attention, experts behind dense layers."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config, describe
from kvtax.architectures.decoder import assemble
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
    moe_block,
    moe_shape,
    mtp_count,
    mtp_indices,
    mtp_layers,
    sparse_layers,
)
from kvtax.architectures.tensors import Tensor, norm

LAYER = "model.layers.*"
SPARSE_ATTENTION = ("indexed_attention", "deepseek_sparse_attention")


class Variant(NamedTuple):
    """Where the model types differ.

    Args:
        indexer: `` (no sparse attention), `every` (an indexer in each layer) or `owners` (layers may share one).
        correction_bias: whether the router keeps e_score_correction_bias.
        mlp_bias: whether `mlp_bias` gives dense and shared MLPs a bias.
        expert_keys: spellings of the number of routed experts, the one that wins first.
        dense: dense first layers where neither file nor class says how many [layers].
        mtp_embedding: whether an MTP layer repeats embedding and head.
        routed: whether there are experts at all.
        sparse_norm: a norm behind the experts, empty for none.
    """

    indexer: str = ""
    correction_bias: bool = True
    mlp_bias: bool = False
    expert_keys: tuple[str, ...] = ("num_local_experts", "n_routed_experts")
    dense: int = 0
    mtp_embedding: bool = False
    routed: bool = True
    sparse_norm: str = ""


VARIANTS = {
    "deepseek_v2": Variant(correction_bias=False, mlp_bias=True, expert_keys=("num_experts", "n_routed_experts")),
    "deepseek_v3": Variant(mtp_embedding=True),
    "kimi_k2": Variant(mtp_embedding=True),
    "deepseek_v32": Variant(
        "every", expert_keys=("num_experts", "num_local_experts", "n_routed_experts"), mtp_embedding=True
    ),
    "glm_moe_dsa": Variant("owners", expert_keys=("num_experts", "num_local_experts", "n_routed_experts")),
    "glm4_moe_lite": Variant(dense=1, mtp_embedding=True),
    "mistral4": Variant(correction_bias=False),
    "sarvam_mla": Variant(expert_keys=("num_experts", "num_local_experts", "n_routed_experts")),
    "axk1": Variant(dense=1, sparse_norm="post_mlp_layernorm"),
    "youtu": Variant(routed=False),
}


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Latent attention, an indexer where attention is sparse, and a gated MLP or experts; two RMS norms a layer.

    Source: transformers 5.24.0 models/deepseek_v2, deepseek_v3, deepseek_v32, glm_moe_dsa, glm4_moe_lite, mistral4,
    sarvam_mla, axk1, youtu (modeling and configuration); MTP layers: the model repositories' model.safetensors.index.json.
    """
    variant = VARIANTS[config.model_type]
    shape = LatentDecoder(config)
    index = _index_shape(config, shape, variant)
    owners = _owners(config, shape, variant)
    experts, sparse = _experts(config, shape, variant)
    dense_width = config.integer("intermediate_size")
    extra = mtp_indices(shape.num_hidden_layers, mtp_count(config))
    body = _layers(config, shape, variant, shape.layers, sparse, owners, experts, index, dense_width)
    # an MTP layer has what the last layer has, with an indexer of its own
    last = extra if sparse and sparse[-1] == shape.layers[-1] else ()
    block = (
        _layers(config, shape, variant, extra, last, extra if index else (), experts, index, dense_width)
        if extra
        else []
    )
    caches = latent_caches(shape.latent, shape.num_hidden_layers, owners, index.bytes_per_token if index else 0)
    facts: dict[str, Any] = {"intermediate_size": dense_width, "rotary_dim": shape.latent.qk_rope_head_dim}
    if experts is not None and sparse:
        facts["num_experts"] = experts.num_experts
        facts["num_experts_per_tok"] = experts.num_experts_per_tok
        facts["moe_intermediate_size"] = experts.moe_intermediate_size
    architecture = assemble(config, shape, body, caches, prefix=prefix, **facts)
    mtp = mtp_layers(extra, shape.hidden_size, shape.vocab_size, block, own_embedding=variant.mtp_embedding)
    mtp = [tensor._replace(name=prefix + tensor.name) for tensor in mtp]
    return architecture.replace(tensors=[*architecture.tensors, *mtp])


def _index_shape(config: Config, shape: LatentDecoder, variant: Variant) -> IndexShape | None:
    """Heads and width of the indexer, None without sparse attention."""
    if not variant.indexer:
        return None
    if shape.latent.q_lora_rank is None:
        config.fail("q_lora_rank", "is null, but the indexer makes its queries from that latent")
    return index_shape(config)


def _owners(config: Config, shape: LatentDecoder, variant: Variant) -> tuple[int, ...]:
    """Layers with an indexer of their own."""
    if not variant.indexer:
        return ()
    for kind in config.layer_types(shape.num_hidden_layers) or ():
        if kind not in SPARSE_ATTENTION:
            config.unsupported("layer_types", f"layer type {describe(kind)} is not understood")
    return index_owners(config, shape.num_hidden_layers) if variant.indexer == "owners" else shape.layers


def _experts(config: Config, shape: LatentDecoder, variant: Variant) -> tuple[MoeShape | None, tuple[int, ...]]:
    """The experts and the layers that have them; a number of experts that is null makes every layer dense."""
    if not variant.routed or config.find(*variant.expert_keys)[1] is None:
        return None, ()
    sparse = sparse_layers(config, shape.num_hidden_layers, dense=variant.dense)
    return (moe_shape(config, *variant.expert_keys), sparse) if sparse else (None, ())


def _layers(
    config: Config,
    shape: LatentDecoder,
    variant: Variant,
    layers: tuple[int, ...],
    sparse: tuple[int, ...],
    owners: tuple[int, ...],
    experts: MoeShape | None,
    index: IndexShape | None,
    intermediate_size: int,
) -> list[Tensor]:
    """Tensors of the decoder layers `layers`, of which `sparse` have experts and `owners` an indexer."""
    hidden = shape.hidden_size
    mlp_bias = variant.mlp_bias and config.boolean("mlp_bias")
    found = latent_attention(f"{LAYER}.self_attn", layers, shape.latent, bias=config.boolean("attention_bias"))
    if index is not None and shape.latent.q_lora_rank is not None:
        found += indexer(f"{LAYER}.self_attn.indexer", owners, hidden, shape.latent.q_lora_rank, index)
    dense = tuple(layer for layer in layers if layer not in set(sparse))
    found += dense_block(f"{LAYER}.mlp", dense, hidden, intermediate_size, bias=mlp_bias)
    if experts is not None:
        correction = "gate.e_score_correction_bias" if variant.correction_bias else ""
        found += moe_block(f"{LAYER}.mlp", sparse, hidden, experts, correction_bias=correction, shared_bias=mlp_bias)
        if variant.sparse_norm and sparse:
            found += norm(f"{LAYER}.{variant.sparse_norm}", hidden, sparse)
    found += norm(f"{LAYER}.input_layernorm", hidden, layers)
    found += norm(f"{LAYER}.post_attention_layernorm", hidden, layers)
    return found
