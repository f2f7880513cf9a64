"""Granite MoE. Parameter counts are those of transformers 5.24.0 for the same configs."""

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
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 40}
GRANITE = {"model_type": "granitemoe", **SIZES, **EXPERTS, "attention_bias": True}
SHARED = {"model_type": "granitemoeshared", **SIZES, **EXPERTS, "shared_intermediate_size": 24}
WINDOWS = {"model_type": "granitemoe_swa", **SIZES, **EXPERTS, "shared_intermediate_size": 24, "sliding_window": 16}


def read(config):
    return read_architecture(config, class_defaults)


def parameters(config):
    return read(config).parameters


@pytest.mark.parametrize(
    ("config", "total", "active", "later"),
    [(GRANITE, 187_200, 125_760, 512), (SHARED, 204_864, 143_424, 512), (WINDOWS, 204_880, 143_440, 128)],
)
def test_parameters_and_cache(config, total, active, later):
    architecture = read(config)
    assert (architecture.parameters, architecture.active_parameters) == (total, active)
    assert architecture.kv_bytes_per_token(at=1) == 512
    assert architecture.kv_bytes_per_token() == later


def test_no_shared_width_is_no_shared_mlp():
    assert parameters({**SHARED, "shared_intermediate_size": 0}) == parameters({**GRANITE, "attention_bias": False})


def test_impossible_width():
    with pytest.raises(ConfigError):
        read({**SHARED, "shared_intermediate_size": -1})
