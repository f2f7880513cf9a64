"""T5Gemma."""

import copy

import pytest

from kvtax.architectures.cache import CrossAttention, FullAttention, SlidingWindow
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

WHOLE = {
    "model_type": "t5gemma",
    "architectures": ["T5GemmaForConditionalGeneration"],
    "vocab_size": 100,
    "encoder": {
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 100,
        "sliding_window": 16,
    },
    "decoder": {
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 100,
        "sliding_window": 16,
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


def test_parameters():
    # as transformers 5.24.0 counts
    assert read(WHOLE).parameters == 43_584
    assert read(WHOLE, tie_word_embeddings=False).parameters == 43_584 + 100 * 24


def test_caches():
    window, source = SlidingWindow(2, 8, 8, 16), CrossAttention(2, 8, 8, 8192)
    assert read(WHOLE).caches == (window, source, FullAttention(2, 8, 8), source, window, source)
    assert read(WHOLE).cache_layers == (0, 0, 1, 1, 2, 2)


def test_refused():
    with pytest.raises(UnsupportedArchitectureError):
        read(WHOLE, decoder__layer_types=["chunked_attention"] * 3)
    with pytest.raises(ConfigError):
        read(WHOLE, encoder="small")
