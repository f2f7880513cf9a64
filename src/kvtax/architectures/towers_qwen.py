"""The vision towers of the Qwen models, GLM-V and EXAONE 4.5, with the merger that leads to the text model."""

from __future__ import annotations

from kvtax.architectures.config import MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import gated_mlp, plain_mlp
from kvtax.architectures.tensors import COLUMN, HEADS, ROW, Tensor, linear, norm

MAXIMUM_PATCH = 1024


def patch_convolution(config: Config, prefix: str, width: int, *, bias: bool) -> list[Tensor]:
    """`prefix.patch_embed.proj` [width, in_channels, temporal_patch_size, patch_size, patch_size]."""
    channels = config.integer("in_channels", maximum=MAXIMUM_PATCH)
    frames = config.integer("temporal_patch_size", maximum=MAXIMUM_PATCH)
    side = config.integer("patch_size", maximum=MAXIMUM_PATCH)
    name = f"{prefix}.patch_embed.proj"
    found = [Tensor(f"{name}.weight", (width, channels, frames, side, side), "vision")]
    if bias:
        found.append(Tensor(f"{name}.bias", (width,), "vision"))
    return found


def fused_attention(
    config: Config, block: str, layers: tuple[int, ...], width: int, *, qkv_bias: bool = True, proj_bias: bool = True
) -> list[Tensor]:
    """`attn.qkv` [3 x width, width] and `attn.proj` [width, width] below `block`."""
    heads = config.integer("num_heads")
    if width % heads:
        config.fail("num_heads", f"{heads} heads do not divide the width {width}")
    return [
        *linear(
            f"{block}.attn.qkv", 3 * width, width, "vision", layers, bias=qkv_bias, shard=HEADS, heads=(heads, heads)
        ),
        *linear(f"{block}.attn.proj", width, width, "vision", layers, bias=proj_bias, shard=ROW),
    ]


def block_norms(block: str, layers: tuple[int, ...], width: int, *, bias: bool) -> list[Tensor]:
    """`norm1` and `norm2` of every block."""
    return [
        *norm(f"{block}.norm1", width, layers, bias=bias, component="vision"),
        *norm(f"{block}.norm2", width, layers, bias=bias, component="vision"),
    ]


def depth_layers(config: Config) -> tuple[int, ...]:
    """Indices of the blocks of a tower."""
    return tuple(range(config.integer("depth", maximum=MAXIMUM_LAYERS)))


def merged_width(config: Config, width: int) -> int:
    """Width of the patches that the merger puts together: width x spatial_merge_size squared [elements]."""
    return width * config.integer("spatial_merge_size", maximum=MAXIMUM_PATCH) ** 2


def sequential_merger(prefix: str, merged: int, width: int, out_width: int, *, norm_bias: bool) -> list[Tensor]:
    """The merger of Qwen2-VL and Qwen2.5-VL: a norm, two linear layers with a GELU between them."""
    return [
        *norm(f"{prefix}.ln_q", width, bias=norm_bias, component="vision"),
        *linear(f"{prefix}.mlp.0", merged, merged, "vision", bias=True, shard=COLUMN),
        *linear(f"{prefix}.mlp.2", out_width, merged, "vision", bias=True, shard=ROW),
    ]


def qwen2_vl_tower(config: Config, prefix: str = "visual") -> list[Tensor]:
    """ViT with layer norms, fused attention and a plain MLP of mlp_ratio x embed_dim; `hidden_size` is the text width.

    Source: transformers 5.24.0 models/qwen2_vl/modeling_qwen2_vl.py.
    """
    width = config.integer("embed_dim")
    ratio = config.number("mlp_ratio")
    inner = int(width * ratio) if 0 < ratio <= 1024 else 0
    if inner < 1:
        config.fail("mlp_ratio", f"must leave the MLP a width of at least one, not {ratio}")
    layers = depth_layers(config)
    block = f"{prefix}.blocks.*"
    return [
        *patch_convolution(config, prefix, width, bias=False),
        *block_norms(block, layers, width, bias=True),
        *fused_attention(config, block, layers, width),
        *plain_mlp(f"{block}.mlp", layers, width, inner, bias=True, component="vision"),
        *sequential_merger(
            f"{prefix}.merger", merged_width(config, width), width, config.integer("hidden_size"), norm_bias=True
        ),
    ]


def qwen2_5_vl_tower(config: Config, prefix: str = "visual") -> list[Tensor]:
    """ViT with RMS norms and a gated MLP with bias.

    Source: transformers 5.24.0 models/qwen2_5_vl/modeling_qwen2_5_vl.py.
    """
    width = config.integer("hidden_size")
    layers = depth_layers(config)
    block = f"{prefix}.blocks.*"
    out_width = config.integer("out_hidden_size")
    return [
        *patch_convolution(config, prefix, width, bias=False),
        *block_norms(block, layers, width, bias=False),
        *fused_attention(config, block, layers, width),
        *gated_mlp(f"{block}.mlp", layers, width, config.integer("intermediate_size"), bias=True, component="vision"),
        *sequential_merger(f"{prefix}.merger", merged_width(config, width), width, out_width, norm_bias=False),
    ]


def _patch_merger(
    name: str, merged: int, norm_width: int, out_width: int, layers: tuple[int, ...] = ()
) -> list[Tensor]:
    """The merger of Qwen3-VL: a layer norm, two linear layers with a GELU between them."""
    return [
        *norm(f"{name}.norm", norm_width, layers, bias=True, component="vision"),
        *linear(f"{name}.linear_fc1", merged, merged, "vision", layers, bias=True, shard=COLUMN),
        *linear(f"{name}.linear_fc2", out_width, merged, "vision", layers, bias=True, shard=ROW),
    ]


def qwen3_vl_tower(config: Config, prefix: str = "model.visual", *, deepstack: bool = True) -> list[Tensor]:
    """ViT with learned positions; every block in deepstack_visual_indexes has a merger of its own (Qwen3.5 has none).

    Source: transformers 5.24.0 models/qwen3_vl/modeling_qwen3_vl.py, models/qwen3_5/modeling_qwen3_5.py.
    """
    width = config.integer("hidden_size")
    layers = depth_layers(config)
    block = f"{prefix}.blocks.*"
    merged = merged_width(config, width)
    out_width = config.integer("out_hidden_size")
    names = ("linear_fc1", "linear_fc2")
    found = [
        *patch_convolution(config, prefix, width, bias=True),
        Tensor(f"{prefix}.pos_embed.weight", (config.integer("num_position_embeddings"), width), "vision"),
        *block_norms(block, layers, width, bias=True),
        *fused_attention(config, block, layers, width),
        *plain_mlp(
            f"{block}.mlp",
            layers,
            width,
            config.integer("intermediate_size"),
            bias=True,
            component="vision",
            names=names,
        ),
        *_patch_merger(f"{prefix}.merger", merged, width, out_width),
    ]
    if deepstack:
        stack = config.integers("deepstack_visual_indexes") or []
        if len(stack) > MAXIMUM_LAYERS:
            config.fail("deepstack_visual_indexes", f"has {len(stack)} items, more than any tower has blocks")
        if stack:
            found += _patch_merger(
                f"{prefix}.deepstack_merger_list.*", merged, merged, out_width, tuple(range(len(stack)))
            )
    return found


def exaone4_5_tower(config: Config, prefix: str = "model.visual") -> list[Tensor]:
    """Qwen2.5-VL's tower with grouped key/value heads.

    Source: transformers 5.24.0 models/exaone4_5/modeling_exaone4_5.py.
    """
    width = config.integer("hidden_size")
    heads, kv_heads = config.integer("num_heads"), config.integer("num_key_value_heads")
    if width % heads or heads % kv_heads:
        config.fail("num_heads", f"{heads} heads and {kv_heads} key/value heads do not divide the width {width}")
    layers = depth_layers(config)
    block = f"{prefix}.blocks.*"
    qkv = (heads + 2 * kv_heads) * (width // heads)
    out_width = config.integer("out_hidden_size")
    return [
        *patch_convolution(config, prefix, width, bias=False),
        *block_norms(block, layers, width, bias=False),
        *linear(f"{block}.attn.qkv", qkv, width, "vision", layers, bias=True, shard=HEADS, heads=(heads, kv_heads)),
        *linear(f"{block}.attn.proj", width, width, "vision", layers, bias=True, shard=ROW),
        *gated_mlp(f"{block}.mlp", layers, width, config.integer("intermediate_size"), bias=True, component="vision"),
        *sequential_merger(f"{prefix}.merger", merged_width(config, width), width, out_width, norm_bias=False),
    ]


def glm4v_tower(config: Config, prefix: str = "model.visual") -> list[Tensor]:
    """ViT whose MLP is as wide as the text model, a strided convolution that merges patches, and a gated projector.

    Source: transformers 5.24.0 models/glm4v/modeling_glm4v.py.
    """
    width, out_width = config.integer("hidden_size"), config.integer("out_hidden_size")
    inner, merge = config.integer("intermediate_size"), config.integer("spatial_merge_size", maximum=MAXIMUM_PATCH)
    patch, image = config.integer("patch_size", maximum=MAXIMUM_PATCH), config.integer("image_size")
    layers = depth_layers(config)
    block = f"{prefix}.blocks.*"
    merger = f"{prefix}.merger"
    return [
        *patch_convolution(config, prefix, width, bias=True),
        Tensor(f"{prefix}.embeddings.position_embedding.weight", ((image // patch) ** 2, width), "vision"),
        *norm(f"{prefix}.post_conv_layernorm", width, component="vision"),
        *block_norms(block, layers, width, bias=False),
        *fused_attention(config, block, layers, width, qkv_bias=config.boolean("attention_bias"), proj_bias=False),
        *gated_mlp(f"{block}.mlp", layers, width, out_width, component="vision"),
        *norm(f"{prefix}.post_layernorm", width, component="vision"),
        Tensor(f"{prefix}.downsample.weight", (out_width, width, merge, merge), "vision"),
        Tensor(f"{prefix}.downsample.bias", (out_width,), "vision"),
        *linear(f"{merger}.proj", out_width, out_width, "vision"),
        *norm(f"{merger}.post_projection_norm", out_width, bias=True, component="vision"),
        *gated_mlp(merger, (), out_width, inner, component="vision"),
    ]
