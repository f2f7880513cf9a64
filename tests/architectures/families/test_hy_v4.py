"""Hunyuan 4. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

TINY = {
    "model_type": "hy_v4", "num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 4, "q_lora_rank": 24,
    "kv_lora_rank": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
    "intermediate_size": 72, "vocab_size": 100, "hc_mult": 3,
}  # fmt: skip


def read(config):
    return read_architecture(config, class_defaults)


def test_parameters_and_caches():
    architecture = read(TINY)
    assert architecture.parameters == 1_557_228
    assert [cache.index_bytes for cache in architecture.caches] == [132, 132, 0, 0, 0, 132]
    assert architecture.kv_bytes_per_token() == 6 * 2 * (16 + 64) + 3 * 132


def test_defaults_of_the_class():
    assert read({"model_type": "hy_v4"}).parameters == 58_278_193_133


def test_the_file_of_the_published_size_holds_one_mtp_layer():
    published = {
        "model_type": "hy_v4", "num_hidden_layers": 78, "hidden_size": 6144, "intermediate_size": 18432,
        "moe_intermediate_size": 2048, "num_attention_heads": 64, "q_lora_rank": 2048, "index_n_heads": 32,
        "num_nextn_predict_layers": 1,
    }  # fmt: skip
    assert sum(tensor.elements for tensor in read(published).tensors) == 779_960_992_733


def test_stated_kinds_and_what_is_not_understood():
    stated = ["full", "shared", "full", "shared", "shared", "shared"]
    assert [bool(cache.index_bytes) for cache in read({**TINY, "indexer_types": stated}).caches] == [
        True,
        False,
        True,
    ] + [False] * 3
    with pytest.raises(UnsupportedArchitectureError):
        read({**TINY, "layer_types": ["sliding_attention"] * 6})
    with pytest.raises(ConfigError):
        read({**TINY, "indexer_types": ["shared"] * 6})
