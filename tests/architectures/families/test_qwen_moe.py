"""Qwen2-MoE and Qwen3-MoE. Parameter counts are those of transformers 5.24.0 for the same configs."""

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
QWEN2 = {
    "model_type": "qwen2_moe", **SIZES, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40, "intermediate_size": 96, "decoder_sparse_step": 2, "use_sliding_window": True,
    "sliding_window": 16, "max_window_layers": 3,
}  # fmt: skip
QWEN3 = {
    "model_type": "qwen3_moe", **SIZES, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "intermediate_size": 96, "mlp_only_layers": [1], "head_dim": 24, "attention_bias": True,
}  # fmt: skip


def read(config):
    return read_architecture(config, class_defaults)


def parameters(config):
    return read(config).parameters


@pytest.mark.parametrize(
    ("config", "total", "active", "first", "later"),
    [
        (QWEN2, 171_456, 134_592, 512, 256),
        (QWEN3, 190_848, 135_552, 768, 768),
        ({"model_type": "qwen3_moe"}, 15_350_731_776, 1_761_186_816, 24_576, 24_576),
    ],
)
def test_parameters_and_cache(config, total, active, first, later):
    architecture = read(config)
    assert (architecture.parameters, architecture.active_parameters) == (total, active)
    assert architecture.kv_bytes_per_token(at=1) == first
    assert architecture.kv_bytes_per_token() == later


def test_a_key_that_says_its_default_changes_nothing():
    assert parameters({**QWEN3, "decoder_sparse_step": 1}) == parameters(QWEN3)
    assert parameters({**QWEN2, "qkv_bias": True, "mlp_only_layers": None}) == parameters(QWEN2)


def test_other_spelling_of_the_number_of_experts():
    renamed = {key: value for key, value in QWEN3.items() if key != "num_experts"} | {"num_local_experts": 6}
    assert parameters(renamed) == parameters(QWEN3)


def test_no_experts_make_every_layer_dense():
    architecture = read({**QWEN3, "num_experts": 0})
    assert architecture.num_experts == 0
    assert "routed_experts" not in architecture.component_parameters()


@pytest.mark.parametrize("change", [{"num_experts_per_tok": 7}, {"decoder_sparse_step": 0}, {"mlp_only_layers": ["x"]}])
def test_impossible_values(change):
    with pytest.raises(ConfigError):
        read({**QWEN3, **change})
