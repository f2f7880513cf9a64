"""Kimi Linear and the text model of Kimi K3: delta attention, latent attention every so many layers, experts."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import LayerCache
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_HEADS, MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.decoder import assemble, gated_mlp, layers_where
from kvtax.architectures.latent import LatentDecoder, latent_attention
from kvtax.architectures.recurrent import KimiDelta, kernel_size, layer_kinds, state_dtypes
from kvtax.architectures.tensors import COLUMN, Tensor, linear, norm

_LAYER = "model.layers.*"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Delta attention or multi-head latent attention, then a gated MLP or routed and shared experts.

    K3 adds a gate on the latent attention, experts in a narrower width, and weights that mix earlier blocks of layers.

    Source: transformers 5.24.0 models/kimi_linear/modeling_kimi_linear.py (checkpoint names: conversion_mapping.py);
    K3: repository file modeling_kimi_linear.py of moonshotai's model.
    """
    shape = LatentDecoder(config)
    shape.tied = False  # the class ties nothing, whatever tie_word_embeddings says
    hidden = shape.hidden_size
    kinds = _kinds(config, shape.num_hidden_layers)
    recurring, attending = layers_where(kinds, "linear_attention"), layers_where(kinds, "full_attention")
    delta = _mixer(config, hidden)
    dense, sparse = _mlp_layers(config, shape)
    body = [
        *norm(f"{_LAYER}.input_layernorm", hidden, shape.layers),
        *norm(f"{_LAYER}.post_attention_layernorm", hidden, shape.layers),
    ]
    if recurring:
        body += _delta_attention(config, delta, recurring)
    if attending:
        body += latent_attention(f"{_LAYER}.self_attn", attending, shape.latent, bias=config.boolean("attention_bias"))
        if config.boolean("mla_use_output_gate"):
            width = shape.num_attention_heads * shape.latent.v_head_dim
            body += linear(f"{_LAYER}.self_attn.g_proj", width, hidden, "attention", attending, shard=COLUMN)
    intermediate_size = config.integer("intermediate_size") if dense else 0
    if dense:
        body += gated_mlp(f"{_LAYER}.mlp", dense, hidden, intermediate_size)
    if sparse:
        body += _experts(config, hidden, sparse)
    body += _block_residuals(config, hidden, shape.layers)
    latent, recurrent = shape.latent.cache(), delta.cache(state_dtypes(config))
    caches: list[LayerCache] = [latent if kind == "full_attention" else recurrent for kind in kinds]
    num_experts = _num_experts(config) if sparse else 0
    per_token = config.integer("num_experts_per_token", "num_experts_per_tok", maximum=num_experts) if sparse else 0
    return assemble(
        config, shape, body, caches, prefix=prefix, intermediate_size=intermediate_size,
        rotary_dim=0 if config.boolean("mla_use_nope", default=True) else shape.latent.qk_rope_head_dim,
        num_experts=num_experts, num_experts_per_tok=per_token,
        moe_intermediate_size=config.integer("moe_intermediate_size") if sparse else 0,
    )  # fmt: skip


def _older(config: Config) -> Config:
    """`linear_attn_config`, the older place of these numbers, which wins."""
    return config.sub("linear_attn_config", model_type="linear_attn_config")


def _kinds(config: Config, num_hidden_layers: int) -> list[str]:
    """layer_types, else the two lists of layers counted from 1, else latent attention on every fourth but the first.

    Raises:
        ConfigError: a layer is in neither list, in both, or is not there.
    """
    kinds = layer_kinds(config, num_hidden_layers, ("full_attention", "linear_attention"))
    if kinds is not None:
        return kinds
    older = _older(config)
    lists = {
        "full_attention": older.integers("full_attn_layers", minimum=1, maximum=MAXIMUM_LAYERS),
        "linear_attention": older.integers("kda_layers", minimum=1, maximum=MAXIMUM_LAYERS),
    }
    if any(layers is None for layers in lists.values()):
        return [
            "full_attention" if index and index % 4 == 0 else "linear_attention" for index in range(num_hidden_layers)
        ]
    found = [""] * num_hidden_layers
    for kind, layers in lists.items():
        for layer in layers or ():
            if layer > num_hidden_layers or found[layer - 1] not in ("", kind):
                older.fail(
                    "kda_layers", f"layer {layer} of {num_hidden_layers} is not there or has two kinds of attention"
                )
            found[layer - 1] = kind
    if "" in found:
        older.fail("kda_layers", f"layer {found.index('') + 1} is neither here nor in full_attn_layers")
    return found


def _mixer(config: Config, hidden_size: int) -> KimiDelta:
    older = _older(config)
    num_heads = older.optional_integer("num_heads", maximum=MAXIMUM_HEADS)
    kernel = older if older.states("short_conv_kernel_size") else config
    return KimiDelta(
        hidden_size,
        num_heads or config.integer("linear_num_heads", maximum=MAXIMUM_HEADS),
        older.optional_integer("head_dim") or config.integer("linear_head_dim"),
        kernel_size(kernel, "short_conv_kernel_size", "linear_conv_kernel_dim"),
    )


def _delta_attention(config: Config, delta: KimiDelta, layers: tuple[int, ...]) -> list[Tensor]:
    """Kimi Linear keeps A_log with four dimensions; K3 with one, which its file pads to the width of a head."""
    prefix, heads = f"{_LAYER}.self_attn", delta.num_heads
    if not _older(config).boolean("use_full_rank_gate"):
        return delta.tensors(prefix, layers, a_log=(1, 1, heads, 1))
    found = delta.tensors(prefix, layers, full_rank_gate=True)
    name = f"{prefix}.A_log"
    if delta.head_dim > heads:
        found = [tensor._replace(stored=False) if tensor.name == name else tensor for tensor in found]
        found.append(Tensor(name, (delta.head_dim,), "linear_or_ssm", layers, loaded=False, dtype="float32"))
    kept = ("_conv1d.weight", ".o_norm.weight")
    return [tensor._replace(dtype="float32") if tensor.name.endswith(kept) else tensor for tensor in found]


def _mlp_layers(config: Config, shape: LatentDecoder) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Layers with an MLP and with experts: mlp_layer_types, else every moe_layer_freq-th from first_k_dense_replace."""
    stated = config.layer_types(shape.num_hidden_layers, "mlp_layer_types")
    if stated is not None:
        for index, kind in enumerate(stated):
            if kind not in ("dense", "sparse"):
                config.unsupported(f"mlp_layer_types[{index}]", f"MLP type {describe(kind)} is not understood")
        return layers_where(stated, "dense"), layers_where(stated, "sparse")
    first = config.integer("first_k_dense_replace", default=1, minimum=0, maximum=MAXIMUM_LAYERS)
    step = config.integer("moe_layer_freq", default=1, maximum=MAXIMUM_LAYERS)
    sparse = tuple(index for index in shape.layers[first:] if index % step == 0)
    return tuple(index for index in shape.layers if index not in set(sparse)), sparse


def _num_experts(config: Config) -> int:
    return config.integer("num_experts", "num_local_experts", maximum=MAXIMUM_EXPERTS)


def _experts(config: Config, hidden: int, layers: tuple[int, ...]) -> list[Tensor]:
    """A router, experts (in the width routed_expert_hidden_size if stated) and a shared MLP of n_shared_experts."""
    prefix, width = f"{_LAYER}.block_sparse_moe", config.integer("moe_intermediate_size")
    num_experts = _num_experts(config)
    latent = config.optional_integer("routed_expert_hidden_size")
    bias = Tensor(
        f"{prefix}.gate.e_score_correction_bias", (num_experts,), "router", layers, parameter=False, dtype="float32"
    )
    found = [
        Tensor(f"{prefix}.gate.weight", (num_experts, hidden), "router", layers),
        bias,
        *gated_mlp(
            f"{prefix}.experts.*", layers, latent or hidden, width,
            component="routed_experts", names=("w1", "w3", "w2"), per_layer=num_experts,
        ),
    ]  # fmt: skip
    shared = config.optional_integer("num_shared_experts", "n_shared_experts", minimum=0)
    if shared:
        found += gated_mlp(f"{prefix}.shared_experts", layers, hidden, width * shared, component="shared_experts")
    if latent:
        # published files leave these two alone, whatever their quantisation's targets match
        found.append(Tensor(f"{prefix}.routed_expert_down_proj.weight", (latent, hidden), "mlp", layers))
        found.append(Tensor(f"{prefix}.routed_expert_up_proj.weight", (hidden, latent), "mlp", layers))
        if config.boolean("latent_moe_use_norm"):
            found += norm(f"{prefix}.routed_expert_norm", latent, layers)
    return found


def _block_residuals(config: Config, hidden: int, layers: tuple[int, ...]) -> list[Tensor]:
    """A norm and a scoring row before each attention, each MLP and the head, which weigh blocks of layers."""
    if config.optional_integer("attn_res_block_size", maximum=MAXIMUM_LAYERS) is None:
        return []
    found: list[Tensor] = []
    for name, where in (
        (f"{_LAYER}.self_attention_res", layers),
        (f"{_LAYER}.mlp_res", layers),
        ("model.output_attn_res", ()),
    ):
        found += norm(f"{name}_norm", hidden, where)
        found.append(Tensor(f"{name}_proj.weight", (1, hidden), "other", where))
    return found
