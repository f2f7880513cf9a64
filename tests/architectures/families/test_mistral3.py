"""Mistral 3, and Pixtral as a LLaVA."""

import copy

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

WHOLE = {
    "model_type": "mistral3",
    "architectures": ["Mistral3ForConditionalGeneration"],
    "tie_word_embeddings": False,
    "spatial_merge_size": 2,
    "text_config": {
        "model_type": "mistral",
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 40,
        "vocab_size": 100,
        "head_dim": 8,
        "sliding_window": None,
    },
    "vision_config": {
        "model_type": "pixtral",
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "head_dim": 8,
        "intermediate_size": 48,
        "patch_size": 14,
        "image_size": 56,
        "num_channels": 3,
        "hidden_act": "silu",
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
        ({}, 62_376),
        ({"text_config__model_type": "ministral3"}, 62_376),
        ({"vision_feature_layer": [-1, -2], "multimodal_projector_bias": True, "spatial_merge_size": 1}, 60_120),
    ],
)
def test_parameters(changes, parameters):
    assert read(WHOLE, **changes).parameters == parameters


def test_head():
    untied, tied = 62_376, 62_376 - 100 * 24
    assert read(WHOLE, tie_word_embeddings=True).parameters == tied
    assert read(WHOLE, tie_word_embeddings=None, text_config__tie_word_embeddings=True).parameters == tied
    # files that say nothing hold a head
    assert read(WHOLE, tie_word_embeddings=None).parameters == untied


def test_names():
    names = {tensor.name for tensor in read(WHOLE).tensors}
    assert "vision_tower.transformer.layers.*.feed_forward.gate_proj.weight" in names
    assert "multi_modal_projector.patch_merger.merging_layer.weight" in names
    assert "language_model.lm_head.weight" in names


def test_refused():
    with pytest.raises(ConfigError):
        read(WHOLE, vision_feature_layer=[])
    with pytest.raises(ConfigError):
        read(WHOLE, vision_feature_layer="last")
    with pytest.raises(UnsupportedArchitectureError):
        read(WHOLE, vision_config__model_type="vit")
