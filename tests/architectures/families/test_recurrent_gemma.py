"""RecurrentGemma. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import Recurrent, SlidingWindow
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

BASE = {
    "model_type": "recurrent_gemma", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 1,
    "num_hidden_layers": 4, "vocab_size": 60, "intermediate_size": 48, "lru_width": 80,
}  # fmt: skip


def read(config, **changes):
    return read_architecture({**config, **changes}, class_defaults)


def test_parameters_and_caches():
    architecture = read(BASE)
    assert architecture.parameters == 91_872
    assert [type(cache) for cache in architecture.caches] == [Recurrent, Recurrent, SlidingWindow, Recurrent]
    assert architecture.caches[2] == SlidingWindow(1, 16, 16, 2048)
    assert architecture.state_bytes() == 3 * (80 * 3 * 2 + 80 * 4)
    assert architecture.kv_bytes(5000) == 2048 * 32 * 2 + architecture.state_bytes()


def test_the_published_model():
    config = {"model_type": "recurrent_gemma", "intermediate_size": 15_360, "num_key_value_heads": 1}
    assert read(config).parameters == 2_682_862_080


def test_what_is_not_understood_or_impossible():
    with pytest.raises(UnsupportedArchitectureError, match="mamba"):
        read(BASE, block_types=["mamba"])
    with pytest.raises(ConfigError, match="block_types"):
        read(BASE, block_types=[])
    with pytest.raises(ConfigError, match="lru_width"):
        read(BASE, lru_width=81)
