"""DeepSeek-VL2: a SigLIP tower in timm's layout, an MLP over merged patches, DeepSeek V2 with or without MLA."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.decoder import Shape, assemble, attention, experts, gated_mlp, plain_mlp
from kvtax.architectures.tensors import COLUMN, HEADS, ROW, Tensor, linear, norm
from kvtax.architectures.towers import convolution, with_towers


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Tower, projector, separators of tiles, text model.

    Source: repository files deepseek_vl2/models/modeling_deepseek_vl_v2.py, siglip_vit.py of deepseek-ai/DeepSeek-VL2.
    """
    from kvtax.architectures.registry import build as build_any

    if not config.has_sub("language_config"):
        config.fail("language_config", "is missing, and the model type has no default for it")
    language = config.sub("language_config").retyped("deepseek_v2")
    mla = language.boolean("use_mla", default=True)
    text = (build_any if mla else _without_mla)(language, prefix=f"{prefix}language.")
    vision = config.sub("vision_config", model_type="vision")
    projector = config.sub("projector_config", model_type="mlp_projector")
    width = vision.integer("width", default=1024)
    n_embed = projector.integer("n_embed", default=2048)
    added = [*_tower(vision, f"{prefix}vision.", width), *_projector(projector, f"{prefix}projector", n_embed)]
    tag = config.string("tile_tag", default="2D")
    if tag != "2D":
        config.unsupported("tile_tag", f"tile_tag {describe(tag)} is not understood")
    added.append(Tensor(f"{prefix}image_newline", (n_embed,), "vision"))
    added.append(Tensor(f"{prefix}view_seperator", (n_embed,), "vision"))
    return with_towers(config, text, added)


def _tower(config: Config, prefix: str, width: int) -> list[Tensor]:
    """ViT with learned positions and, with global_pool `map`, a pooling head (stored, though not used)."""
    heads, ratio = config.integer("heads", default=16), config.number("mlp_ratio", default=4)
    inner = int(width * ratio) if 0 < ratio <= 1024 else 0
    if width % heads or inner < 1:
        config.fail("heads", f"{heads} heads or mlp_ratio {ratio} do not fit width {width}")
    patch, image = config.integer("patch_size", default=16, maximum=1024), config.integer("image_size", default=384)
    layers = tuple(range(config.integer("layers", default=24, maximum=MAXIMUM_LAYERS)))
    if config.boolean("class_token"):
        config.unsupported("class_token", "a class token is not understood")
    block = f"{prefix}blocks.*"
    found = [
        *convolution(f"{prefix}patch_embed.proj", width, 3, patch, patch),
        Tensor(f"{prefix}pos_embed", (1, (image // patch) ** 2, width), "vision"),
        *norm(f"{block}.norm1", width, layers, bias=True, component="vision"),
        *norm(f"{block}.norm2", width, layers, bias=True, component="vision"),
        *linear(f"{block}.attn.qkv", 3 * width, width, "vision", layers, bias=True, shard=HEADS, heads=(heads, heads)),
        *linear(f"{block}.attn.proj", width, width, "vision", layers, bias=True, shard=ROW),
        *plain_mlp(f"{block}.mlp", layers, width, inner, bias=True, component="vision"),
        *norm(f"{prefix}norm", width, bias=True, component="vision"),
    ]
    if config.string("global_pool", default="map") == "map":
        pool = f"{prefix}attn_pool"
        found += [
            Tensor(f"{pool}.latent", (1, 1, width), "vision"),
            *linear(f"{pool}.q", width, width, "vision", bias=True),
            *linear(f"{pool}.kv", 2 * width, width, "vision", bias=True),
            *linear(f"{pool}.proj", width, width, "vision", bias=True),
            *norm(f"{pool}.norm", width, bias=True, component="vision"),
            *plain_mlp(f"{pool}.mlp", (), width, inner, bias=True, component="vision"),
        ]
    return found


def _projector(config: Config, name: str, n_embed: int) -> list[Tensor]:
    """`linear`, `identity`, `mlp_gelu` or `downsample_mlp_gelu`, which merges downsample_ratio squared patches."""
    kind = config.string("projector_type", default="downsample_mlp_gelu")
    width = config.integer("input_dim", default=1152)
    if config.boolean("token_pooling"):
        config.unsupported("token_pooling", "token pooling is not understood")
    if kind == "identity":
        return []
    if kind == "linear":
        return linear(f"{name}.layers", n_embed, width, "vision", bias=True)
    inner = n_embed
    if kind == "downsample_mlp_gelu":
        width *= config.integer("downsample_ratio", default=2, maximum=64) ** 2
        inner *= config.integer("mlp_ratio", default=1, maximum=64)
    elif kind != "mlp_gelu":
        config.unsupported("projector_type", f"projector {describe(kind)} is not understood")
    depth = config.integer("depth", default=2, maximum=16)
    sizes = [width, *[inner] * (depth - 1), n_embed] if kind == "downsample_mlp_gelu" else [width, *[n_embed] * depth]
    if kind == "downsample_mlp_gelu" and depth == 1:
        sizes = [width, inner, n_embed]
    found: list[Tensor] = []
    for index, (before, after) in enumerate(pairwise(sizes)):
        found += linear(
            f"{name}.layers.{2 * index}", after, before, "vision", bias=True, shard=COLUMN if index == 0 else ROW
        )
    return found


def _without_mla(config: Config, *, prefix: str = "") -> Architecture:
    """The smallest text model: DeepSeek's experts behind attention with plain heads."""
    shape = Shape(config.retyped(head_dim=None))
    layer = "model.layers.*"
    dense_size = config.integer("intermediate_size")
    count, width = config.integer("n_routed_experts", maximum=MAXIMUM_EXPERTS), config.integer("moe_intermediate_size")
    shared = config.optional_integer("n_shared_experts", minimum=0, maximum=MAXIMUM_EXPERTS) or 0
    first = min(config.integer("first_k_dense_replace", minimum=0), shape.num_hidden_layers)
    bias = config.boolean("attention_bias")
    body = [
        *attention(
            f"{layer}.self_attn", shape.layers, shape.hidden_size, shape.num_attention_heads, shape.num_key_value_heads,
            shape.head_dim, qkv_bias=bias, o_bias=bias,
        ),
        *norm(f"{layer}.input_layernorm", shape.hidden_size, shape.layers),
        *norm(f"{layer}.post_attention_layernorm", shape.hidden_size, shape.layers),
    ]  # fmt: skip
    if first:
        body += gated_mlp(f"{layer}.mlp", shape.layers[:first], shape.hidden_size, dense_size)
    sparse = shape.layers[first:]
    if sparse:
        body += experts(f"{layer}.mlp", sparse, count, shape.hidden_size, width)
        if shared:
            body += gated_mlp(
                f"{layer}.mlp.shared_experts", sparse, shape.hidden_size, width * shared, component="shared_experts"
            )
    facts: dict[str, Any] = {"intermediate_size": dense_size}
    if sparse:
        facts |= {"num_experts": count, "moe_intermediate_size": width}
        facts["num_experts_per_tok"] = config.integer("num_experts_per_tok", maximum=count)
    cache = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)
    return assemble(config, shape, body, [cache] * shape.num_hidden_layers, prefix=prefix, **facts)
