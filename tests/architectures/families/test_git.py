"""GIT, and Grok 2 which has its model type."""

import copy

import pytest

from kvtax.architectures.cache import FullAttention
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

GIT = {
    "model_type": "git",
    "architectures": ["GitForCausalLM"],
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 20,
    "vision_config": {
        "hidden_size": 32,
        "image_size": 56,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "patch_size": 14,
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


GROK = {
    "model_type": "git",
    "architectures": ["Grok1ForCausalLM"],
    "hidden_size": 24,
    "intermediate_size": 40,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "residual_moe": True,
    "vocab_size": 100,
}


def test_parameters():
    # as transformers 5.24.0 counts
    assert read(GIT).parameters == 54_236
    assert read(GIT, num_image_with_embedding=3, tie_word_embeddings=True).parameters == 51_932
    assert read(GIT).kv_bytes_per_token() == 3 * 2 * 24 * 2


def test_grok():
    attention, dense, routed = 2 * 24 * 32 + 2 * 24 * 16, 3 * 24 * 40, 4 * 3 * 24 * 16
    layer = attention + dense + routed + 4 * 24 + 4 * 24
    grok = read(GROK)
    assert grok.parameters == 2 * layer + 2 * 100 * 24 + 24
    assert grok.parameters - grok.active_parameters == 2 * routed // 2
    assert grok.caches == (FullAttention(2, 8, 8),) * 2
    assert read(GROK, residual_moe=False).parameters == grok.parameters - 2 * dense


def test_refused():
    with pytest.raises(UnsupportedArchitectureError):
        read(GIT, architectures=["OtherForCausalLM"])
    with pytest.raises(ConfigError):
        read(GIT, num_attention_heads=5)
    with pytest.raises(ConfigError):
        read(GROK, num_experts_per_tok=5)
