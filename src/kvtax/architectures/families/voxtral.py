"""Voxtral: Whisper's encoder, a projector over four frames at once, and a Llama text model."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.tensors import linear
from kvtax.architectures.towers import build_text, whisper_encoder, with_towers


def build(config: Config, *, prefix: str = "") -> Architecture:
    """An audio tower, two linear layers without bias and a text model whose lm_head is never the embedding.

    Source: transformers 5.24.0 models/voxtral/modeling_voxtral.py.
    """
    audio = config.sub("audio_config")
    if audio.model_type != "voxtral_encoder":
        audio.unsupported("model_type", "only Voxtral's own encoder is understood")
    text = build_text(config, prefix=f"{prefix}language_model.", tied=False)
    name = f"{prefix}multi_modal_projector"
    # frames are stacked until they are as wide as the encoder's MLP
    added = [
        *linear(f"{name}.linear_1", text.hidden_size, audio.integer("intermediate_size"), "audio"),
        *linear(f"{name}.linear_2", text.hidden_size, text.hidden_size, "audio"),
    ]
    return with_towers(config, text, [*whisper_encoder(audio, f"{prefix}audio_tower."), *added])
