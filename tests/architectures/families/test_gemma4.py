"""Gemma 4, with and without towers, and Gemma 4 without an encoder."""

import copy

import pytest

from kvtax.architectures.cache import FullAttention, Shared, SlidingWindow
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

TEXT = {
    "model_type": "gemma4_text",
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "global_head_dim": 16,
    "vocab_size": 100,
    "vocab_size_per_layer_input": 80,
    "hidden_size_per_layer_input": 12,
    "num_kv_shared_layers": 0,
    "sliding_window": 16,
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 12,
    "architectures": ["Gemma4ForCausalLM"],
}

WHOLE = {
    "model_type": "gemma4",
    "architectures": ["Gemma4ForConditionalGeneration"],
    "text_config": {
        "model_type": "gemma4_text",
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "global_head_dim": 16,
        "vocab_size": 100,
        "vocab_size_per_layer_input": 80,
        "hidden_size_per_layer_input": 12,
        "num_kv_shared_layers": 0,
        "sliding_window": 16,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 12,
    },
    "vision_config": {
        "model_type": "gemma4_vision",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 8,
        "patch_size": 4,
        "position_embedding_size": 20,
        "standardize": False,
        "use_clipped_linears": True,
    },
    "audio_config": {
        "model_type": "gemma4_audio",
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "output_proj_dims": 20,
    },
}

UNIFIED = {
    "model_type": "gemma4_unified",
    "architectures": ["Gemma4UnifiedForConditionalGeneration"],
    "text_config": {
        "model_type": "gemma4_unified_text",
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "global_head_dim": 16,
        "vocab_size": 100,
        "num_kv_shared_layers": 0,
        "sliding_window": 16,
    },
    "vision_config": {
        "mm_embed_dim": 32,
        "mm_posemb_size": 20,
        "output_proj_dims": 32,
        "patch_size": 4,
        "pooling_kernel_size": 2,
    },
    "audio_config": {"audio_embed_dim": 12},
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


ALTERNATING = ["sliding_attention", "full_attention"] * 3
MANY = {
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
    "enable_moe_block": True,
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
    "layer_types": ALTERNATING,
}


# parameter counts are those of transformers 5.24.0 for the same configs
@pytest.mark.parametrize(
    ("base", "changes", "parameters"),
    [
        (TEXT, {}, 47_620),
        (TEXT, MANY, 75_300),
        (WHOLE, {}, 191_048),
        (WHOLE, {"vision_config": None, "audio_config": None}, 47_620),
        (UNIFIED, {}, 45_544),
    ],
)
def test_parameters(base, changes, parameters):
    assert read(base, **changes).parameters == parameters


def test_geometry_of_layers():
    many = read(TEXT, **MANY)
    assert many.caches == (
        SlidingWindow(2, 8, 8, 16),
        FullAttention(1, 16, 16),
        SlidingWindow(2, 8, 8, 16),
        FullAttention(1, 16, 16),
        Shared(2),
        Shared(3),
    )
    # without attention_k_eq_v the heads of full layers are those of all
    assert read(TEXT, num_global_key_value_heads=1).caches[-1] == FullAttention(2, 16, 16)
    # the last layer is a full one whatever the file says
    assert read(TEXT, layer_types=["sliding_attention"] * 6).caches[-1] == FullAttention(2, 16, 16)


def test_active_parameters():
    moe = read(TEXT, enable_moe_block=True)
    routed = 6 * 4 * 3 * 12 * 24
    assert moe.parameters - moe.active_parameters == routed // 2


def test_other_spellings():
    layers = {str(index): {"head_dim": 16, "num_key_value_heads": 1} for index in (1, 3, 5)}
    changes = {key: value for key, value in MANY.items() if key != "num_global_key_value_heads"}
    saved = read(TEXT, **changes, global_head_dim=None, per_layer_config=layers)
    assert saved.parameters == read(TEXT, **MANY).parameters
    assert saved.caches == read(TEXT, **MANY).caches
    assert read(TEXT, use_bidirectional_attention="all").caches[0] == SlidingWindow(2, 8, 8, 9)


def test_published_checkpoint():
    # elements in the safetensors files of the 12B model
    text = {
        "hidden_size": 3840,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "intermediate_size": 15360,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 1,
    }
    config = {"model_type": "gemma4_unified", "text_config": text, "vision_config": {}, "audio_config": {}}
    assert read(config).checkpoint_parameters == 11_959_730_224


def test_refused():
    with pytest.raises(UnsupportedArchitectureError):
        read(TEXT, layer_types=["linear_attention"] * 6)
    with pytest.raises(UnsupportedArchitectureError):
        read(TEXT, per_layer_config={"0": {"intermediate_size": 7}})
    with pytest.raises(ConfigError):
        read(TEXT, per_layer_config={"6": {"head_dim": 7}})
    with pytest.raises(ConfigError):
        read(TEXT, num_kv_shared_layers=6)
    with pytest.raises(ConfigError):
        read(TEXT, enable_moe_block=True, num_experts=None)
