"""OLMoE and FlexOlmo. Parameter counts are those of transformers 5.24.0 for the same configs."""

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
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 40, "head_dim": 24}
OLMOE = {"model_type": "olmoe", **SIZES, **EXPERTS, "attention_bias": True}
FLEX = {"model_type": "flex_olmo", **SIZES, **EXPERTS}


def read(config):
    return read_architecture(config, class_defaults)


def parameters(config):
    return read(config).parameters


@pytest.mark.parametrize(("config", "total", "active"), [(OLMOE, 212_416, 150_976), (FLEX, 211_584, 150_144)])
def test_parameters_and_cache(config, total, active):
    architecture = read(config)
    assert (architecture.parameters, architecture.active_parameters) == (total, active)
    assert architecture.kv_bytes_per_token() == 4 * 2 * 2 * 24 * 2


def test_key_value_heads_left_out_are_as_many_as_query_heads():
    config = {key: value for key, value in FLEX.items() if key != "num_key_value_heads"}
    assert parameters(config) == parameters({**FLEX, "num_key_value_heads": 4})


def test_impossible_heads():
    with pytest.raises(ConfigError):
        read({**FLEX, "num_key_value_heads": 3})
