"""MiMo-V2-Flash. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

SIZES = {
    "num_hidden_layers": 7,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
MIMO = {
    "model_type": "mimo_v2_flash", **SIZES, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "intermediate_size": 96,
    "head_dim": 24, "v_head_dim": 16, "sliding_window_size": 16,
}  # fmt: skip


def read(config):
    return read_architecture(config, class_defaults)


def parameters(config):
    return read(config).parameters


def test_parameters_and_cache():
    architecture = read(MIMO)
    assert architecture.parameters == 277_460
    assert architecture.active_parameters == 222_164
    assert architecture.kv_bytes_per_token(at=1) == 5 * 4 * 40 * 2 + 2 * 2 * 40 * 2
    assert architecture.kv_bytes_per_token() == 2 * 2 * 40 * 2
    assert architecture.kv_bytes(100) == 320 * 100 + 1600 * 17


@pytest.mark.parametrize(
    "change",
    [
        {"hybrid_layer_pattern": [0, 1, 1, 1, 1, 0, 1], "moe_layer_freq": [0, 1, 1, 1, 1, 1, 1]},
        {"layer_types": ["full_attention", *["sliding_attention"] * 4, "full_attention", "sliding_attention"]},
        {"swa_num_key_value_heads": 4, "swa_head_dim": 24, "swa_v_head_dim": 16, "add_swa_attention_sink_bias": True},
        {"hybrid_layer_pattern": [0, 1, 1, 1, 1, 0, 1, 1, 1], "sliding_window": 128},
    ],
)
def test_other_spellings(change):
    assert parameters({**MIMO, **change}) == 277_460
    assert read({**MIMO, **change}).caches == read(MIMO).caches


def test_sliding_window_counts_where_the_older_key_is_left_out():
    config = {key: value for key, value in MIMO.items() if key != "sliding_window_size"}
    assert read({**config, "sliding_window": 17}).caches == read(MIMO).caches


def test_unknown_layer_type():
    with pytest.raises(UnsupportedArchitectureError):
        read({**MIMO, "layer_types": ["chunked_attention"] * 7})


@pytest.mark.parametrize("change", [{"moe_layer_freq": [1]}, {"hybrid_layer_pattern": [2] * 7}])
def test_impossible_values(change):
    with pytest.raises(ConfigError):
        read({**MIMO, **change})
