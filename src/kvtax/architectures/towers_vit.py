"""Vision transformers of single model families: SigLIP 2, InternViT, MoonViT, Step, MiniMax, Ovis."""

from __future__ import annotations

from kvtax.architectures.config import MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.decoder import attention, gated_mlp, plain_mlp
from kvtax.architectures.tensors import COLUMN, HEADS, ROW, Tensor, linear, norm
from kvtax.architectures.towers import convolution, encoder_layers, hidden_and_heads, vision_tower

MAXIMUM_SIDE = 65_536


def pair(config: Config, key: str) -> tuple[int, int]:
    """A number, or a list of two, as two numbers.

    Raises:
        ConfigError: neither.
    """
    value = config.get(key)
    if isinstance(value, list):
        sides = config.integers(key, minimum=1, maximum=MAXIMUM_SIDE) or []
        if len(sides) != 2:
            config.fail(key, f"must be a number or a list of two, not {describe(value)}")
        return sides[0], sides[1]
    side = config.integer(key, maximum=MAXIMUM_SIDE)
    return side, side


def _patches(config: Config) -> tuple[tuple[int, int], int]:
    """The patch as height and width, and how many of them an image has."""
    (height, width), (patch_height, patch_width) = pair(config, "image_size"), pair(config, "patch_size")
    return (patch_height, patch_width), (height // patch_height) * (width // patch_width)


def siglip2_vision(config: Config, prefix: str) -> list[Tensor]:
    """SigLIP 2: patches come in flat, so a linear layer embeds them; num_patches learned positions.

    Source: transformers 5.24.0 models/siglip2/modeling_siglip2.py.
    """
    width, heads = hidden_and_heads(config)
    inner = config.integer("intermediate_size")
    patch = config.integer("patch_size", maximum=MAXIMUM_SIDE)
    pixels = config.integer("num_channels", maximum=MAXIMUM_SIDE) * patch * patch
    model = f"{prefix}vision_model"
    found = [
        *linear(f"{model}.embeddings.patch_embedding", width, pixels, "vision", bias=True),
        Tensor(f"{model}.embeddings.position_embedding.weight", (config.integer("num_patches"), width), "vision"),
        *encoder_layers(f"{model}.encoder.layers", config.integer("num_hidden_layers"), width, heads, inner),
        *norm(f"{model}.post_layernorm", width, bias=True, component="vision"),
    ]
    if config.boolean("vision_use_head", default=True):
        head = f"{model}.head"
        found += [
            Tensor(f"{head}.probe", (1, 1, width), "vision"),
            Tensor(f"{head}.attention.in_proj_weight", (3 * width, width), "vision"),
            Tensor(f"{head}.attention.in_proj_bias", (3 * width,), "vision"),
            *linear(f"{head}.attention.out_proj", width, width, "vision", bias=True),
            *norm(f"{head}.layernorm", width, bias=True, component="vision"),
            *plain_mlp(f"{head}.mlp", (), width, inner, bias=True, component="vision"),
        ]
    return found


def _norm_bias(config: Config) -> bool:
    """Whether norm_type is a layer norm, which has a bias."""
    kind = config.string("norm_type", default="layer_norm")
    if kind not in ("layer_norm", "rms_norm"):
        config.unsupported("norm_type", f"norm {describe(kind)} is not understood")
    return kind == "layer_norm"


def internvl_vision(config: Config, prefix: str) -> list[Tensor]:
    """InternViT as transformers names it: class token, layer scales, separate query, key and value.

    Source: transformers 5.24.0 models/internvl/modeling_internvl.py.
    """
    width, heads = hidden_and_heads(config)
    layers = tuple(range(config.integer("num_hidden_layers")))
    patch, patches = _patches(config)
    bias = _norm_bias(config)
    layer = f"{prefix}encoder.layer.*"
    found = [
        Tensor(f"{prefix}embeddings.cls_token", (1, 1, width), "vision"),
        *convolution(
            f"{prefix}embeddings.patch_embeddings.projection",
            width,
            config.integer("num_channels", maximum=MAXIMUM_SIDE),
            *patch,
        ),
    ]
    if config.boolean("use_mask_token"):
        found.append(Tensor(f"{prefix}embeddings.mask_token", (1, 1, width), "vision"))
    if config.boolean("use_absolute_position_embeddings", default=True):
        found.append(Tensor(f"{prefix}embeddings.position_embeddings", (1, patches + 1, width), "vision"))
    qkv_bias = config.boolean("attention_bias")
    found += [
        *attention(
            f"{layer}.attention", layers, width, heads, heads, width // heads, qkv_bias=qkv_bias, o_bias=True,
            names=("q_proj", "k_proj", "v_proj", "projection_layer"), component="vision",
        ),
        *plain_mlp(f"{layer}.mlp", layers, width, config.integer("intermediate_size"), bias=True, component="vision"),
        *norm(f"{layer}.layernorm_before", width, layers, bias=bias, component="vision"),
        *norm(f"{layer}.layernorm_after", width, layers, bias=bias, component="vision"),
        Tensor(f"{layer}.lambda_1", (width,), "vision", layers),
        Tensor(f"{layer}.lambda_2", (width,), "vision", layers),
    ]  # fmt: skip
    if config.boolean("use_qk_norm"):
        found += norm(f"{layer}.attention.q_norm", width, layers, component="vision")
        found += norm(f"{layer}.attention.k_norm", width, layers, component="vision")
    if not config.boolean("use_mean_pooling", default=True):
        found += norm(f"{prefix}layernorm", width, bias=True, component="vision")
    return found


def intern_vit(config: Config, prefix: str) -> list[Tensor]:
    """InternViT as its own repositories name it: fused query, key and value, no norm at the end.

    Source: repository file modeling_intern_vit.py of OpenGVLab's models.
    """
    width, heads = hidden_and_heads(config)
    layers = tuple(range(config.integer("num_hidden_layers")))
    patch, patches = _patches(config)
    bias = _norm_bias(config)
    layer = f"{prefix}encoder.layers.*"
    found = [
        Tensor(f"{prefix}embeddings.class_embedding", (1, 1, width), "vision"),
        *convolution(f"{prefix}embeddings.patch_embedding", width, 3, *patch),
        Tensor(f"{prefix}embeddings.position_embedding", (1, patches + 1, width), "vision"),
        *linear(
            f"{layer}.attn.qkv",
            3 * width,
            width,
            "vision",
            layers,
            bias=config.boolean("qkv_bias"),
            shard=HEADS,
            heads=(heads, heads),
        ),
        *linear(f"{layer}.attn.proj", width, width, "vision", layers, bias=True, shard=ROW),
        *plain_mlp(f"{layer}.mlp", layers, width, config.integer("intermediate_size"), bias=True, component="vision"),
        *norm(f"{layer}.norm1", width, layers, bias=bias, component="vision"),
        *norm(f"{layer}.norm2", width, layers, bias=bias, component="vision"),
        Tensor(f"{layer}.ls1", (width,), "vision", layers),
        Tensor(f"{layer}.ls2", (width,), "vision", layers),
    ]
    if config.boolean("qk_normalization"):
        found += norm(f"{layer}.attn.q_norm", width, layers, component="vision")
        found += norm(f"{layer}.attn.k_norm", width, layers, component="vision")
    return found


def moon_vit(config: Config, prefix: str = "vision_tower.") -> list[Tensor]:
    """MoonViT of Kimi K2.5: a learned grid of positions, fused query, key and value, a norm at the end.

    The published files spell the sizes vt_hidden_size, vt_num_hidden_layers and so on.
    Source: transformers 5.24.0 models/kimi_k25/modeling_kimi_k25.py, conversion_mapping.py (names).
    """
    width = moon_width(config)
    heads = config.integer("num_attention_heads", "vt_num_attention_heads")
    if width % heads:
        config.fail("num_attention_heads", f"{heads} does not divide hidden_size {width}")
    layers = tuple(range(config.integer("num_hidden_layers", "vt_num_hidden_layers", maximum=MAXIMUM_LAYERS)))
    grid = (_grid(config, "pos_emb_height"), _grid(config, "pos_emb_width"))
    inner = config.integer("intermediate_size", "vt_intermediate_size")
    block = f"{prefix}encoder.blocks.*"
    return [
        *convolution(f"{prefix}patch_embed.proj", width, 3, *pair(config, "patch_size")),
        Tensor(f"{prefix}patch_embed.pos_emb.weight", (*grid, width), "vision"),
        *norm(f"{block}.norm0", width, layers, bias=True, component="vision"),
        *norm(f"{block}.norm1", width, layers, bias=True, component="vision"),
        *linear(f"{block}.wqkv", 3 * width, width, "vision", layers, bias=True, shard=HEADS, heads=(heads, heads)),
        *linear(f"{block}.wo", width, width, "vision", layers, bias=True, shard=ROW),
        *plain_mlp(f"{block}.mlp", layers, width, inner, bias=True, component="vision", names=("fc0", "fc1")),
        *norm(f"{prefix}encoder.final_layernorm", width, bias=True, component="vision"),
    ]


def moon_vit_2(config: Config, prefix: str = "vision_tower.") -> list[Tensor]:
    """MoonViT of Kimi K3: attention of its own width, RMS norms, biases only where the config asks for them.

    Source: repository file modeling_kimi_k3.py of moonshotai's model.
    """
    width = moon_width(config)
    heads = config.integer("vt_num_attention_heads", "num_attention_heads")
    inner = config.optional_integer("qkv_hidden_size") or width
    if inner % heads:
        config.fail("qkv_hidden_size", f"{inner} does not divide by {heads} heads")
    for key, known in (("mlp_type", "mlp2"), ("merge_type", "sd2_tpool"), ("pos_emb_type", "divided_fixed")):
        if config.string(key, default=known) != known:
            config.unsupported(key, f"{describe(config.get(key))} is not understood")
    kind = config.string("norm_type", default="rmsnorm")
    if kind not in ("rmsnorm", "layernorm"):
        config.unsupported("norm_type", f"norm {describe(kind)} is not understood")
    norm_bias = kind == "layernorm"
    attn_bias, linear_bias = config.boolean("attn_bias"), config.boolean("linear_bias")
    layers = tuple(range(config.integer("vt_num_hidden_layers", "num_hidden_layers", maximum=MAXIMUM_LAYERS)))
    grid = (_grid(config, "pos_emb_height"), _grid(config, "pos_emb_width"))
    mlp = config.integer("vt_intermediate_size", "intermediate_size")
    block = f"{prefix}encoder.blocks.*"
    return [
        *convolution(
            f"{prefix}patch_embed.proj",
            width,
            3,
            *pair(config, "patch_size"),
            bias=config.boolean("patch_embed_proj_bias"),
        ),
        Tensor(f"{prefix}patch_embed.pos_emb.weight", (*grid, width), "vision"),
        *norm(f"{block}.norm0", width, layers, bias=norm_bias, component="vision"),
        *norm(f"{block}.norm1", width, layers, bias=norm_bias, component="vision"),
        *linear(f"{block}.wqkv", 3 * inner, width, "vision", layers, bias=attn_bias, shard=HEADS, heads=(heads, heads)),
        *linear(f"{block}.wo", width, inner, "vision", layers, bias=attn_bias, shard=ROW),
        *plain_mlp(f"{block}.mlp", layers, width, mlp, bias=linear_bias, component="vision", names=("fc0", "fc1")),
        *norm(f"{prefix}encoder.final_layernorm", width, bias=norm_bias, component="vision"),
    ]


def moon_width(config: Config) -> int:
    """Width of MoonViT [elements]."""
    return config.integer("hidden_size", "vt_hidden_size")


def _grid(config: Config, key: str) -> int:
    """One side of the learned grid of positions."""
    return config.integer(key, f"init_{key}", maximum=MAXIMUM_SIDE)


def step_vision(config: Config, prefix: str = "vision_model.") -> list[Tensor]:
    """Step's tower: patches without bias, layer scales, two strided convolutions that double the width each.

    Source: transformers 5.24.0 models/step3p7/modeling_step3p7.py.
    """
    width = config.integer("width", "hidden_size")
    heads = config.integer("heads", "num_attention_heads")
    if width % heads:
        config.fail("num_attention_heads", f"{heads} does not divide hidden_size {width}")
    ratio = config.number("mlp_ratio")
    inner = int(width * ratio) if 0 < ratio <= 1024 else 0
    if inner < 1:
        config.fail("mlp_ratio", f"must leave the MLP a width of at least one, not {ratio}")
    patch, image = (
        config.integer("patch_size", maximum=MAXIMUM_SIDE),
        config.integer("image_size", maximum=MAXIMUM_SIDE),
    )
    count = config.integer("layers", "num_hidden_layers", maximum=MAXIMUM_LAYERS)
    layers = tuple(range(count))
    layer = f"{prefix}layers"
    return [
        *convolution(
            f"{prefix}embeddings.patch_embedding",
            width,
            config.integer("num_channels", maximum=MAXIMUM_SIDE),
            patch,
            patch,
            bias=False,
        ),
        Tensor(f"{prefix}embeddings.position_embedding.weight", ((image // patch) ** 2, width), "vision"),
        *norm(f"{prefix}pre_layernorm", width, bias=True, component="vision"),
        *encoder_layers(layer, count, width, heads, inner, norm_names=("layernorm_before", "layernorm_after")),
        Tensor(f"{layer}.*.lambda_1", (width,), "vision", layers),
        Tensor(f"{layer}.*.lambda_2", (width,), "vision", layers),
        *convolution(f"{prefix}downsampler1", 2 * width, width, 3, 3),
        *convolution(f"{prefix}downsampler2", 4 * width, 2 * width, 3, 3),
    ]


def minimax_vision(config: Config, prefix: str = "vision_tower.") -> list[Tensor]:
    """MiniMax-M3's tower: CLIP's layers on patches in time and space, without positions or a norm at the end.

    Source: transformers 5.24.0 models/minimax_m3_vl/modeling_minimax_m3_vl.py.
    """
    width, heads = hidden_and_heads(config)
    patch = config.integer("patch_size", maximum=MAXIMUM_SIDE)
    frames, channels = (config.integer(key, maximum=MAXIMUM_SIDE) for key in ("temporal_patch_size", "num_channels"))
    model = f"{prefix}vision_model"
    return [
        *convolution(f"{model}.embeddings.patch_embedding", width, channels, frames, patch, patch, bias=False),
        *norm(f"{model}.pre_layrnorm", width, bias=True, component="vision"),
        *encoder_layers(
            f"{model}.encoder.layers",
            config.integer("num_hidden_layers"),
            width,
            heads,
            config.integer("intermediate_size"),
        ),
    ]


def ovis2_vision(config: Config, prefix: str = "model.vision_tower.") -> list[Tensor]:
    """AIMv2-like layers with RMS norms and gated MLPs, and a head that gives probabilities over a visual vocabulary.

    Source: transformers 5.24.0 models/ovis2/modeling_ovis2.py.
    """
    width, heads = hidden_and_heads(config)
    layers = tuple(range(config.integer("num_hidden_layers")))
    patch, image = (
        config.integer("patch_size", maximum=MAXIMUM_SIDE),
        config.integer("image_size", maximum=MAXIMUM_SIDE),
    )
    bias = config.boolean("qkv_bias")
    visual = config.integer("vocab_size") - config.integer("num_visual_indicator_tokens", minimum=0)
    if visual < 1:
        config.fail("num_visual_indicator_tokens", "leaves no visual vocabulary")
    channels, inner = config.integer("num_channels", maximum=MAXIMUM_SIDE), config.integer("intermediate_size")
    merged = width * config.integer("hidden_stride", maximum=1024) ** 2
    model = f"{prefix}transformer"
    layer = f"{model}.encoder.layers.*"
    return [
        *convolution(f"{model}.embeddings.patch_embedding", width, channels, patch, patch),
        Tensor(f"{model}.embeddings.position_embedding.weight", ((image // patch) ** 2, width), "vision"),
        *norm(f"{model}.embeddings.rms_norm", width, component="vision"),
        *attention(
            f"{layer}.attention", layers, width, heads, heads, width // heads, qkv_bias=bias, o_bias=bias,
            names=("q_proj", "k_proj", "v_proj", "out_proj"), component="vision",
        ),
        *gated_mlp(f"{layer}.ffn", layers, width, inner, bias=config.boolean("mlp_bias"), component="vision"),
        *norm(f"{layer}.rms_norm1", width, layers, component="vision"),
        *norm(f"{layer}.rms_norm2", width, layers, component="vision"),
        *norm(f"{model}.rms_norm", width, component="vision"),
        *linear(f"{prefix}head_linear", visual, merged, "vision", shard=COLUMN),
        *norm(f"{prefix}head_norm", visual, bias=True, component="vision"),
    ]  # fmt: skip


_TOWERS = {"siglip2_vision_model": siglip2_vision, "internvl_vision": internvl_vision}


def any_vision_tower(config: Config, prefix: str) -> list[Tensor]:
    """The tower that the model type of a vision_config names.

    Raises:
        UnsupportedArchitectureError: a model type that no tower is known for.
    """
    tower = _TOWERS.get(config.model_type)
    return tower(config, prefix) if tower else vision_tower(config, prefix)
