"""Whisper: an encoder of audio and a decoder of text that attends to it."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CrossAttention, FullAttention
from kvtax.architectures.config import MAXIMUM_LAYERS, MAXIMUM_POSITIONS, Config, describe
from kvtax.architectures.families.bart import heads_of, layers_of
from kvtax.architectures.families.t5 import paired
from kvtax.architectures.tensors import Tensor, embedding, lm_head, norm
from kvtax.architectures.towers import whisper_encoder


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Pre-norm layers whose keys have no bias; the cross-attention holds max_source_positions frames of every request.

    Source: transformers 5.24.0 models/whisper/modeling_whisper.py.
    """
    name = config.architecture
    if name and not name.endswith(("ForConditionalGeneration", "WhisperModel")):
        config.unsupported("architectures", f"the class {describe(name)} is not understood")
    width, heads, vocab_size = config.integer("d_model"), heads_of(config, "decoder"), config.integer("vocab_size")
    layers = config.integer("decoder_layers", maximum=MAXIMUM_LAYERS)
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
    head_dim = width // heads
    source = CrossAttention(heads, head_dim, head_dim, config.integer("max_source_positions"))
    caches, cache_layers = paired(FullAttention(heads, head_dim, head_dim), source, layers)
    return Architecture(
        model_type=config.model_type,
        name=name or config.model_type,
        tensors=[tensor._replace(name=prefix + tensor.name) for tensor in tensors],
        caches=caches,
        cache_layers=cache_layers,
        num_hidden_layers=layers,
        hidden_size=width,
        vocab_size=vocab_size,
        intermediate_size=max(config.integer("encoder_ffn_dim"), config.integer("decoder_ffn_dim")),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=head_dim,
        max_position_embeddings=positions,
        dtype=config.dtype() or "bfloat16",
        dtype_stated=bool(config.dtype()),
        kind="encoder-decoder",
        defaults_used=config.defaults_used,
    )
