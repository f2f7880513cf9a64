"""Whisper."""

import copy

import pytest

from kvtax.architectures.cache import CrossAttention, FullAttention
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

WHISPER = {
    "model_type": "whisper",
    "architectures": ["WhisperForConditionalGeneration"],
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 36,
    "vocab_size": 100,
    "num_mel_bins": 20,
    "max_source_positions": 30,
    "max_target_positions": 12,
}


def read(base, **changes):
    """The architecture of a config, with `text_config__head_dim=4` for a nested key and None for a key that is left out."""
    config = copy.deepcopy(base)
    for path, value in changes.items():
        *levels, key = path.split("__")
        level = config
        for name in levels:
            level = level[name]
        if value is None:
            level.pop(key, None)
        else:
            level[key] = value
    return read_architecture(config, class_defaults)


def test_parameters():
    # as transformers 5.24.0 counts
    assert read(WHISPER).parameters == 35_684
    assert read(WHISPER, tie_word_embeddings=False).parameters == 35_684 + 100 * 24


def test_caches():
    whole = read(WHISPER)
    assert whole.caches == (FullAttention(4, 6, 6), CrossAttention(4, 6, 6, 30)) * 3
    assert whole.max_position_embeddings == 12
    assert whole.cross_attention_bytes() == 3 * 30 * 2 * 24 * 2


def test_refused():
    with pytest.raises(UnsupportedArchitectureError):
        read(WHISPER, architectures=["WhisperForAudioClassification"])
    with pytest.raises(ConfigError):
        read(WHISPER, encoder_attention_heads=5)
