"""Llama 4."""

import copy

import pytest

from kvtax.architectures.cache import ChunkedLocal, FullAttention
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

TEXT = {
    "model_type": "llama4_text",
    "hidden_size": 24,
    "intermediate_size": 16,
    "intermediate_size_mlp": 40,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 100,
    "num_local_experts": 4,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 2,
    "no_rope_layers": [],
    "attention_chunk_size": 16,
    "architectures": ["Llama4ForCausalLM"],
}

WHOLE = {
    "model_type": "llama4",
    "architectures": ["Llama4ForConditionalGeneration"],
    "text_config": {
        "model_type": "llama4_text",
        "hidden_size": 24,
        "intermediate_size": 16,
        "intermediate_size_mlp": 40,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 100,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "no_rope_layers": [],
        "attention_chunk_size": 16,
    },
    "vision_config": {
        "model_type": "llama4_vision_model",
        "hidden_size": 32,
        "image_size": 56,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_channels": 3,
        "num_hidden_layers": 2,
        "patch_size": 14,
        "pixel_shuffle_ratio": 0.5,
        "projector_input_dim": 20,
        "projector_output_dim": 28,
        "vision_output_dim": 28,
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
        (TEXT, {}, 36_936),
        (TEXT, {"moe_layers": [0, 3], "attention_bias": True}, 37_376),
        (WHOLE, {}, 76_280),
        # the outer key does not tie the head of the text model inside
        (WHOLE, {"tie_word_embeddings": True}, 76_280),
    ],
)
def test_parameters(base, changes, parameters):
    assert read(base, **changes).parameters == parameters


def test_caches():
    local, whole = ChunkedLocal(2, 8, 8, 16), FullAttention(2, 8, 8)
    assert read(TEXT).caches == (local, local, local, whole, local)
    assert read(TEXT, no_rope_layer_interval=2).caches == (local, whole, local, whole, local)
    assert read(TEXT, no_rope_layers=[1, 0, 1, 0, 1]).caches == (local, whole, local, whole, local)
    kinds = ["chunked_attention", "full_attention"] * 2 + ["chunked_attention"]
    assert read(TEXT, layer_types=kinds).caches == (local, whole, local, whole, local)


def test_active_parameters():
    routed = 2 * 4 * 3 * 24 * 16
    assert read(TEXT).parameters - read(TEXT).active_parameters == routed * 3 // 4


def test_refused():
    with pytest.raises(UnsupportedArchitectureError):
        read(TEXT, layer_types=["linear_attention"] * 5)
    with pytest.raises(ConfigError):
        read(TEXT, no_rope_layers=[1, 0])
    with pytest.raises(ConfigError):
        read(TEXT, num_experts_per_tok=5)
    with pytest.raises(ConfigError):
        read(TEXT, num_key_value_heads=3)
