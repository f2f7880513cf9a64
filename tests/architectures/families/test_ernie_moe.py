"""ERNIE 4.5 MoE. Parameter counts are those of transformers 5.24.0 for the same configs."""

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
ERNIE = {
    "model_type": "ernie4_5_moe", **SIZES, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 24,
    "intermediate_size": 96, "moe_layer_interval": 2, "moe_num_shared_experts": 1, "use_bias": True,
}  # fmt: skip


def read(config):
    return read_architecture(config, class_defaults)


def parameters(config):
    return read(config).parameters


def test_parameters_and_cache():
    architecture = read(ERNIE)
    assert architecture.parameters == 141_196
    assert architecture.active_parameters == 122_764
    assert architecture.kv_bytes_per_token() == 512


def test_an_end_index_of_minus_one_is_the_last_layer():
    assert parameters({**ERNIE, "moe_layer_end_index": 3}) == parameters({**ERNIE, "moe_layer_end_index": -1})
    assert parameters({**ERNIE, "moe_layer_end_index": 2}) < parameters(ERNIE)


def test_other_spellings():
    renamed = {"num_experts": 4, "num_experts_per_tok": 2}
    config = {key: value for key, value in ERNIE.items() if key not in ("moe_num_experts", "moe_k")} | renamed
    assert parameters(config) == parameters(ERNIE)


def test_the_mtp_layer_is_a_dense_one_that_is_not_loaded():
    with_mtp = read({**ERNIE, "use_bias": False, "num_nextn_predict_layers": 1})
    without = read({**ERNIE, "use_bias": False})
    assert with_mtp.parameters == without.parameters
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96 + 2 * 64
    assert with_mtp.checkpoint_parameters - without.checkpoint_parameters == layer + 2 * 64 + 2 * 64 * 64


@pytest.mark.parametrize("change", [{"moe_layer_interval": 0}, {"moe_k": 5}, {"moe_layer_end_index": -2}])
def test_impossible_values(change):
    with pytest.raises(ConfigError):
        read({**ERNIE, **change})
