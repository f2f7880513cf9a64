"""AFMoE. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError
from kvtax.sources.class_defaults import class_defaults

SIZES = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
AFMOE = {
    "model_type": "afmoe", **SIZES, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "intermediate_size": 96,
    "num_shared_experts": 1, "head_dim": 24, "sliding_window": 16,
}  # fmt: skip


def read(config):
    return read_architecture(config, class_defaults)


def parameters(config):
    return read(config).parameters


def test_parameters_and_cache():
    architecture = read(AFMOE)
    assert architecture.parameters == 200_716
    assert architecture.active_parameters == 173_068
    assert architecture.kv_bytes_per_token(at=1) == 768
    assert architecture.kv_bytes_per_token() == 192


def test_every_fourth_layer_is_full():
    stated = {**AFMOE, "layer_types": [*["sliding_attention"] * 3, "full_attention"]}
    assert read(stated).caches == read(AFMOE).caches
    assert read({**AFMOE, "global_attn_every_n_layers": 2}).kv_bytes_per_token() == 384


def test_dense_first_layers():
    expert, shared = 3 * 64 * 24, 3 * 64 * 24
    difference = 4 * expert + shared + 4 * 64 + 4 - 3 * 64 * 96
    assert parameters({**AFMOE, "num_dense_layers": 2}) == 200_716 - difference


def test_impossible_pattern():
    with pytest.raises(ConfigError):
        read({**AFMOE, "global_attn_every_n_layers": 0})
