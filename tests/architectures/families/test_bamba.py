"""Bamba and Granite 4 hybrid. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import FullAttention, Recurrent
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

SHARED = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 60, "intermediate_size": 24,
    "mamba_n_heads": 8,
}  # fmt: skip
BAMBA = {"model_type": "bamba", "num_hidden_layers": 4, "attn_layer_indices": [1, 3], "mlp_bias": True, **SHARED}
GRANITE = {
    "model_type": "granitemoehybrid", "num_hidden_layers": 3, "shared_intermediate_size": 16,
    "layer_types": ["mamba", "attention", "mamba"], "num_local_experts": 4, "num_experts_per_tok": 2, **SHARED,
}  # fmt: skip


def read(config, **changes):
    return read_architecture({**config, **changes}, class_defaults)


def test_bamba():
    architecture = read(BAMBA)
    assert architecture.parameters == 174_128
    assert [type(cache) for cache in architecture.caches] == [Recurrent, FullAttention] * 2
    assert architecture.state_bytes() == 2 * ((128 + 2 * 256) * 3 * 2 + 128 * 256 * 4)


def test_the_published_model():
    stated = {"vocab_size": 128_256, "mamba_d_state": 128, "attn_layer_indices": [9, 18, 27]}
    assert read({"model_type": "bamba"}, **stated).parameters == 9_780_235_392


def test_granite():
    architecture = read(GRANITE)
    assert architecture.parameters == 208_112
    assert architecture.active_parameters == 180_464
    assert [type(cache) for cache in architecture.caches] == [Recurrent, FullAttention, Recurrent]


def test_spellings_give_the_same_answer():
    today = ["linear_attention", "full_attention", "linear_attention"]
    older = {key: value for key, value in GRANITE.items() if key != "layer_types"}
    for config in (read(GRANITE, layer_types=today), read(older, layers_block_type=today)):
        assert config.tensors == read(GRANITE).tensors
        assert config.caches == read(GRANITE).caches
    assert read(GRANITE, mamba_d_head=16).tensors == read(GRANITE, mamba_d_head="auto").tensors


def test_granite_without_experts():
    assert set(read(GRANITE, num_local_experts=0).component_parameters()) & {"router", "routed_experts"} == set()


def test_what_is_not_understood_or_impossible():
    with pytest.raises(UnsupportedArchitectureError, match="sliding_attention"):
        read(GRANITE, layer_types=["mamba", "sliding_attention", "mamba"])
    with pytest.raises(ConfigError, match="mamba_n_heads"):
        read(BAMBA, mamba_n_heads=7)
    with pytest.raises(ConfigError, match="layer_types"):
        read(GRANITE, layer_types=["mamba"])
