"""Olmo Hybrid. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import FullAttention, Recurrent
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

BASE = {
    "model_type": "olmo_hybrid", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 5, "vocab_size": 60,
    "intermediate_size": 24,
}  # fmt: skip


def read(config, **changes):
    return read_architecture({**config, **changes}, class_defaults)


def test_parameters_and_caches():
    architecture = read(BASE)
    assert architecture.parameters == 151_488
    assert [type(cache) for cache in architecture.caches] == [Recurrent] * 3 + [FullAttention, Recurrent]
    # keys take three quarters of the stream, values twice as much as keys
    assert architecture.caches[0].states[1].shape == (4, 24, 12)
    assert read(BASE, linear_key_head_dim=12, linear_num_value_heads=4).tensors == architecture.tensors


def test_defaults():
    assert read({"model_type": "olmo_hybrid"}).parameters == 7_430_870_688
    assert isinstance(read(BASE, num_hidden_layers=2).caches[1], FullAttention)


def test_what_is_not_understood_or_impossible():
    with pytest.raises(UnsupportedArchitectureError, match="sliding_attention"):
        read(BASE, layer_types=["sliding_attention"] * 5)
    with pytest.raises(ConfigError, match="linear_num_key_heads"):
        read(BASE, linear_num_key_heads=3)
