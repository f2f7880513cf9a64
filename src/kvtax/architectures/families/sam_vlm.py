"""GOT-OCR 2 and the hybrid DeepSeek-VL: SAM's tower, alone or beside SigLIP's, and a text model of any type."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_LAYERS, Config
from kvtax.architectures.multimodal import text_model
from kvtax.architectures.tensors import COLUMN, HEADS, ROW, Tensor, linear, norm, prefixed
from kvtax.architectures.towers import convolution, hidden_and_heads, patch_grid, with_towers
from kvtax.architectures.towers_vit import any_vision_tower


def build(config: Config, *, prefix: str = "") -> Architecture:
    """SAM's tower with its neck, convolutions that shrink the grid, and the way into the text model.

    Source: transformers 5.24.0 models/got_ocr2/modeling_got_ocr2.py, models/deepseek_vl_hybrid/modeling_deepseek_vl_hybrid.py.
    """
    text = text_model(config, module=f"{prefix}model.language_model.")
    parts = _got if config.model_type == "got_ocr2" else _deepseek
    return with_towers(config, text, prefixed(parts(config, text.hidden_size), prefix))


def _got(config: Config, hidden: int) -> list[Tensor]:
    """Two strided convolutions and a linear layer."""
    vision = config.sub("vision_config").retyped("got_ocr2_vision")
    channels, name = vision.integer("output_channels"), "model.multi_modal_projector"
    return [
        *sam_vision(vision, "model.vision_tower"),
        *convolution(f"{name}.conv_upsampler1", 2 * channels, channels, 3, 3, bias=False),
        *convolution(f"{name}.conv_upsampler2", hidden, 2 * channels, 3, 3, bias=False),
        *linear(f"{name}.multimodal_projector", hidden, hidden, "vision", bias=True),
    ]


def _deepseek(config: Config, hidden: int) -> list[Tensor]:
    """Both towers; the high-resolution one has a second neck and two strided convolutions; half the width from each."""
    vision = config.sub("vision_config")
    high = config.sub("high_res_vision_config").retyped("sam_vision_model")
    width, channels = high.integer("hidden_size"), high.integer("output_channels")
    aligner, half = "model.aligner", hidden // 2
    return [
        *any_vision_tower(vision, "model."),
        *sam_vision(high, "model.high_res_vision_model.vision_encoder"),
        *_neck("model.high_res_vision_neck", width, channels),
        *convolution("model.high_res_vision_proj.conv1", 2 * channels, channels, 3, 3, bias=False),
        *convolution("model.high_res_vision_proj.conv2", 4 * channels, 2 * channels, 3, 3, bias=False),
        Tensor("model.high_res_vision_alpha", (1,), "vision"),
        *linear(f"{aligner}.vision_proj", half, vision.integer("hidden_size"), "vision", bias=True),
        *linear(f"{aligner}.high_res_vision_proj", half, 4 * channels, "vision", bias=True),
        *linear(f"{aligner}.proj", hidden, hidden, "vision", bias=True),
    ]


def sam_vision(config: Config, prefix: str) -> list[Tensor]:
    """SAM's image encoder: windows in all but a few layers, relative positions for each side, a neck.

    Source: transformers 5.24.0 models/sam/modeling_sam.py.
    """
    width, heads = hidden_and_heads(config)
    layers = tuple(range(config.integer("num_hidden_layers")))
    patch, side = patch_grid(config)
    inner = config.optional_integer("mlp_dim")
    if inner is None:
        inner = int(width * config.number("mlp_ratio"))
    layer = f"{prefix}.layers.*"
    found = [
        *convolution(f"{prefix}.patch_embed.projection", width, config.integer("num_channels", maximum=1024), patch, patch),
        *norm(f"{layer}.layer_norm1", width, layers, bias=True, component="vision"),
        *linear(
            f"{layer}.attn.qkv", 3 * width, width, "vision", layers, bias=config.boolean("qkv_bias"), shard=HEADS,
            heads=(heads, heads),
        ),
        *linear(f"{layer}.attn.proj", width, width, "vision", layers, bias=True, shard=ROW),
        *norm(f"{layer}.layer_norm2", width, layers, bias=True, component="vision"),
        *linear(f"{layer}.mlp.lin1", inner, width, "vision", layers, bias=True, shard=COLUMN),
        *linear(f"{layer}.mlp.lin2", width, inner, "vision", layers, bias=True, shard=ROW),
        *_neck(f"{prefix}.neck", width, config.integer("output_channels")),
    ]  # fmt: skip
    if config.boolean("use_abs_pos"):
        found.append(Tensor(f"{prefix}.pos_embed", (1, side, side, width), "vision"))
    if config.boolean("use_rel_pos"):
        found += _relative_positions(config, layer, layers, side, width // heads)
    return found


def _relative_positions(config: Config, layer: str, layers: tuple[int, ...], side: int, head_dim: int) -> list[Tensor]:
    """A row for each distance inside the window, or inside the image in the layers that see all of it."""
    window = config.integer("window_size", minimum=0)
    whole = set(config.integers("global_attn_indexes", maximum=MAXIMUM_LAYERS) or ())
    found = []
    for wide in (True, False):
        these = tuple(index for index in layers if (index in whole or not window) == wide)
        rows = 2 * (side if wide else window) - 1
        if these:
            found += [Tensor(f"{layer}.attn.rel_pos_{axis}", (rows, head_dim), "vision", these) for axis in "hw"]
    return found


def _neck(name: str, width: int, channels: int) -> list[Tensor]:
    """Two convolutions without bias, each with a norm."""
    return [
        *convolution(f"{name}.conv1", channels, width, 1, 1, bias=False),
        *norm(f"{name}.layer_norm1", channels, bias=True, component="vision"),
        *convolution(f"{name}.conv2", channels, channels, 3, 3, bias=False),
        *norm(f"{name}.layer_norm2", channels, bias=True, component="vision"),
    ]
