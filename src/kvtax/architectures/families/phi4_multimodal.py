"""Phi-4-multimodal: Phi-3's decoder, a SigLIP tower and a conformer for speech, each with its own projections."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import attention
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, linear, norm
from kvtax.architectures.towers import siglip_vision, with_towers

_EXTEND = "model.embed_tokens_extend"


# key of the repository's audio_processor.config -> key of transformers' audio_config
_SPELLINGS = {
    "attention_dim": "hidden_size",
    "attention_heads": "num_attention_heads",
    "linear_units": "intermediate_size",
    "depthwise_seperable_out_channel": "depthwise_separable_out_channel",
}
_ADAPTED = ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A decoder with fused projections and two towers below its embedding; phi4mm is the repository's own spelling.

    Source: transformers 5.24.0 models/phi4_multimodal/modeling_phi4_multimodal.py; repository file modeling_phi4mm.py.
    """
    from kvtax.architectures.registry import build as build_any

    remote = config.model_type == "phi4mm"
    text = build_any(config.retyped("phi3", keep_defaults=not remote), prefix=prefix)
    vision = config.sub("vision_config").retyped("phi4_multimodal_vision", vision_use_head=True)
    audio = _remote_audio(config) if remote else config.sub("audio_config").retyped("phi4_multimodal_audio")
    extend = f"{prefix}{_EXTEND}"
    added = [
        *_images(vision, f"{extend}.image_embed", text.hidden_size),
        *_conformer(audio, f"{extend}.audio_embed.encoder"),
        *_speech(audio, f"{extend}.audio_embed", text.hidden_size),
    ]
    return with_towers(config, text, [*added, *_adapters(config, text, prefix)] if remote else added)


def _remote_audio(config: Config) -> Config:
    """audio_processor.config in transformers' spelling."""
    stated = config.sub("audio_processor", model_type="phi4mm_audio").sub("config", model_type="phi4mm_audio")
    values = {_SPELLINGS.get(key, key): value for key, value in stated.values.items()}
    convolutions = stated.sub("nemo_conv_settings", model_type="phi4mm_audio")
    bias = stated.sub("relative_attention_bias_args", model_type="phi4mm_audio")
    values["nemo_conv_channels"] = convolutions.integer("conv_channels", default=1024)
    values["bias_max_distance"] = bias.integer("t5_bias_max_distance", default=1000)
    values["bias_symmetric"] = bias.boolean("t5_bias_symmetric")
    return stated.retyped("phi4_multimodal_audio", **values)


def _adapters(config: Config, text: Architecture, prefix: str) -> list[Tensor]:
    """The low-rank adapters for images and speech, which are in the file and which engines load only where asked to."""
    found: list[Tensor] = []
    for kind in ("vision", "speech"):
        rank = config.sub(f"{kind}_lora", model_type="phi4mm_lora").optional_integer("r", maximum=65_536)
        for tensor in text.tensors if rank else ():
            name = tensor.name.removeprefix(f"{prefix}model.layers.*.").removesuffix(".weight")
            if rank and name in _ADAPTED:
                base = tensor.name.removesuffix(".weight")
                shapes = (("lora_A", (rank, tensor.shape[1])), ("lora_B", (tensor.shape[0], rank)))
                found += [
                    Tensor(f"{base}.{half}.{kind}.weight", shape, "other", tensor.layers, loaded=False)
                    for half, shape in shapes
                ]
    return found


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
