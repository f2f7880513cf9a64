"""Zamba 2. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import FullAttention, Recurrent
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

BASE = {
    "model_type": "zamba2", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 6, "vocab_size": 60,
    "n_mamba_heads": 4, "num_mem_blocks": 2, "use_shared_attention_adapter": True, "adapter_rank": 3,
    "layers_block_type": ["mamba", "hybrid"] * 3,
}  # fmt: skip


def read(config, **changes):
    return read_architecture({**config, **changes}, class_defaults)


def test_parameters_and_caches():
    architecture = read(BASE)
    assert architecture.parameters == 133_128
    assert [type(cache) for cache in architecture.caches] == [Recurrent, FullAttention, Recurrent] * 3
    assert architecture.cache_layers == (0, 1, 1, 2, 3, 3, 4, 5, 5)
    assert architecture.kv_bytes_per_token() == 3 * 4 * (16 + 16) * 2


def test_the_published_models():
    small = ["hybrid" if index in (5, 11, 17, 23, 29, 35) else "mamba" for index in range(38)]
    stated = {"hidden_size": 2048, "num_hidden_layers": 38, "n_mamba_heads": 64, "mamba_d_state": 128}
    config = {"model_type": "zamba2", "layers_block_type": small, "use_shared_attention_adapter": True, **stated}
    assert read(config).parameters == 1_215_064_704
    assert read({"model_type": "zamba2"}, n_mamba_heads=80, num_mem_blocks=2).parameters == 2_662_214_560


def test_what_is_not_understood_or_impossible():
    with pytest.raises(UnsupportedArchitectureError, match="full_attention"):
        read(BASE, layers_block_type=["attention"] * 6)
    with pytest.raises(ConfigError, match="54 layers"):
        read({"model_type": "zamba2"}, num_hidden_layers=10)
