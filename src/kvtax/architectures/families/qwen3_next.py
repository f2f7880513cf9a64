"""Qwen3-Next and the text models of Qwen3.5: Gated DeltaNet, gated attention every so many layers, MLP or experts."""

from __future__ import annotations

from collections.abc import Sequence

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble, attention, experts, gated_mlp, layers_where
from kvtax.architectures.recurrent import GatedDeltaNet, kernel_size, layer_kinds, state_dtypes
from kvtax.architectures.tensors import Tensor, embedding, linear, norm, not_loaded


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Gated DeltaNet or grouped-query attention with an output gate; a gated MLP, or experts and a shared one.

    Source: transformers 5.24.0 models/qwen3_next/modeling_qwen3_next.py, models/qwen3_5/modeling_qwen3_5.py,
    models/qwen3_5_moe/modeling_qwen3_5_moe.py.
    """
    shape = Shape(config)
    kinds = attention_kinds(config, shape.num_hidden_layers)
    delta = delta_net(config, shape.hidden_size)
    sparse = _sparse_layers(config, shape)
    dense = tuple(index for index in shape.layers if index not in set(sparse))
    layer = "model.layers.*"
    linear_layers, full_layers = layers_where(kinds, "linear_attention"), layers_where(kinds, "full_attention")
    body: list[Tensor] = []
    if linear_layers:
        body += delta.tensors(f"{layer}.linear_attn", linear_layers, _projections(config, delta))
    if full_layers:
        body += gated_attention(config, shape, f"{layer}.self_attn", full_layers)
    body += _mlps(config, shape, layer, dense, sparse)
    body += _norms(layer, shape.hidden_size, shape.layers)
    full = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)
    recurrent = delta.cache(state_dtypes(config))
    caches: list[LayerCache] = [full if kind == "full_attention" else recurrent for kind in kinds]
    num_experts = config.integer("num_experts", maximum=MAXIMUM_EXPERTS) if sparse else 0
    return assemble(
        config, shape, [*body, *_mtp(config, shape)], caches, prefix=prefix,
        intermediate_size=config.integer("intermediate_size") if dense else 0,
        rotary_dim=_rotary_dim(config, shape.head_dim),
        num_experts=num_experts,
        num_experts_per_tok=config.integer("num_experts_per_tok", maximum=num_experts) if sparse else 0,
        moe_intermediate_size=config.integer("moe_intermediate_size") if sparse else 0,
    )  # fmt: skip


def attention_kinds(config: Config, num_hidden_layers: int, full: str = "full_attention") -> list[str]:
    """layer_types, else full attention on every full_attention_interval-th layer."""
    kinds = layer_kinds(config, num_hidden_layers, ("linear_attention", full))
    if kinds is not None:
        return kinds
    interval = config.integer("full_attention_interval", default=4, maximum=MAXIMUM_LAYERS)
    return [full if (index + 1) % interval == 0 else "linear_attention" for index in range(num_hidden_layers)]


def delta_net(config: Config, hidden_size: int) -> GatedDeltaNet:
    """The mixer; value heads are shared out over key heads.

    Raises:
        ConfigError: the key heads do not divide the value heads.
    """
    num_k_heads, num_v_heads = config.integer("linear_num_key_heads"), config.integer("linear_num_value_heads")
    if num_v_heads % num_k_heads:
        config.fail("linear_num_key_heads", f"{num_k_heads} does not divide linear_num_value_heads {num_v_heads}")
    return GatedDeltaNet(
        hidden_size,
        num_k_heads,
        num_v_heads,
        config.integer("linear_key_head_dim"),
        config.integer("linear_value_head_dim"),
        kernel_size(config, "linear_conv_kernel_dim"),
    )


def gated_attention(config: Config, shape: Shape, prefix: str, layers: tuple[int, ...]) -> list[Tensor]:
    """Attention whose q_proj also makes a gate as wide as the queries (attn_output_gate); a norm over each head."""
    width = shape.num_attention_heads * shape.head_dim
    bias = config.boolean("attention_bias")
    return attention(
        prefix, layers, shape.hidden_size, shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim,
        qkv_bias=bias, o_bias=bias, qk_norm="head",
        query_width=2 * width if config.boolean("attn_output_gate", default=True) else width,
    )  # fmt: skip


def shared_experts(config: Config, hidden_size: int, prefix: str, layers: tuple[int, ...]) -> list[Tensor]:
    """Routed experts, a shared expert and the gate over it."""
    num_experts = config.integer("num_experts", maximum=MAXIMUM_EXPERTS)
    width = config.integer("shared_expert_intermediate_size")
    return [
        *experts(prefix, layers, num_experts, hidden_size, config.integer("moe_intermediate_size")),
        *gated_mlp(f"{prefix}.shared_expert", layers, hidden_size, width, component="shared_experts"),
        Tensor(f"{prefix}.shared_expert_gate.weight", (1, hidden_size), "router", layers),
    ]


def _projections(config: Config, delta: GatedDeltaNet) -> dict[str, int]:
    """Qwen3-Next projects into two tensors, Qwen3.5 into four."""
    if config.model_type == "qwen3_next":
        return {"in_proj_qkvz": delta.conv_dim + delta.value_dim, "in_proj_ba": 2 * delta.num_v_heads}
    return separate_projections(delta)


def separate_projections(delta: GatedDeltaNet) -> dict[str, int]:
    """The input projections of Qwen3.5 and later [output features]."""
    heads = delta.num_v_heads
    return {"in_proj_qkv": delta.conv_dim, "in_proj_z": delta.value_dim, "in_proj_b": heads, "in_proj_a": heads}


def _sparse_layers(config: Config, shape: Shape) -> tuple[int, ...]:
    """Layers with experts: all of Qwen3.5 MoE, none of dense Qwen3.5, and Qwen3-Next's by step and exception."""
    if config.model_type != "qwen3_next":
        return shape.layers if "moe" in config.model_type else ()
    if not config.optional_integer("num_experts", minimum=0, maximum=MAXIMUM_EXPERTS):
        return ()
    step = config.integer("decoder_sparse_step", maximum=MAXIMUM_LAYERS)
    dense = set(config.integers("mlp_only_layers", minimum=-MAXIMUM_LAYERS) or ())
    return tuple(index for index in shape.layers if (index + 1) % step == 0 and index not in dense)


def _mlps(config: Config, shape: Shape, layer: str, dense: Sequence[int], sparse: Sequence[int]) -> list[Tensor]:
    body: list[Tensor] = []
    if dense:
        body += gated_mlp(f"{layer}.mlp", tuple(dense), shape.hidden_size, config.integer("intermediate_size"))
    if sparse:
        body += shared_experts(config, shape.hidden_size, f"{layer}.mlp", tuple(sparse))
    return body


def _norms(layer: str, hidden_size: int, layers: tuple[int, ...]) -> list[Tensor]:
    return [
        *norm(f"{layer}.input_layernorm", hidden_size, layers),
        *norm(f"{layer}.post_attention_layernorm", hidden_size, layers),
    ]


def _rotary_dim(config: Config, head_dim: int) -> int:
    """partial_rotary_factor of a head, a quarter unless stated here or in rope_parameters."""
    rope = config.get("rope_parameters")
    stated = rope.get("partial_rotary_factor") if isinstance(rope, dict) else None
    factor = config.get("partial_rotary_factor", default=0.25) if stated is None else stated
    usable = isinstance(factor, (int, float)) and not isinstance(factor, bool) and 0 <= factor <= 1
    return int(head_dim * factor) if usable else head_dim


def _mtp(config: Config, shape: Shape) -> list[Tensor]:
    """The layers that predict further tokens, which no key of Qwen3-Next counts: full attention and an MLP each."""
    default = 1 if config.model_type == "qwen3_next" else 0
    count = config.optional_integer(
        "mtp_num_hidden_layers", "num_nextn_predict_layers", default=default, minimum=0, maximum=64
    )
    if not count:
        return []
    layers, hidden, layer = tuple(range(count)), shape.hidden_size, "mtp.layers.*"
    sparse = bool(_sparse_layers(config, shape))
    found = [
        *gated_attention(config, shape, f"{layer}.self_attn", layers),
        *_mlps(config, shape, layer, () if sparse else layers, layers if sparse else ()),
        *_norms(layer, hidden, layers),
        *linear("mtp.fc", hidden, 2 * hidden, "mtp"),
        *norm("mtp.norm", hidden),
        *norm("mtp.pre_fc_norm_embedding", hidden),
        *norm("mtp.pre_fc_norm_hidden", hidden),
    ]
    if config.boolean("mtp_use_dedicated_embeddings"):
        found += embedding(shape.vocab_size, hidden, name="mtp.embed_tokens")
    return not_loaded(found)
