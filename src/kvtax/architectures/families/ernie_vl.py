"""ERNIE 4.5 VL: experts for text and others for images in every layer but the dense ones, a tower and a resampler."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention
from kvtax.architectures.config import MAXIMUM_EXPERTS, Config
from kvtax.architectures.decoder import Shape, assemble, experts, plain_mlp
from kvtax.architectures.latent import dense_block
from kvtax.architectures.mixture import LAYER, block, others, shared_mlp, stated_sparse
from kvtax.architectures.tensors import Tensor, linear, norm, prefixed
from kvtax.architectures.towers import with_towers
from kvtax.architectures.towers_qwen import MAXIMUM_PATCH, block_norms, depth_layers, fused_attention, merged_width

_TOWER = "vision_model"
_SAMPLER = "model.resampler_model"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """The text model by itself, or with its tower.

    Source: transformers 5.24.0 models/ernie4_5_vl_moe/modeling_ernie4_5_vl_moe.py (checkpoint names:
    conversion_mapping.py).
    """
    if config.model_type == "ernie4_5_vl_moe_text":
        return build_text(config, prefix=prefix)
    text = config.sub("text_config").retyped("ernie4_5_vl_moe_text")
    text = text.retyped(tie_word_embeddings=config.boolean("tie_word_embeddings", default=True))
    architecture = build_text(text, prefix=prefix)
    vision = config.sub("vision_config").retyped("ernie4_5_vl_moe_vision")
    added = [*_tower(vision), *_resampler(vision, architecture.hidden_size)]
    return with_towers(config, architecture, prefixed(added, prefix))


def build_text(config: Config, *, prefix: str = "") -> Architecture:
    """Each layer has two sets of experts under one numbering: those of the text first; a token uses one set.

    Source: transformers 5.24.0 models/ernie4_5_vl_moe/modeling_ernie4_5_vl_moe.py.
    """
    shape = Shape(config)
    bias, hidden = config.boolean("use_bias"), shape.hidden_size
    sparse = stated_sparse(config, shape.num_hidden_layers)
    if sparse is None:
        sparse = shape.layers[1:]
    dense = others(shape.layers, sparse)
    body = block(shape, shape.layers, qkv_bias=bias, o_bias=bias)
    facts: dict[str, Any] = {}
    if dense:
        facts["intermediate_size"] = config.integer("intermediate_size")
        body += dense_block(f"{LAYER}.mlp", dense, hidden, facts["intermediate_size"], bias=bias)
    unused = 0
    if sparse:
        widths = config.integers("moe_intermediate_size", minimum=1, length=2) or [1536, 512]
        count = config.integer("moe_num_experts", "num_experts", maximum=MAXIMUM_EXPERTS)
        used = config.integer("moe_k", "num_experts_per_tok", maximum=count)
        body += _experts(sparse, count, hidden, widths)
        shared = config.integer("moe_num_shared_experts", minimum=0, maximum=MAXIMUM_EXPERTS)
        body += shared_mlp(f"{LAYER}.mlp.shared_experts", sparse, hidden, shared * widths[0], bias=bias)
        facts.update(num_experts=count, num_experts_per_tok=used, moe_intermediate_size=widths[0])
        expert = 3 * hidden * len(sparse)
        unused = expert * (widths[0] * (count - used) + widths[1] * count) + len(sparse) * count * hidden
    caches = [FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)] * shape.num_hidden_layers
    found = assemble(config, shape, body, caches, prefix=prefix, **facts)
    # a token of text: its own experts, and not the router of the others
    return found.replace(active_parameters=found.parameters - unused)


def _experts(layers: tuple[int, ...], count: int, hidden: int, widths: list[int]) -> list[Tensor]:
    """Routers and experts of both sets; a bias of both routers that is a parameter."""
    text, image = (experts(f"{LAYER}.mlp", layers, count, hidden, width) for width in widths)
    image = [tensor._replace(name=tensor.name.replace(".gate.weight", ".gate.weight_1")) for tensor in image]
    statics = Tensor(f"{LAYER}.mlp.moe_statics.e_score_correction_bias", (2, count), "router", layers, dtype="float32")
    return [*text, *image, statics]


def _tower(config: Config) -> list[Tensor]:
    """Linear patches, pre-norm layers with fused attention, a norm."""
    width, layers = config.integer("hidden_size"), depth_layers(config)
    channels, patch = (config.integer(key, maximum=MAXIMUM_PATCH) for key in ("in_channels", "patch_size"))
    name = f"{_TOWER}.blocks.*"
    return [
        *linear(f"{_TOWER}.patch_embed.proj", width, channels * patch * patch, "vision"),
        *block_norms(name, layers, width, bias=True),
        *fused_attention(config, name, layers, width),
        *plain_mlp(f"{name}.mlp", layers, width, config.integer("intermediate_size"), bias=True, component="vision"),
        *norm(f"{_TOWER}.ln", width, bias=True, component="vision"),
    ]


def _resampler(config: Config, hidden: int) -> list[Tensor]:
    """An MLP over patches put together in space, one over them in time, a linear layer and a norm."""
    merged = merged_width(config, config.integer("hidden_size"))
    found: list[Tensor] = []
    for part, width in (("spatial", merged), ("temporal", merged * config.integer("temporal_merge_size", maximum=64))):
        name = f"{_SAMPLER}.{part}_linear"
        found += linear(f"{name}.0", merged, width, "vision", bias=True)
        found += linear(f"{name}.2", merged, merged, "vision", bias=True)
        found += norm(f"{name}.3", merged, bias=True, component="vision")
    found += linear(f"{_SAMPLER}.mlp", hidden, merged, "vision", bias=True)
    return [*found, *norm(f"{_SAMPLER}.after_norm", hidden, component="vision")]
