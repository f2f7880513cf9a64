"""ERNIE 4.5 MoE (text)."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble, attention_caches, experts
from kvtax.architectures.latent import dense_block, mtp_count
from kvtax.architectures.mixture import LAYER, block, others, routed, shared_mlp
from kvtax.architectures.tensors import Tensor, norm, not_loaded


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention; experts in every moe_layer_interval-th layer from moe_layer_start_index to moe_layer_end_index.

    The router's correction bias is a parameter of the class. An MTP layer is a dense decoder layer.
    Source: transformers 5.24.0 models/ernie4_5_moe/modeling_ernie4_5_moe.py; vllm 0.33.0 model_executor/models/ernie_mtp.py.
    """
    shape = Shape(config)
    bias = config.boolean("use_bias")
    sparse = _sparse_layers(config, shape)
    dense = others(shape.layers, sparse)
    extra = tuple(range(mtp_count(config, "num_nextn_predict_layers")))
    facts: dict[str, Any] = {}
    body = block(shape, shape.layers, qkv_bias=bias, o_bias=bias)
    if sparse:
        numbers = routed(config, experts=("moe_num_experts", "num_experts"), used=("moe_k", "num_experts_per_tok"))
        facts.update(numbers.facts())
        shared = config.integer("moe_num_shared_experts", minimum=0, maximum=MAXIMUM_EXPERTS)
        body += experts(
            f"{LAYER}.mlp", sparse, numbers.num_experts, shape.hidden_size, numbers.moe_intermediate_size, bias=False
        )
        statics = f"{LAYER}.mlp.moe_statics.e_score_correction_bias"
        body.append(Tensor(statics, (1, numbers.num_experts), "router", sparse, dtype="float32"))
        width = shared * numbers.moe_intermediate_size
        body += shared_mlp(f"{LAYER}.mlp.shared_experts", sparse, shape.hidden_size, width, bias=bias)
    if dense or extra:
        facts["intermediate_size"] = config.integer("intermediate_size")
        body += dense_block(f"{LAYER}.mlp", dense, shape.hidden_size, facts["intermediate_size"], bias=bias)
        body += _mtp(shape, extra, facts["intermediate_size"], bias)
    caches = attention_caches(
        config, ["full_attention"] * shape.num_hidden_layers, shape.num_key_value_heads, shape.head_dim
    )
    return assemble(config, shape, body, caches, prefix=prefix, head_bias=bias, **facts)


def _sparse_layers(config: Config, shape: Shape) -> tuple[int, ...]:
    """Layers with experts; an end index of -1 is the last layer."""
    start = config.integer("moe_layer_start_index", minimum=0, maximum=MAXIMUM_LAYERS)
    end = config.integer("moe_layer_end_index", minimum=-1, maximum=MAXIMUM_LAYERS)
    interval = config.integer("moe_layer_interval", maximum=MAXIMUM_LAYERS)
    if end == -1:
        end = shape.num_hidden_layers - 1
    return tuple(index for index in shape.layers if start <= index <= end and (index + 1) % interval == 0)


def _mtp(shape: Shape, layers: tuple[int, ...], width: int, bias: bool) -> list[Tensor]:
    """MTP layers: a dense decoder layer, norms of both streams and their projection."""
    if not layers:
        return []
    module, hidden = "model.mtp_block.*", shape.hidden_size
    return not_loaded(
        [
            *block(shape, layers, qkv_bias=bias, o_bias=bias, layer=module),
            *dense_block(f"{module}.mlp", layers, hidden, width, bias=bias),
            *norm("model.mtp_emb_norm.*", hidden, layers),
            *norm("model.mtp_hidden_norm.*", hidden, layers),
            Tensor("model.mtp_linear_proj.*.weight", (hidden, 2 * hidden), "mtp", layers),
            *([Tensor("model.mtp_linear_proj.*.bias", (hidden,), "mtp", layers)] if bias else []),
        ]
    )
