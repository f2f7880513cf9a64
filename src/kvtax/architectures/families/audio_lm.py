"""Text models that hear: Audio Flamingo 3, Music Flamingo and Qwen3-ASR."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_HEADS, MAXIMUM_LAYERS, Config
from kvtax.architectures.multimodal import NESTED, text_model
from kvtax.architectures.tensors import Tensor, linear, norm, prefixed
from kvtax.architectures.towers import convolution, encoder_layers, whisper_encoder, with_towers

_TOWER = "model.audio_tower."
_JOIN = "model.multi_modal_projector"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """An audio tower, two linear layers and the text model that the nested config names.

    Source: transformers 5.24.0 models/audioflamingo3/modeling_audioflamingo3.py, models/qwen3_asr/modeling_qwen3_asr.py.
    """
    asr = config.model_type == "qwen3_asr"
    # the Flamingos tie nothing, whatever tie_word_embeddings says
    text = text_model(config if asr else config.retyped(tie_word_embeddings=False), module=prefix + NESTED)
    audio = config.sub("audio_config")
    if asr:
        added = _qwen3(audio.retyped("qwen3_asr_encoder"))
    else:
        bias = config.boolean("projector_bias", default=True)
        audio = audio.retyped("audioflamingo3_encoder")
        added = [
            *whisper_encoder(audio, _TOWER),
            *_projector(audio.integer("hidden_size"), text.hidden_size, text.hidden_size, bias=bias),
        ]
    return with_towers(config, text, prefixed(added, prefix))


def _projector(width: int, inner: int, out_width: int, *, bias: bool) -> list[Tensor]:
    """Two linear layers."""
    return [
        *linear(f"{_JOIN}.linear_1", inner, width, "audio", bias=bias),
        *linear(f"{_JOIN}.linear_2", out_width, inner, "audio", bias=bias),
    ]


def _qwen3(config: Config) -> list[Tensor]:
    """Three convolutions over time and frequency, Whisper's layers with biases everywhere, a norm.

    Source: transformers 5.24.0 models/qwen3_asr/modeling_qwen3_asr.py.
    """
    width, heads = config.integer("d_model"), config.integer("encoder_attention_heads", maximum=MAXIMUM_HEADS)
    if width % heads:
        config.fail("encoder_attention_heads", f"{heads} does not divide d_model {width}")
    channels, mel = config.integer("downsample_hidden_size"), config.integer("num_mel_bins")
    for _ in range(3):
        mel = (mel + 1) // 2
    return [
        *encoder_layers(
            f"{_TOWER}layers", config.integer("encoder_layers", maximum=MAXIMUM_LAYERS), width, heads,
            config.integer("encoder_ffn_dim"), component="audio", mlp_names=("fc1", "fc2"),
            norm_names=("self_attn_layer_norm", "final_layer_norm"),
        ),
        *norm(f"{_TOWER}ln_post", width, bias=True, component="audio"),
        *convolution(f"{_TOWER}conv2d1", channels, 1, 3, 3, component="audio"),
        *convolution(f"{_TOWER}conv2d2", channels, channels, 3, 3, component="audio"),
        *convolution(f"{_TOWER}conv2d3", channels, channels, 3, 3, component="audio"),
        *linear(f"{_TOWER}conv_out", width, channels * mel, "audio"),
        *_projector(width, width, config.integer("output_dim"), bias=True),
    ]  # fmt: skip
