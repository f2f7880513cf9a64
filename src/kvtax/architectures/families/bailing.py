"""Ling (Bailing MoE), first and second generation."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble, attention_caches, experts
from kvtax.architectures.latent import dense_block, mtp_count, mtp_indices
from kvtax.architectures.mixture import LAYER, Routed, others, routed, shared_mlp
from kvtax.architectures.tensors import HEADS, ROW, Tensor, linear, norm, not_loaded


class _Reading:
    """What a Ling config says, with the defaults of its generation."""

    def __init__(self, config: Config) -> None:
        stated_heads = config.get("num_key_value_heads")
        if stated_heads == 0 and not isinstance(stated_heads, bool):
            config = config.retyped(num_key_value_heads=None)  # the class default 0 means as many as query heads
        self.config = config
        self.shape = Shape(config)
        self.second = config.model_type == "bailing_moe_v2" or "V2" in config.architecture
        self.bias = config.boolean("use_bias") if not self.second or config.states("use_bias") else False
        self.qkv_bias = self.bias or config.boolean("use_qkv_bias")
        self.qk_norm = config.boolean("use_qk_norm", default=self.second)
        self.router_bias = self.second and config.boolean("moe_router_enable_expert_bias", default=True)
        self.numbers: Routed = routed(config)
        shared = config.optional_integer("num_shared_experts", minimum=0, maximum=MAXIMUM_EXPERTS) or 0
        each = config.optional_integer("moe_shared_expert_intermediate_size") or self.numbers.moe_intermediate_size
        self.shared_width = shared * each


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Fused query, key and value; gated MLPs in the first first_k_dense_replace layers, then routed and shared experts.

    The second generation has norms of query and key and a bias of the router, which its checkpoints count among the parameters.
    Source: modeling_bailing_moe.py and modeling_bailing_moe_v2.py of the model repositories; vllm 0.33.0
    model_executor/models/bailing_moe.py.
    """
    reading = _Reading(config)
    config, shape = reading.config, reading.shape
    first = config.optional_integer("first_k_dense_replace", minimum=0, maximum=MAXIMUM_LAYERS) or 0
    sparse = tuple(index for index in shape.layers if index >= first)
    dense = others(shape.layers, sparse)
    facts = reading.numbers.facts()
    width = 0
    if dense:
        width = facts["intermediate_size"] = config.integer("intermediate_size")
    body = [*_attention(reading, shape.layers), *_experts(reading, sparse)]
    body += dense_block(f"{LAYER}.mlp", dense, shape.hidden_size, width, bias=reading.bias)
    body += _mtp(reading, mtp_indices(shape.num_hidden_layers, mtp_count(config)))
    caches = attention_caches(
        config, ["full_attention"] * shape.num_hidden_layers, shape.num_key_value_heads, shape.head_dim
    )
    return assemble(config, shape, body, caches, prefix=prefix, embed_name="model.word_embeddings", **facts)


def _attention(reading: _Reading, layers: tuple[int, ...]) -> list[Tensor]:
    """Attention and the two norms of a layer."""
    shape, module = reading.shape, f"{LAYER}.attention"
    heads = (shape.num_attention_heads, shape.num_key_value_heads)
    fused, hidden = (heads[0] + 2 * heads[1]) * shape.head_dim, shape.hidden_size
    found = [
        *linear(
            f"{module}.query_key_value",
            fused,
            hidden,
            "attention",
            layers,
            bias=reading.qkv_bias,
            shard=HEADS,
            heads=heads,
        ),
        *linear(
            f"{module}.dense", hidden, heads[0] * shape.head_dim, "attention", layers, bias=reading.bias, shard=ROW
        ),
        *norm(f"{LAYER}.input_layernorm", hidden, layers),
        *norm(f"{LAYER}.post_attention_layernorm", hidden, layers),
    ]
    if reading.qk_norm:
        found += norm(f"{module}.query_layernorm", shape.head_dim, layers)
        found += norm(f"{module}.key_layernorm", shape.head_dim, layers)
    return found


def _experts(reading: _Reading, layers: tuple[int, ...]) -> list[Tensor]:
    """Router, routed and shared experts; nothing without layers."""
    if not layers:
        return []
    numbers, hidden = reading.numbers, reading.shape.hidden_size
    found = experts(
        f"{LAYER}.mlp", layers, numbers.num_experts, hidden, numbers.moe_intermediate_size, bias=reading.bias
    )
    if reading.router_bias:
        found.append(Tensor(f"{LAYER}.mlp.gate.expert_bias", (numbers.num_experts,), "router", layers, dtype="float32"))
    return found + shared_mlp(f"{LAYER}.mlp.shared_experts", layers, hidden, reading.shared_width, bias=reading.bias)


def _mtp(reading: _Reading, layers: tuple[int, ...]) -> list[Tensor]:
    """MTP layers: a layer with experts behind norms and a projection of two streams."""
    if not layers:
        return []
    hidden = reading.shape.hidden_size
    found = [*_attention(reading, layers), *_experts(reading, layers)]
    for name in ("enorm", "hnorm", "final_layernorm"):
        found += norm(f"{LAYER}.{name}", hidden, layers)
    found.append(Tensor(f"{LAYER}.eh_proj.weight", (hidden, 2 * hidden), "mtp", layers))
    return not_loaded(found)
