"""Whisper: an encoder of audio and a decoder of text that attends to it."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_POSITIONS, Config, describe
from kvtax.architectures.families.bart import encoder_decoder, layers_of
from kvtax.architectures.tensors import Tensor, embedding, lm_head, norm
from kvtax.architectures.towers import whisper_encoder


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Pre-norm layers whose keys have no bias; the cross-attention holds max_source_positions frames of every request.

    Source: transformers 5.24.0 models/whisper/modeling_whisper.py.
    """
    name = config.architecture
    if name and not name.endswith(("ForConditionalGeneration", "WhisperModel")):
        config.unsupported("architectures", f"the class {describe(name)} is not understood")
    width, vocab_size = config.integer("d_model"), config.integer("vocab_size")
    positions = config.integer("max_target_positions", maximum=MAXIMUM_POSITIONS)
    tensors = [
        *whisper_encoder(config, "model.encoder."),
        *embedding(vocab_size, width, name="model.decoder.embed_tokens"),
        Tensor("model.decoder.embed_positions.weight", (positions, width), "embedding"),
        *layers_of(config, "model.decoder", "decoder", key_bias=False),
        *norm("model.decoder.layer_norm", width, bias=True),
    ]
    if not name.endswith("WhisperModel"):
        tensors += lm_head(vocab_size, width, config.boolean("tie_word_embeddings", default=True), name="proj_out")
    return encoder_decoder(config, prefix, tensors, config.integer("max_source_positions"), positions)
