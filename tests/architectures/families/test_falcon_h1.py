"""Falcon H1. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import FullAttention, Recurrent
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError
from kvtax.sources.class_defaults import class_defaults

BASE = {
    "model_type": "falcon_h1", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 3, "vocab_size": 60, "intermediate_size": 24, "mamba_d_ssm": 48, "mamba_n_heads": 8,
    "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_rms_norm": True, "projectors_bias": True,
}  # fmt: skip


def read(config, **changes):
    return read_architecture({**config, **changes}, class_defaults)


def test_each_layer_keeps_two_caches():
    architecture = read(BASE)
    assert architecture.parameters == 102_376
    assert [type(cache) for cache in architecture.caches] == [FullAttention, Recurrent] * 3
    assert architecture.cache_layers == (0, 0, 1, 1, 2, 2)
    assert architecture.kv_bytes_per_token() == 3 * 2 * (16 + 16) * 2
    assert architecture.state_bytes() == 3 * ((48 + 2 * 2 * 16) * 3 * 2 + 48 * 16 * 4)


def test_defaults():
    assert read({"model_type": "falcon_h1"}).parameters == 8_514_961_408
    wide = read(BASE, mamba_d_ssm=None, mamba_expand=1)
    assert wide.caches[1].states[1].shape == (8, 8, 16)


def test_what_is_impossible():
    with pytest.raises(ConfigError, match="mamba_n_heads"):
        read(BASE, mamba_d_ssm=50)
