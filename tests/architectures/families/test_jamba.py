"""Jamba. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import FullAttention, Recurrent
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError
from kvtax.sources.class_defaults import class_defaults

BASE = {
    "model_type": "jamba", "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 6,
    "vocab_size": 60, "intermediate_size": 24, "attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 4,
    "mamba_d_conv": 3,
}  # fmt: skip


def read(config, **changes):
    return read_architecture({**config, **changes}, class_defaults)


def test_parameters_and_caches():
    architecture = read(BASE)
    assert architecture.parameters == 84_904
    assert architecture.active_parameters == 71_080
    kinds = [Recurrent, FullAttention, Recurrent] * 2
    assert [type(cache) for cache in architecture.caches] == kinds
    assert architecture.kv_bytes_per_token() == 2 * 2 * (8 + 8) * 2
    assert architecture.state_bytes() == 4 * (64 * 2 * 2 + 64 * 16 * 4)


def test_one_expert_is_no_expert():
    architecture = read(BASE, num_experts=1)
    assert "router" not in architecture.component_parameters()
    assert read(BASE, num_local_experts=4).parameters == read(BASE).parameters


def test_what_is_impossible():
    with pytest.raises(ConfigError, match="attn_layer_offset"):
        read(BASE, attn_layer_offset=3)
    with pytest.raises(ConfigError, match="attn_layer_period"):
        read(BASE, attn_layer_period=0)
