"""Voxtral."""

import copy

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

WHOLE = {
    "model_type": "voxtral",
    "architectures": ["VoxtralForConditionalGeneration"],
    "text_config": {
        "model_type": "llama",
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 40,
        "vocab_size": 100,
        "head_dim": 8,
    },
    "audio_config": {
        "model_type": "voxtral_encoder",
        "hidden_size": 16,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_mel_bins": 20,
        "max_source_positions": 30,
    },
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


# parameter counts are those of transformers 5.24.0 for the same configs
@pytest.mark.parametrize(
    ("changes", "parameters"),
    [
        ({}, 31_432),
        ({"tie_word_embeddings": True}, 31_432),
        ({"text_config": None, "audio_config__intermediate_size": None}, 4_039_644_640),
    ],
)
def test_parameters(changes, parameters):
    assert read(WHOLE, **changes).parameters == parameters


def test_other_spelling():
    other = read(
        WHOLE,
        audio_config__hidden_size=None,
        audio_config__d_model=16,
        audio_config__num_hidden_layers=None,
        audio_config__encoder_layers=2,
    )
    assert other.tensors == read(WHOLE).tensors


def test_refused():
    with pytest.raises(UnsupportedArchitectureError):
        read(WHOLE, audio_config__model_type="whisper")
    with pytest.raises(ConfigError):
        read(WHOLE, audio_config__num_attention_heads=3)
