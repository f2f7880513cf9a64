"""Gemma 3 with images, PaliGemma and ShieldGemma 2."""

import copy

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

GEMMA3 = {
    "model_type": "gemma3",
    "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 7,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 100,
        "sliding_window": 16,
    },
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 32,
        "image_size": 56,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "patch_size": 14,
        "vision_use_head": False,
    },
}

PALIGEMMA = {
    "model_type": "paligemma",
    "architectures": ["PaliGemmaForConditionalGeneration"],
    "projection_dim": 24,
    "text_config": {
        "model_type": "gemma",
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "vocab_size": 100,
    },
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 32,
        "image_size": 56,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "patch_size": 14,
        "vision_use_head": False,
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
        (GEMMA3, {}, 74_728),
        (
            GEMMA3,
            {"vision_config__vision_use_head": None, "text_config__head_dim": None, "tie_word_embeddings": False},
            588_040,
        ),
        (GEMMA3, {"vision_config": None}, 92_942_920),
        (GEMMA3, {"model_type": "shieldgemma2", "architectures": None}, 74_728),
        (PALIGEMMA, {}, 52_192),
        (PALIGEMMA, {"text_config": None, "projection_dim": None}, 2_508_633_728),
    ],
)
def test_parameters(base, changes, parameters):
    assert read(base, **changes).parameters == parameters


def test_whole():
    whole = read(GEMMA3)
    assert whole.model_type == "gemma3"
    assert whole.name == "Gemma3ForConditionalGeneration"
    assert whole.kv_bytes_per_token(at=1) == 448
    assert whole.kv_bytes_per_token() == 64
    names = {tensor.name for tensor in whole.tensors}
    assert "language_model.model.embed_tokens.weight" in names
    assert "vision_tower.vision_model.encoder.layers.*.self_attn.out_proj.bias" in names
    assert "multi_modal_projector.mm_input_projection_weight" in names


def test_other_spelling():
    pattern = read(GEMMA3, text_config__sliding_window_pattern=3)
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 2 + ["sliding_attention"]
    assert pattern.caches == read(GEMMA3, text_config__layer_types=kinds).caches


def test_refused():
    with pytest.raises(UnsupportedArchitectureError):
        read(GEMMA3, vision_config__model_type="vit")
    with pytest.raises(ConfigError):
        read(GEMMA3, vision_config__num_attention_heads=5)
    with pytest.raises(ConfigError):
        read(GEMMA3, vision_config__patch_size=57)
