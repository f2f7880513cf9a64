"""Gemma 3n."""

import copy

import pytest

from kvtax.architectures.cache import Shared
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

TEXT = {
    "model_type": "gemma3n_text",
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 100,
    "vocab_size_per_layer_input": 80,
    "hidden_size_per_layer_input": 12,
    "num_kv_shared_layers": 1,
    "laurel_rank": 4,
    "altup_num_inputs": 4,
    "sliding_window": 16,
    "activation_sparsity_pattern": None,
    "layer_types": [
        "sliding_attention",
        "full_attention",
        "sliding_attention",
        "full_attention",
        "sliding_attention",
        "full_attention",
    ],
    "architectures": ["Gemma3nForCausalLM"],
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
        ({}, 50_620),
        ({"num_kv_shared_layers": 3, "altup_num_inputs": 2, "intermediate_size": [40, 40, 16, 40, 16, 40]}, 42_612),
    ],
)
def test_parameters(changes, parameters):
    assert read(TEXT, **changes).parameters == parameters


def test_published_checkpoints():
    # elements that the safetensors files of E4B and E2B hold, keys and values of sharing layers and both towers in
    assert read({"model_type": "gemma3n"}).checkpoint_parameters == 7_849_978_192
    small = {"num_hidden_layers": 30, "intermediate_size": 8192, "num_kv_shared_layers": 10}
    assert read({"model_type": "gemma3n", "text_config": small}).checkpoint_parameters == 5_439_438_272


def test_shared_caches():
    default = read({"model_type": "gemma3n_text"})
    assert default.kv_bytes_per_token(at=1) == 20 * 2 * 2 * 256 * 2
    assert default.kv_bytes_per_token() == 4 * 2 * 2 * 256 * 2
    assert default.caches[20] == Shared(18)
    assert default.caches[24] == Shared(19)


def test_refused():
    with pytest.raises(ConfigError):
        read(TEXT, num_kv_shared_layers=6)
    with pytest.raises(ConfigError):
        read(TEXT, layer_types=["sliding_attention"] * 5 + ["full_attention"])
    with pytest.raises(ConfigError):
        read(TEXT, intermediate_size=[40, 40])
    with pytest.raises(ConfigError):
        read({"model_type": "gemma3n", "audio_config": {"sscp_conv_kernel_size": [3, 3]}})
    with pytest.raises(UnsupportedArchitectureError):
        read({"model_type": "gemma3n", "vision_config": {"architecture": "resnet50"}})
