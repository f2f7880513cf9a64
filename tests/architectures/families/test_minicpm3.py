"""MiniCPM3. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError
from kvtax.sources.class_defaults import class_defaults

TINY = {
    "model_type": "minicpm3", "num_hidden_layers": 3, "hidden_size": 80, "num_attention_heads": 5, "vocab_size": 100,
    "intermediate_size": 72,
}  # fmt: skip


def read(config):
    return read_architecture(config, class_defaults)


def test_value_width_comes_from_hidden_size():
    assert read(TINY).parameters == read({**TINY, "v_head_dim": 16}).parameters == 1_749_232
    assert read({**TINY, "v_head_dim": None}).kv_bytes_per_token() == 3 * 2 * (256 + 32)


def test_published_size():
    assert read({"model_type": "minicpm3"}).parameters == 4_073_875_968


def test_impossible_value():
    with pytest.raises(ConfigError):
        read({**TINY, "hidden_size": 4})
