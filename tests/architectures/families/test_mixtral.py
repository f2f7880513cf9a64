"""Mixtral, PhiMoE and MiniMax-M2. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError
from kvtax.sources.class_defaults import class_defaults

SIZES = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 40}
MIXTRAL = {"model_type": "mixtral", **SIZES, **EXPERTS, "sliding_window": 32}
PHI = {
    "model_type": "phimoe", **SIZES, **EXPERTS, "attention_bias": True, "lm_head_bias": True, "sliding_window": 16,
    "head_dim": 24,
}  # fmt: skip
MINIMAX = {"model_type": "minimax_m2", **SIZES, **EXPERTS, "head_dim": 24}


def read(config):
    return read_architecture(config, class_defaults)


def parameters(config):
    return read(config).parameters


@pytest.mark.parametrize(
    ("config", "total", "active", "first", "later"),
    [
        (MIXTRAL, 186_432, 124_992, 512, 0),
        ({**MIXTRAL, "sliding_window": None}, 186_432, 124_992, 512, 512),
        (PHI, 212_708, 151_268, 768, 0),
        (MINIMAX, 211_584, 150_144, 768, 768),
    ],
)
def test_parameters_and_cache(config, total, active, first, later):
    architecture = read(config)
    assert (architecture.parameters, architecture.active_parameters) == (total, active)
    assert architecture.kv_bytes_per_token(at=1) == first
    assert architecture.kv_bytes_per_token() == later


def test_a_window_as_long_as_the_context_is_none():
    assert read({**PHI, "max_position_embeddings": 16}).kv_bytes_per_token() == 768


def test_the_correction_bias_is_no_parameter():
    architecture = read(MINIMAX)
    assert architecture.checkpoint_parameters == architecture.parameters + 4 * 4


def test_names_are_those_of_the_checkpoint():
    names = {tensor.name: tensor.shape for tensor in read(MIXTRAL).tensors}
    assert names["model.layers.*.block_sparse_moe.experts.*.w2.weight"] == (64, 40)
    assert names["model.layers.*.block_sparse_moe.gate.weight"] == (4, 64)


def test_more_experts_per_token_than_there_are():
    with pytest.raises(ConfigError, match="num_experts_per_tok"):
        read({**MIXTRAL, "num_experts_per_tok": 5})
