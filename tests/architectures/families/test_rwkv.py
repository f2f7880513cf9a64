"""RWKV 4, 5 and 6. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import Recurrent
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

BASE = {
    "model_type": "rwkv", "hidden_size": 48, "num_hidden_layers": 3, "vocab_size": 60, "attention_hidden_size": 40,
}  # fmt: skip


def read(config, **changes):
    return read_architecture({**config, **changes}, class_defaults)


def test_version_4():
    architecture = read(BASE)
    assert architecture.parameters == 92_736
    assert [type(cache) for cache in architecture.caches] == [Recurrent] * 3
    # the previous token twice, and three float32 vectors
    assert architecture.state_bytes() == 3 * (2 * 48 * 2 + 3 * 40 * 4)
    assert architecture.kv_bytes_per_token(at=1) == 0


def test_version_5():
    # the published rwkv-5-world-1b5
    assert read({"model_type": "rwkv5"}, hidden_size=2048).parameters == 1_577_754_624
    wide = read({"model_type": "rwkv5"}, hidden_size=2560, num_hidden_layers=32)
    assert wide.state_bytes() == 32 * (40 * 64 * 64 * 4 + 2 * 2560 * 2)


def test_version_6_decays_through_a_projection():
    names = {tensor.name for tensor in read({"model_type": "rwkv6"}).tensors}
    assert "rwkv.blocks.*.attention.time_decay_w1" in names


def test_what_is_not_understood_or_impossible():
    with pytest.raises(UnsupportedArchitectureError, match="flash-linear-attention"):
        read({"model_type": "rwkv6", "proj_low_rank_dim": 32})
    with pytest.raises(ConfigError, match="head_size"):
        read({"model_type": "rwkv5", "hidden_size": 2048, "head_size": 100})
