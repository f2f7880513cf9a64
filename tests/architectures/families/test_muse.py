"""Muse Glimmer and Muse Spark."""

import copy

import pytest

from kvtax.architectures.cache import FullAttention, SlidingWindow
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

GLIMMER = {
    "model_type": "muse_glimmer",
    "architectures": ["MuseGlimmerForConditionalGeneration"],
    "out_hidden_size": 128,
    "projector_hidden_size": 28,
    "text_config": {
        "model_type": "muse_glimmer_text",
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 100,
        "sliding_window": 16,
    },
    "vision_config": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "patch_size": 4,
        "pos_emb_height": 5,
        "pos_emb_width": 5,
    },
}

SPARK = {
    "model_type": "muse_spark",
    "out_hidden_size": 128,
    "projector_hidden_size": 28,
    "text_config": {
        "model_type": "muse_spark_text",
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 100,
        "sliding_window": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 12,
        "moe_hidden_size": 20,
    },
    "vision_config": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "patch_size": 4,
        "pos_emb_height": 5,
        "pos_emb_width": 5,
    },
    "audio_config": {
        "hidden_sizes": [4, 8],
        "num_hidden_layers": 2,
        "depths": [1, 2],
        "patch_sizes": [3, 4],
        "out_hidden_size": 24,
        "mlp_ratio": 2.5,
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
    ("base", "changes", "parameters"),
    [
        (GLIMMER, {}, 65_160),
        (GLIMMER["text_config"], {}, 38_712),
        ({"model_type": "muse_glimmer_text"}, {}, 26_509_949_440),
        (SPARK, {}, 73_262),
        (SPARK, {"text_config__mlp_layer_types": ["dense", "sparse"] * 3}, 69_974),
        ({"model_type": "muse_spark_text"}, {}, 818_335_358_976),
    ],
)
def test_parameters(base, changes, parameters):
    assert read(base, **changes).parameters == parameters


def test_caches():
    window, whole = SlidingWindow(2, 8, 8, 16), FullAttention(2, 8, 8)
    assert read(GLIMMER).caches == (window, whole, window, window, window, whole)


def test_refused():
    with pytest.raises(UnsupportedArchitectureError):
        read(GLIMMER, text_config__layer_types=["chunked_attention"] * 6)
    with pytest.raises(UnsupportedArchitectureError):
        read(GLIMMER, vision_config__model_type="vit")
    with pytest.raises(ConfigError):
        read(SPARK, audio_config__depths=[1])
    with pytest.raises(ConfigError):
        read(SPARK, text_config__num_experts_per_tok=5)
