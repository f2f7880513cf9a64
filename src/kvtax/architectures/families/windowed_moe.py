"""K-EXAONE, Laguna, Mellum 2, Flint and Cohere's North: windows in some layers, experts in all but the first ones."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_HEADS, MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.decoder import Shape, assemble, attention, attention_caches, experts
from kvtax.architectures.families.qwen_moe import sparse_layers as stepped_layers
from kvtax.architectures.latent import dense_block, mtp_count
from kvtax.architectures.mixture import LAYER, Routed, block, others, routed, shared_mlp, stated_sparse
from kvtax.architectures.tensors import COLUMN, Tensor, linear, norm, not_loaded


class Variant(NamedTuple):
    """Where the model types differ.

    Args:
        qk_norm: whether query and key have a norm per head.
        biased: whether attention_bias counts.
        norms: the norms of a layer.
        correction_bias: name of the router's buffer, empty for none.
        width: key with the width of one expert.
        shared: name of the shared MLP, empty for none.
        shared_width: key with its width; empty: num_shared_experts times that of an expert.
        sinks: name of the attention's sinks, empty for none.
    """

    qk_norm: bool = True
    biased: bool = True
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    correction_bias: str = ""
    width: str = "moe_intermediate_size"
    shared: str = ""
    shared_width: str = ""
    sinks: str = ""


VARIANTS = {
    "exaone_moe": Variant(biased=False, correction_bias="e_score_correction_bias", shared="shared_experts"),
    "laguna": Variant(shared="shared_expert", shared_width="shared_expert_intermediate_size"),
    "mellum": Variant(),
    "flint": Variant(shared="shared_expert", shared_width="shared_expert_intermediate_size", sinks="softmax_offset"),
    "cohere2_moe": Variant(
        qk_norm=False, norms=("input_layernorm",), width="intermediate_size", shared="shared_experts"
    ),
}


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention, full or in windows; gated MLPs or experts.

    Source: transformers 5.24.0 models/exaone_moe, laguna, mellum, flint and cohere2_moe (modeling and configuration);
    MTP layers: the published size of K-EXAONE-236B-A23B.
    """
    variant = VARIANTS[config.model_type]
    shape = Shape(config)
    kinds = _kinds(config, shape)
    sparse = _sparse_layers(config, shape)
    dense = others(shape.layers, sparse)
    facts: dict[str, Any] = {}
    body = _attention(config, shape, variant)
    if sparse:
        numbers = routed(config, experts=("num_experts", "num_local_experts"), width=(variant.width,))
        facts.update(numbers.facts())
        body += _experts(config, shape, variant, numbers, sparse)
    if dense:
        facts["intermediate_size"] = _dense_width(config)
        body += dense_block(f"{LAYER}.mlp", dense, shape.hidden_size, facts["intermediate_size"])
    if config.model_type == "exaone_moe":
        body += _mtp(config, shape)
    window = config.optional_integer("sliding_window")
    caches = attention_caches(config, kinds, shape.num_key_value_heads, shape.head_dim, sliding_window=window)
    return assemble(config, shape, body, caches, prefix=prefix, **facts)


def _mtp(config: Config, shape: Shape) -> list[Tensor]:
    """K-EXAONE's MTP layers: dense decoder layers behind two norms and a projection, and a norm of their own."""
    layers = tuple(range(mtp_count(config)))
    if not layers:
        return []
    hidden = shape.hidden_size
    found = block(shape, layers, qk_norm="head", layer="mtp.layers.*")
    found += dense_block("mtp.layers.*.mlp", layers, hidden, config.integer("intermediate_size"))
    found.append(Tensor("mtp.fc.weight", (hidden, 2 * hidden), "mtp"))
    for name in ("mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm"):
        found += norm(name, hidden)
    return not_loaded(found)


def _dense_width(config: Config) -> int:
    """Width of a dense MLP; Cohere's has a key of its own."""
    own = config.optional_integer("prefix_dense_intermediate_size") if config.model_type == "cohere2_moe" else None
    return own or config.integer("intermediate_size")


def _first_dense(config: Config) -> int:
    """first_k_dense_replace, 0 where it is left out."""
    return config.optional_integer("first_k_dense_replace", minimum=0, maximum=MAXIMUM_LAYERS) or 0


def _pattern(config: Config, key: str, layers: int) -> list[str]:
    """Full attention in every n-th of `layers` layers, n from the config."""
    n = config.integer(key, maximum=MAXIMUM_LAYERS)
    return ["full_attention" if (index + 1) % n == 0 else "sliding_attention" for index in range(layers)]


def _kinds(config: Config, shape: Shape) -> list[str]:
    """layer_types, else the pattern of the model type."""
    total = shape.num_hidden_layers
    stated = config.layer_types(total)
    if stated is not None:
        return stated
    if config.model_type == "exaone_moe":
        return _pattern(config, "sliding_window_pattern", total)
    if config.model_type == "cohere2_moe":
        first = min(_first_dense(config), total)
        head = _pattern(config, "prefix_dense_sliding_window_pattern", first) if first else []
        return [*head, *_pattern(config, "sliding_window_pattern", total - first)]
    if config.model_type == "flint":
        full = {0, 1, total - 1}
        return ["full_attention" if index in full or index % 4 == 1 else "sliding_attention" for index in shape.layers]
    return ["full_attention"] * total


def _sparse_layers(config: Config, shape: Shape) -> tuple[int, ...]:
    """mlp_layer_types, else what the model type's keys say."""
    if config.model_type == "flint":
        stated = config if config.get("mlp_only_layers") is not None else config.retyped(mlp_only_layers=[0, 1])
        return stepped_layers(stated, shape)
    sparse = stated_sparse(config, shape.num_hidden_layers)
    if sparse is not None:
        return sparse
    first = {"mellum": 0, "laguna": 1}.get(config.model_type)
    first = _first_dense(config) if first is None else first
    return tuple(index for index in shape.layers if index >= first)


def _attention(config: Config, shape: Shape, variant: Variant) -> list[Tensor]:
    """Attention and norms; Laguna's query heads may differ from layer to layer and have a gate."""
    bias = variant.biased and config.boolean("attention_bias")
    qk_norm = "head" if variant.qk_norm else ""
    if config.model_type != "laguna":
        found = block(shape, shape.layers, qkv_bias=bias, o_bias=bias, qk_norm=qk_norm, norms=variant.norms)
        if variant.sinks:
            name = f"{LAYER}.self_attn.{variant.sinks}"
            found.append(Tensor(name, (shape.num_attention_heads,), "attention", shape.layers, shard=COLUMN))
        return found
    total = shape.num_hidden_layers
    counts = config.integers("num_attention_heads_per_layer", length=total, minimum=1, maximum=MAXIMUM_HEADS)
    counts = [shape.num_attention_heads] * total if counts is None else counts
    found = []
    for name in variant.norms:
        found += norm(f"{LAYER}.{name}", shape.hidden_size, shape.layers)
    for heads in dict.fromkeys(counts):
        if heads % shape.num_key_value_heads:
            config.fail(
                "num_attention_heads_per_layer", f"{shape.num_key_value_heads} key/value heads do not divide {heads}"
            )
        layers = tuple(index for index in shape.layers if counts[index] == heads)
        found += attention(
            f"{LAYER}.self_attn", layers, shape.hidden_size, heads, shape.num_key_value_heads, shape.head_dim,
            qkv_bias=bias, o_bias=bias, qk_norm=qk_norm,
        )  # fmt: skip
        width = heads if _gate_per_head(config) else heads * shape.head_dim
        found += linear(f"{LAYER}.self_attn.g_proj", width, shape.hidden_size, "attention", layers, shard=COLUMN)
    return found


def _gate_per_head(config: Config) -> bool:
    """Whether the gate has one output per head (`gating` true or per-head) or one per element."""
    value = config.get("gating")
    if value is not True and value not in ("per-head", "per-element"):
        config.unsupported("gating", f"gating {describe(value)} is not understood")
    return value is True or value == "per-head"


def _experts(config: Config, shape: Shape, variant: Variant, numbers: Routed, layers: tuple[int, ...]) -> list[Tensor]:
    """Router, routed experts and the shared MLP."""
    module, hidden = f"{LAYER}.mlp", shape.hidden_size
    found = experts(
        module,
        layers,
        numbers.num_experts,
        hidden,
        numbers.moe_intermediate_size,
        correction_bias=variant.correction_bias,
    )
    if config.model_type == "laguna":
        # a parameter of the class, unlike the other model types' buffers
        name = f"{module}.experts.e_score_correction_bias"
        found.append(Tensor(name, (numbers.num_experts,), "router", layers, dtype="float32"))
    if variant.shared:
        if variant.shared_width:
            width = config.integer(variant.shared_width, minimum=0)
        else:
            shared = config.integer("num_shared_experts", minimum=0, maximum=MAXIMUM_EXPERTS)
            width = shared * numbers.moe_intermediate_size
        found += shared_mlp(f"{module}.{variant.shared}", layers, hidden, width)
    return found
