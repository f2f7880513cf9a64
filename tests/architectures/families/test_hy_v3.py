"""Hunyuan 3. Parameter counts are those of transformers 5.24.0 for the same configs."""

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
HY = {
    "model_type": "hy_v3", **SIZES, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "intermediate_size": 96,
    "head_dim": 24, "mlp_bias": True, "mlp_layer_types": ["sparse", "dense", "sparse", "dense"],
}  # fmt: skip


def read(config):
    return read_architecture(config, class_defaults)


def parameters(config):
    return read(config).parameters


def test_parameters_and_cache():
    architecture = read(HY)
    assert architecture.parameters == 171_488
    assert architecture.active_parameters == 153_056
    assert architecture.kv_bytes_per_token() == 768


def test_the_first_layer_is_dense_where_nothing_is_said():
    stated = {**HY, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}
    assert parameters({**HY, "mlp_layer_types": None}) == parameters(stated)
    assert parameters({**HY, "mlp_layer_types": None, "first_k_dense_replace": 1}) == parameters(stated)


def test_mtp_layers_are_not_loaded():
    with_mtp = read({**HY, "num_nextn_predict_layers": 1})
    assert with_mtp.parameters == 171_488
    assert with_mtp.checkpoint_parameters > read(HY).checkpoint_parameters


def test_unknown_mlp_type():
    with pytest.raises(UnsupportedArchitectureError):
        read({**HY, "mlp_layer_types": ["sparse", "dense", "sparse", "moe"]})


def test_too_few_mlp_types():
    with pytest.raises(ConfigError):
        read({**HY, "mlp_layer_types": ["sparse"]})
