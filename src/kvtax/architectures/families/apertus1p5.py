"""Apertus 1.5: Apertus with a head that may leave image and audio tokens out, and tokenizers for images and sound."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config, describe
from kvtax.architectures.families.llama_like import LAYOUTS
from kvtax.architectures.layout import build_layout
from kvtax.architectures.multimodal import NESTED, nested
from kvtax.architectures.tensors import Tensor, norm, prefixed
from kvtax.architectures.towers import convolution, with_towers

_MAXIMUM_CHANNELS = 65_536
_MAXIMUM_BLOCKS = 64
_GROUPS = 32


def build(config: Config, *, prefix: str = "") -> Architecture:
    """The text model by itself, or with the encoders that turn images and sound into tokens, which stay in float32.

    Source: transformers 5.24.0 models/apertus1p5/modeling_apertus1p5.py, models/wavtokenizer/modeling_wavtokenizer.py.
    """
    if config.model_type == "apertus1p5_text":
        return build_text(config, prefix=prefix)
    text = config.sub("text_config").retyped("apertus1p5_text")
    text = text.retyped(tie_word_embeddings=config.boolean("tie_word_embeddings"))
    architecture = nested(build_text(text), prefix + NESTED)
    audio = config.sub("audio_config")
    if audio.model_type != "wavtokenizer_encoder":
        audio.unsupported("model_type", f"audio tokenizer {describe(audio.model_type)} is not understood")
    vision = config.sub("vision_config").retyped("apertus1p5_vision_tokenizer")
    added = [*_image_encoder(vision, "model.vision_tokenizer"), *_audio_encoder(audio, "model.audio_tokenizer")]
    return with_towers(config, architecture, prefixed([t._replace(dtype="float32") for t in added], prefix))


def build_text(config: Config, *, prefix: str = "") -> Architecture:
    """Apertus; with output_vocab_size the head has that many rows.

    Source: transformers 5.24.0 models/apertus1p5/modeling_apertus1p5.py.
    """
    layer = "model.layers.*"

    def parameters_of_the_activation(shape: Any) -> list[Tensor]:
        if config.string("hidden_act") != "xielu":
            return []
        return [
            *(Tensor(f"{layer}.mlp.act_fn.{name}", (1,), "mlp", shape.layers) for name in ("alpha_p", "alpha_n")),
            *(
                Tensor(f"{layer}.mlp.act_fn.{name}", (), "mlp", shape.layers, parameter=False)
                for name in ("beta", "eps")
            ),
        ]

    architecture = build_layout(config, LAYOUTS["apertus"], prefix=prefix, extra=parameters_of_the_activation)
    rows = config.optional_integer("output_vocab_size", maximum=architecture.vocab_size)
    if rows is None or rows == architecture.vocab_size:
        return architecture
    if config.tie_word_embeddings():
        config.unsupported(
            "output_vocab_size", "a head of other rows than the embedding that it is tied to is not understood"
        )
    name = f"{prefix}lm_head.weight"
    return architecture.replace(
        tensors=[t._replace(shape=(rows, t.shape[1])) if t.name == name else t for t in architecture.tensors]
    )


def _image_encoder(config: Config, prefix: str) -> list[Tensor]:
    """Stages of residual blocks, some with attention, that halve the image; a middle, and a codebook.

    Source: transformers 5.24.0 models/apertus1p5/modeling_apertus1p5.py.
    """
    base = config.integer("base_channels", maximum=_MAXIMUM_CHANNELS)
    multipliers = config.integers("channel_multiplier", minimum=1, maximum=1024) or []
    if not 1 <= len(multipliers) <= 32 or base % _GROUPS:
        config.fail("channel_multiplier", f"must be 1 to 32 numbers, and base_channels {base} a multiple of {_GROUPS}")
    resolutions = config.integers("attn_resolutions") or []
    blocks = config.integer("num_res_blocks", minimum=0, maximum=_MAXIMUM_BLOCKS)
    resolution, latent = config.integer("resolution"), config.integer("latent_channels", maximum=_MAXIMUM_CHANNELS)
    model, width = f"{prefix}.encoder", base
    found = convolution(f"{model}.conv_in", base, config.integer("in_channels", maximum=_MAXIMUM_CHANNELS), 3, 3)
    for stage, multiplier in enumerate(multipliers):
        wide = base * multiplier
        for block in range(blocks):
            name = f"{model}.stages.{stage}.layers.{block}"
            found += _residual(f"{name}.resnet", width, wide)
            if resolution // 2**stage in resolutions:
                found += _pixel_attention(f"{name}.attention", wide)
            width = wide
        if stage + 1 < len(multipliers):
            found += convolution(f"{model}.stages.{stage}.downsample.conv", wide, wide, 3, 3)
        width = wide
    code = config.integer("embed_dim", maximum=_MAXIMUM_CHANNELS)
    return [
        *found,
        *_residual(f"{model}.mid.block_1", width, width),
        *_pixel_attention(f"{model}.mid.attn_1", width),
        *_residual(f"{model}.mid.block_2", width, width),
        *norm(f"{model}.norm_out", width, bias=True, component="vision"),
        *convolution(f"{model}.conv_out", latent, width, 3, 3),
        Tensor(f"{prefix}.quantize.embedding.weight", (config.integer("codebook_size"), code), "vision"),
        *convolution(f"{prefix}.quant_conv", code, latent, 1, 1),
    ]


def _residual(name: str, width: int, wide: int) -> list[Tensor]:
    """Two norms and convolutions, and a third convolution beside them where the width changes."""
    return [
        *norm(f"{name}.norm1", width, bias=True, component="vision"),
        *convolution(f"{name}.conv1", wide, width, 3, 3),
        *norm(f"{name}.norm2", wide, bias=True, component="vision"),
        *convolution(f"{name}.conv2", wide, wide, 3, 3),
        *(convolution(f"{name}.nin_shortcut", wide, width, 1, 1) if width != wide else []),
    ]


def _pixel_attention(name: str, width: int) -> list[Tensor]:
    """A norm and four convolutions of one pixel."""
    found = norm(f"{name}.norm", width, bias=True, component="vision")
    for part in ("q", "k", "v", "proj_out"):
        found += convolution(f"{name}.{part}", width, width, 1, 1)
    return found


def _audio_encoder(config: Config, prefix: str) -> list[Tensor]:
    """Convolutions with residual blocks that shorten the wave, an LSTM, and a codebook of buffers.

    Source: transformers 5.24.0 models/wavtokenizer/modeling_wavtokenizer.py.
    """
    kind = config.string("norm_type", default="weight_norm")
    if kind not in ("weight_norm", "time_group_norm"):
        config.unsupported("norm_type", f"norm {describe(kind)} is not understood")
    grouped = kind == "time_group_norm"
    ratios = config.integers("upsampling_ratios", minimum=1, maximum=1024) or []
    blocks = config.integer("num_residual_layers", minimum=0, maximum=_MAXIMUM_BLOCKS)
    if len(ratios) > 16:
        config.fail("upsampling_ratios", f"has {len(ratios)} items, more than any encoder")
    width = config.integer("num_filters", maximum=_MAXIMUM_CHANNELS)
    channels, compress = config.integer("audio_channels", maximum=1024), config.integer("compress", maximum=1024)
    sizes = {
        key: config.integer(key, maximum=1024) for key in ("kernel_size", "residual_kernel_size", "last_kernel_size")
    }
    shortcut, index, model = config.boolean("use_conv_shortcut"), 0, f"{prefix}.encoder.layers"
    found = _wave_convolution(f"{model}.0", width, channels, sizes["kernel_size"], grouped)
    for ratio in reversed(ratios):
        inner = width // compress
        if inner < 1:
            config.fail("compress", f"{compress} leaves no channel of {width}")
        for _ in range(blocks):
            index += 1
            found += _wave_convolution(f"{model}.{index}.block.1", inner, width, sizes["residual_kernel_size"], grouped)
            found += _wave_convolution(f"{model}.{index}.block.3", width, inner, 1, grouped)
            if shortcut:
                found += _wave_convolution(f"{model}.{index}.shortcut", width, width, 1, grouped)
        index += 2
        found += _wave_convolution(f"{model}.{index}", 2 * width, width, 2 * ratio, grouped)
        width *= 2
    hidden, layers = config.integer("hidden_size"), config.integer("num_lstm_layers", maximum=_MAXIMUM_BLOCKS)
    for layer in range(layers):
        name = f"{model}.{index + 1}.lstm"
        for part in ("ih", "hh"):
            found.append(Tensor(f"{name}.weight_{part}_l{layer}", (4 * width, width), "audio"))
            found.append(Tensor(f"{name}.bias_{part}_l{layer}", (4 * width,), "audio"))
    found += _wave_convolution(f"{model}.{index + 3}", hidden, width, sizes["last_kernel_size"], grouped)
    return [*found, *_codebook(config, f"{prefix}.quantizer.codebook")]


def _wave_convolution(name: str, out_channels: int, in_channels: int, kernel: int, grouped: bool) -> list[Tensor]:
    """A convolution followed by a group norm, or one whose weight is kept as length and direction."""
    shape = (out_channels, in_channels, kernel)
    if grouped:
        found = [Tensor(f"{name}.conv.weight", shape, "audio")]
        found += norm(f"{name}.norm", out_channels, bias=True, component="audio")
    else:
        found = [
            Tensor(f"{name}.conv.parametrizations.weight.original0", (out_channels, 1, 1), "audio"),
            Tensor(f"{name}.conv.parametrizations.weight.original1", shape, "audio"),
        ]
    return [*found, Tensor(f"{name}.conv.bias", (out_channels,), "audio")]


def _codebook(config: Config, name: str) -> list[Tensor]:
    """The codebook and its running sums: buffers, no parameters."""
    rows, width = config.integer("codebook_size"), config.integer("codebook_dim")
    shapes = {"inited": (1,), "cluster_size": (rows,), "embed": (rows, width), "embed_avg": (rows, width)}
    return [Tensor(f"{name}.{key}", shape, "audio", parameter=False) for key, shape in shapes.items()]
