"""MiniMax-M3. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

SIZES = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
M3 = {
    "model_type": "minimax_m3_vl_text", **SIZES, "num_local_experts": 4, "num_experts_per_tok": 2,
    "intermediate_size": 24, "dense_intermediate_size": 96, "shared_intermediate_size": 40, "head_dim": 24,
    "index_head_dim": 16, "index_n_heads": 2, "layer_types": ["full_attention", *["minimax_m3_sparse"] * 3],
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
}  # fmt: skip
FLAT = {key: value for key, value in M3.items() if not key.startswith(("index", "layer_types", "mlp_layer"))} | {
    "model_type": "minimax_m3",
    "moe_layer_freq": [0, 1, 1, 1],
    "sparse_attention_config": {
        "use_sparse_attention": True, "sparse_attention_freq": [0, 1, 1, 1], "sparse_index_dim": 16,
        "sparse_num_index_heads": 2,
    },
}  # fmt: skip


def read(config):
    return read_architecture(config, class_defaults)


def parameters(config):
    return read(config).parameters


@pytest.mark.parametrize("config", [M3, FLAT])
def test_parameters_and_cache(config):
    architecture = read(config)
    assert architecture.parameters == 194_144
    assert architecture.active_parameters == 166_496
    assert architecture.kv_bytes_per_token() == 4 * 2 * 48 * 2 + 3 * 16 * 2


def test_index_keys_do_not_follow_the_cache_dtype():
    assert read(M3).kv_bytes_per_token("fp8") == 4 * 2 * 48 + 3 * 16 * 2


def test_no_sparse_attention():
    config = {**FLAT, "sparse_attention_config": {"use_sparse_attention": False, "sparse_attention_freq": [1] * 4}}
    assert read(config).kv_bytes_per_token() == 4 * 2 * 48 * 2


def test_unknown_layer_type():
    with pytest.raises(UnsupportedArchitectureError):
        read({**M3, "layer_types": ["sliding_attention"] * 4})


@pytest.mark.parametrize("change", [{"moe_layer_freq": [1]}, {"sparse_attention_config": 5}])
def test_impossible_values(change):
    with pytest.raises(ConfigError):
        read({**FLAT, **change})
