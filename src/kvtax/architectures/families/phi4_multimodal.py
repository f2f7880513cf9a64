"""Phi-4-multimodal: Phi-3's decoder, a SigLIP tower and a conformer for speech, each with its own projections."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import attention
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, linear, norm
from kvtax.architectures.towers import siglip_vision, with_towers

_EXTEND = "model.embed_tokens_extend"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A decoder with fused projections and two towers below its embedding.

    Source: transformers 5.24.0 models/phi4_multimodal/modeling_phi4_multimodal.py.
    """
    from kvtax.architectures.registry import build as build_any

    text = build_any(config.retyped("phi3", keep_defaults=True), prefix=prefix)
    vision = config.sub("vision_config").retyped("phi4_multimodal_vision", vision_use_head=True)
    audio = config.sub("audio_config").retyped("phi4_multimodal_audio")
    extend = f"{prefix}{_EXTEND}"
    return with_towers(
        config,
        text,
        [
            *_images(vision, f"{extend}.image_embed", text.hidden_size),
            *_conformer(audio, f"{extend}.audio_embed.encoder"),
            *_speech(audio, f"{extend}.audio_embed", text.hidden_size),
        ],
    )


def _images(config: Config, name: str, hidden_size: int) -> list[Tensor]:
    """SigLIP with its head, two learned separators, two linear layers."""
    width = config.integer("hidden_size")
    tower = siglip_vision(config, f"{name}.img_processor.")
    return [
        # the tower stands without the vision_model module that SigLIP itself has
        *(
            tensor._replace(name=tensor.name.replace(".img_processor.vision_model.", ".img_processor."))
            for tensor in tower
        ),
        Tensor(f"{name}.global_img_feature_extensor", (1, 1, width), "vision"),
        Tensor(f"{name}.sub_img_feature_extensor", (1, 1, 1, width), "vision"),
        *linear(f"{name}.img_projection_up", hidden_size, width, "vision", bias=True),
        *linear(f"{name}.img_projection_down", hidden_size, hidden_size, "vision", bias=True),
    ]


def _speech(config: Config, name: str, hidden_size: int) -> list[Tensor]:
    """Two linear layers for speech alone and two for speech with images."""
    width = config.integer("hidden_size") * config.integer("downsample_rate", maximum=1024)
    found: list[Tensor] = []
    for kind in ("speech", "vision_speech"):
        found += linear(f"{name}.up_proj_for_{kind}", hidden_size, width, "audio", bias=True)
        found += linear(f"{name}.down_proj_for_{kind}", hidden_size, hidden_size, "audio", bias=True)
    return found


def _conv(name: str, shape: tuple[int, ...], layers: tuple[int, ...] = ()) -> list[Tensor]:
    """A convolution [out_channels, ...] with bias."""
    return [Tensor(f"{name}.weight", shape, "audio", layers), Tensor(f"{name}.bias", shape[:1], "audio", layers)]


def _conformer(config: Config, name: str) -> list[Tensor]:
    """Strided convolutions, a table of relative positions, and blocks of MLP, attention, convolution, MLP."""
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    if width % heads:
        config.fail("num_attention_heads", f"{heads} does not divide hidden_size {width}")
    layers = tuple(range(config.integer("num_blocks", maximum=MAXIMUM_LAYERS)))
    buckets = config.integer("bias_max_distance") * (1 if config.boolean("bias_symmetric") else 2)
    mel = config.integer("input_size")
    block = f"{name}.encoders.*"
    audio: dict[str, Any] = {"component": "audio"}
    found = [
        *_subsampling(config, f"{name}.embed", width, mel),
        Tensor(f"{name}.relative_attention_bias_layer.bias_values.weight", (buckets, heads), "audio"),
        Tensor(f"{name}.encoder_embedding.global_mean", (mel,), "audio", parameter=False),
        Tensor(f"{name}.encoder_embedding.global_invstd", (mel,), "audio", parameter=False),
        *attention(
            f"{block}.self_attn", layers, width, heads, heads, width // heads, qkv_bias=True, o_bias=True, **audio
        ),
        *_convolution_module(config, f"{block}.conv", width, layers),
        *norm(f"{block}.layer_norm_att", width, layers, bias=True, **audio),
        *norm(f"{block}.layer_norm", width, layers, bias=True, **audio),
    ]
    inner = config.integer("intermediate_size")
    for part in ("feed_forward_in", "feed_forward_out"):
        found += norm(f"{block}.{part}.layer_norm", width, layers, bias=True, **audio)
        found += linear(f"{block}.{part}.gate_up_proj", 2 * inner, width, "audio", layers, bias=True, shard=COLUMN)
        found += linear(f"{block}.{part}.down_proj", width, inner, "audio", layers, bias=True, shard=ROW)
    return found


def _subsampling(config: Config, name: str, width: int, mel: int) -> list[Tensor]:
    """log2(time_reduction) convolutions of stride two, all but the first split into depth and points."""
    channels, reduction = (
        config.integer("nemo_conv_channels"),
        config.integer("time_reduction", minimum=2, maximum=1024),
    )
    if reduction % 2:
        config.fail("time_reduction", f"must be even, not {reduction}")
    steps = reduction.bit_length() - 1
    found = _conv(f"{name}.conv.0", (channels, 1, 3, 3))
    for step in range(1, steps):
        found += _conv(f"{name}.conv.{3 * step - 1}", (channels, 1, 3, 3))
        found += _conv(f"{name}.conv.{3 * step}", (channels, channels, 1, 1))
    for _ in range(steps):
        mel = (mel + 1) // 2
    return [*found, *linear(f"{name}.out", width, channels * mel, "audio", bias=True)]


def _convolution_module(config: Config, name: str, width: int, layers: tuple[int, ...]) -> list[Tensor]:
    """A gated convolution of points, one of depth and points, one of points."""
    out, kernel = config.integer("ext_pw_out_channel"), config.integer("kernel_size", maximum=1024)
    deep = width * config.integer("depthwise_multiplier", maximum=1024)
    separable = config.integer("depthwise_separable_out_channel")
    return [
        *norm(f"{name}.layer_norm", width, layers, bias=True, component="audio"),
        Tensor(f"{name}.glu.b1", (1, out, 1), "audio", layers),
        Tensor(f"{name}.glu.b2", (1, out, 1), "audio", layers),
        *_conv(f"{name}.glu.ext_pw_conv_1d", (2 * out, width, 1), layers),
        *_conv(f"{name}.dw_sep_conv_1d.dw_conv", (deep, 1, kernel), layers),
        *_conv(f"{name}.dw_sep_conv_1d.pw_conv", (separable, deep, 1), layers),
        *_conv(f"{name}.ext_pw_conv_1d", (out, width, 1), layers),
    ]
