"""Llama 3.2 Vision."""

import copy

import pytest

from kvtax.architectures.cache import CrossAttention, FullAttention
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

WHOLE = {
    "model_type": "mllama",
    "architectures": ["MllamaForConditionalGeneration"],
    "text_config": {
        "model_type": "mllama_text_model",
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 100,
        "cross_attention_layers": [1, 3],
    },
    "vision_config": {
        "model_type": "mllama_vision_model",
        "hidden_size": 32,
        "image_size": 56,
        "intermediate_size": 64,
        "attention_heads": 4,
        "num_hidden_layers": 2,
        "num_global_layers": 1,
        "patch_size": 14,
        "max_num_tiles": 4,
        "vision_output_dim": 96,
        "intermediate_layers_indices": [0, 1],
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
        ({}, 97_313),
        # the head is never the embedding
        ({"tie_word_embeddings": True}, 97_313),
        (
            {
                "text_config__cross_attention_layers": None,
                "text_config__num_hidden_layers": 9,
                "vision_config__supported_aspect_ratios": [[1, 1], [1, 2]],
            },
            101_345,
        ),
    ],
)
def test_parameters(changes, parameters):
    assert read(WHOLE, **changes).parameters == parameters


def test_caches():
    own, image = FullAttention(2, 6, 6), CrossAttention(2, 6, 6, 4 * 17)
    whole = read(WHOLE)
    assert whole.caches == (own, image, own, image, own)
    assert whole.kv_bytes_per_token() == 3 * 2 * 2 * 6 * 2
    assert whole.cross_attention_bytes() == 2 * 68 * 2 * 2 * 6 * 2
    assert whole.cross_attention_bytes(17) == 2 * 17 * 2 * 2 * 6 * 2


def test_other_spelling():
    other = read(WHOLE, vision_config__attention_heads=None, vision_config__num_attention_heads=4)
    assert other.tensors == read(WHOLE).tensors


def test_refused():
    with pytest.raises(ConfigError):
        read(WHOLE, text_config__cross_attention_layers="all")
    with pytest.raises(ConfigError):
        read(WHOLE, text_config__num_attention_heads=7)
    with pytest.raises(UnsupportedArchitectureError):
        read(WHOLE, model_type="mllama_audio")
