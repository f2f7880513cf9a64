"""Qwen2-Audio: Whisper's encoder, one linear layer, a text model whose lm_head is never the embedding."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.tensors import linear
from kvtax.architectures.towers import build_text, whisper_encoder, with_towers


def build(config: Config, *, prefix: str = "") -> Architecture:
    """An audio tower, a linear layer with bias, a text model.

    Source: transformers 5.24.0 models/qwen2_audio/modeling_qwen2_audio.py.
    """
    text = build_text(config, prefix=f"{prefix}language_model.", tied=False)
    audio = config.sub("audio_config")
    if audio.model_type != "qwen2_audio_encoder":
        audio.unsupported("model_type", "only Qwen2-Audio's own encoder is understood")
    width = audio.integer("d_model", "hidden_size")
    return with_towers(
        config,
        text,
        [
            *whisper_encoder(audio, f"{prefix}audio_tower."),
            *linear(f"{prefix}multi_modal_projector.linear", text.hidden_size, width, "audio", bias=True),
        ],
    )
