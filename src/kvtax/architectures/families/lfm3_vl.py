"""LFM3-VL: a tower of short convolutions over the plane and grouped attention, a merger, an LFM3 text model."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_HEADS, Config, describe
from kvtax.architectures.decoder import attention, gated_mlp, layers_where
from kvtax.architectures.multimodal import NESTED, text_model
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, linear, norm, prefixed
from kvtax.architectures.towers import with_towers

_TOWER = "model.vision_tower"
_JOIN = "model.multi_modal_projector"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A tower, a norm and two linear layers over merged patches, the text model.

    Source: transformers 5.24.0 models/lfm3_vl/modeling_lfm3_vl.py.
    """
    text = text_model(config, module=prefix + NESTED)
    vision = config.sub("vision_config").retyped("lfm3_vl_vision")
    width, inner = vision.integer("hidden_size"), config.integer("projector_hidden_size")
    merged = width * vision.integer("spatial_merge_size", maximum=1024) ** 2
    bias = config.boolean("projector_bias", default=True)
    added = [
        *_tower(vision, width),
        *norm(f"{_JOIN}.layer_norm", width, bias=True, component="vision"),
        *linear(f"{_JOIN}.linear_1", inner, merged, "vision", bias=bias),
        *linear(f"{_JOIN}.linear_2", text.hidden_size, inner, "vision", bias=bias),
    ]
    return with_towers(config, text, prefixed(added, prefix))


def _tower(config: Config, width: int) -> list[Tensor]:
    """Linear patches, a norm, and layers of convolution or attention, each with a gated MLP."""
    count = config.integer("num_hidden_layers")
    layers = tuple(range(count))
    kinds = config.layer_types(count) or ["conv" if i < 2 or i % 2 else "full_attention" for i in layers]
    for kind in kinds:
        if kind not in ("conv", "full_attention"):
            config.unsupported("layer_types", f"layer type {describe(kind)} is not understood")
    heads, kv_heads = (
        config.integer(key, maximum=MAXIMUM_HEADS) for key in ("num_attention_heads", "num_key_value_heads")
    )
    if width % heads or heads % kv_heads:
        config.fail(
            "num_attention_heads", f"{heads} heads and {kv_heads} key/value heads do not divide the width {width}"
        )
    kernel = config.integer("conv_kernel_size", maximum=1024)
    sizes = [
        config.integer(key, maximum=4096) for key in ("in_channels", "temporal_patch_size", "patch_size", "patch_size")
    ]
    pixels = sizes[0] * sizes[1] * sizes[2] * sizes[3]
    layer, conv = f"{_TOWER}.layers.*", layers_where(kinds, "conv")
    attending = layers_where(kinds, "full_attention")
    found = [
        *linear(f"{_TOWER}.patchifier", width, pixels, "vision"),
        *norm(f"{_TOWER}.embedding_norm", width, component="vision"),
        *gated_mlp(
            f"{layer}.feed_forward", layers, width, config.integer("intermediate_size"), component="vision",
            names=("w1", "w3", "w2"),
        ),
        *norm(f"{layer}.operator_norm", width, layers, component="vision"),
        *norm(f"{layer}.ffn_norm", width, layers, component="vision"),
    ]  # fmt: skip
    if conv:
        found += linear(f"{layer}.conv.in_proj", 3 * width, width, "vision", conv, shard=COLUMN)
        found.append(Tensor(f"{layer}.conv.spatial_conv.weight", (width, 1, kernel, kernel), "vision", conv))
        found += linear(f"{layer}.conv.out_proj", width, width, "vision", conv, shard=ROW)
    if attending:
        module = f"{layer}.self_attn"
        found += attention(
            module, attending, width, heads, kv_heads, width // heads, names=("q_proj", "k_proj", "v_proj", "out_proj"),
            component="vision",
        )  # fmt: skip
        for name in ("q_layernorm", "k_layernorm"):
            found += norm(f"{module}.{name}", width // heads, attending, component="vision")
    return found
