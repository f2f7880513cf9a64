"""MiniMax-Text-01. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import FullAttention, Recurrent, State
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

BASE = {
    "model_type": "minimax", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 3, "vocab_size": 60, "intermediate_size": 24, "num_local_experts": 4,
    "layer_types": ["linear_attention", "linear_attention", "full_attention"],
}  # fmt: skip


def read(config, **changes):
    return read_architecture({**config, **changes}, class_defaults)


def test_parameters_and_caches():
    architecture = read(BASE)
    assert architecture.parameters == 117_568
    assert architecture.active_parameters == 89_920
    assert [type(cache) for cache in architecture.caches] == [Recurrent, Recurrent, FullAttention]
    assert architecture.caches[0].states == (State("recurrent", (4, 16, 16)),)


def test_spellings_give_the_same_answer():
    older = {key: value for key, value in BASE.items() if key != "layer_types"}
    for name in ("minimax", "minimax_text_01", "minimax_m1", "MiniMaxText01"):
        other = read(older, model_type=name, attn_type_list=[0, 0, 1])
        assert (other.tensors, other.caches) == (read(BASE).tensors, read(BASE).caches)


def test_the_published_model():
    config = {
        "model_type": "minimax_text_01", "hidden_size": 6144, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9216, "vocab_size": 200_064,
        "num_local_experts": 32, "attn_type_list": ([0] * 7 + [1]) * 10, "shared_intermediate_size": 0,
    }  # fmt: skip
    assert read(config).parameters == 456_089_655_296


def test_what_is_not_understood_or_impossible():
    with pytest.raises(UnsupportedArchitectureError, match="attn_type_list"):
        read(BASE, layer_types=None, attn_type_list=[0, 2, 1])
    with pytest.raises(ConfigError, match="attn_type_list"):
        read(BASE, model_type="minimax_text_01", layer_types=None)
    with pytest.raises(ConfigError, match="num_experts_per_tok"):
        read(BASE, num_experts_per_tok=5)
