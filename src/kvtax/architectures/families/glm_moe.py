"""GLM-4.5 to 4.7, dots.llm1, Solar Open, Sarvam MoE and the first DeepSeek MoE: dense first layers, then experts beside shared ones."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import LayerCache
from kvtax.architectures.config import MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble, attention_caches
from kvtax.architectures.latent import (
    MoeShape,
    dense_block,
    moe_block,
    moe_shape,
    mtp_count,
    mtp_indices,
    mtp_layers,
    sparse_layers,
)
from kvtax.architectures.mixture import LAYER, block, others
from kvtax.architectures.tensors import HEADS, ROW, Tensor, linear, norm

CORRECTION = "gate.e_score_correction_bias"


class Variant(NamedTuple):
    """Where the model types differ.

    Args:
        o_bias: whether attention_bias gives the output projection a bias too.
        qk_norm: `always`, `stated` (use_qk_norm) or empty.
        correction_bias: name of the router's buffer, empty for none.
        all_sparse: whether every layer has experts.
        windows: whether layer_types and sliding_window count.
        mtp: whether the checkpoints hold MTP layers.
        fused: whether query, key and value are one tensor, below the names of the Ling checkpoints.
    """

    o_bias: bool = False
    qk_norm: str = ""
    correction_bias: str = CORRECTION
    all_sparse: bool = False
    windows: bool = False
    mtp: bool = False
    fused: bool = False


VARIANTS = {
    "glm4_moe": Variant(qk_norm="stated", mtp=True),
    "dots1": Variant(o_bias=True, qk_norm="always", windows=True),
    "solar_open": Variant(all_sparse=True),
    "sarvam_moe": Variant(qk_norm="stated", correction_bias="gate.expert_bias", fused=True),
    "deepseek": Variant(o_bias=True, correction_bias=""),
}


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention; gated MLPs in the first first_k_dense_replace layers, routed and shared experts in the others.

    Source: transformers 5.24.0 models/glm4_moe/modeling_glm4_moe.py, models/dots1/modeling_dots1.py,
    models/solar_open/modeling_solar_open.py, models/sarvam_moe; modeling_deepseek.py of the model repository.
    """
    variant = VARIANTS[config.model_type]
    shape = Shape(config)
    sparse = _sparse(config, shape, variant)
    numbers = moe_shape(config, "n_routed_experts", "num_experts", "num_local_experts") if sparse else None
    facts: dict[str, Any] = {}
    width = 0
    if len(sparse) < shape.num_hidden_layers:
        width = facts["intermediate_size"] = config.integer("intermediate_size")
    if numbers is not None:
        facts["num_experts"] = numbers.num_experts
        facts["num_experts_per_tok"] = numbers.num_experts_per_tok
        facts["moe_intermediate_size"] = numbers.moe_intermediate_size
    if variant.fused:
        facts["embed_name"] = "model.word_embeddings"
    body = _layers(config, shape, variant, shape.layers, sparse, numbers, width)
    architecture = assemble(config, shape, body, _caches(config, shape, variant), prefix=prefix, **facts)
    extra = mtp_indices(shape.num_hidden_layers, mtp_count(config)) if variant.mtp else ()
    if not extra:
        return architecture
    # an MTP layer has what the last layer has
    last = extra if sparse and sparse[-1] == shape.layers[-1] else ()
    decoder = _layers(config, shape, variant, extra, last, numbers, width)
    mtp = mtp_layers(extra, shape.hidden_size, shape.vocab_size, decoder)
    return architecture.replace(tensors=[*architecture.tensors, *(t._replace(name=prefix + t.name) for t in mtp)])


def _sparse(config: Config, shape: Shape, variant: Variant) -> tuple[int, ...]:
    """Layers with experts; none where the number of experts is null."""
    if variant.all_sparse:
        return shape.layers
    if config.model_type == "deepseek" and config.find("n_routed_experts")[1] is None:
        return ()
    return sparse_layers(config, shape.num_hidden_layers)


def _layers(
    config: Config,
    shape: Shape,
    variant: Variant,
    layers: tuple[int, ...],
    sparse: tuple[int, ...],
    numbers: MoeShape | None,
    width: int,
) -> list[Tensor]:
    """Tensors of `layers`, of which `sparse` have experts."""
    bias = config.boolean("attention_bias")
    normed = variant.qk_norm == "always" or (variant.qk_norm == "stated" and config.boolean("use_qk_norm"))
    if variant.fused:
        found = _fused_attention(shape, layers, bias=bias, normed=normed)
    else:
        found = block(shape, layers, qkv_bias=bias, o_bias=bias and variant.o_bias, qk_norm="head" if normed else "")
    found += dense_block(f"{LAYER}.mlp", others(layers, sparse), shape.hidden_size, width)
    if numbers is not None:
        found += moe_block(f"{LAYER}.mlp", sparse, shape.hidden_size, numbers, correction_bias=variant.correction_bias)
    return found


def _fused_attention(shape: Shape, layers: tuple[int, ...], *, bias: bool, normed: bool) -> list[Tensor]:
    """Attention and layer norms under the names of the Ling checkpoints."""
    module, hidden = f"{LAYER}.attention", shape.hidden_size
    heads = (shape.num_attention_heads, shape.num_key_value_heads)
    fused = (heads[0] + 2 * heads[1]) * shape.head_dim
    found = [
        *linear(f"{module}.query_key_value", fused, hidden, "attention", layers, bias=bias, shard=HEADS, heads=heads),
        *linear(f"{module}.dense", hidden, heads[0] * shape.head_dim, "attention", layers, shard=ROW),
        *norm(f"{LAYER}.input_layernorm", hidden, layers),
        *norm(f"{LAYER}.post_attention_layernorm", hidden, layers),
    ]
    if normed:
        found += norm(f"{module}.query_layernorm", shape.head_dim, layers)
        found += norm(f"{module}.key_layernorm", shape.head_dim, layers)
    return found


def _caches(config: Config, shape: Shape, variant: Variant) -> list[LayerCache]:
    """Full attention, or what layer_types (else max_window_layers) makes a window."""
    kinds = ["full_attention"] * shape.num_hidden_layers
    window = None
    if variant.windows:
        window = config.optional_integer("sliding_window")
        stated = config.layer_types(shape.num_hidden_layers)
        if stated is not None:
            kinds = stated
        elif window is not None:
            first = config.integer("max_window_layers", minimum=0, maximum=MAXIMUM_LAYERS)
            kinds = ["sliding_attention" if index >= first else "full_attention" for index in shape.layers]
    return attention_caches(config, kinds, shape.num_key_value_heads, shape.head_dim, sliding_window=window)
