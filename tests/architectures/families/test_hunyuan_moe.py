"""Hunyuan MoE. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

SIZES = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
HUNYUAN = {
    "model_type": "hunyuan_v1_moe", **SIZES, "num_experts": 4, "moe_topk": 2, "intermediate_size": 40, "head_dim": 24,
    "tie_word_embeddings": True,
}  # fmt: skip
OWN = {
    **HUNYUAN, "model_type": "hunyuan", "attention_head_dim": 24, "use_mixed_mlp_moe": True, "use_qk_norm": True,
    "num_shared_expert": [1] * 4, "moe_topk": [2] * 4, "moe_intermediate_size": [40] * 4,
}  # fmt: skip


def read(config):
    return read_architecture(config, class_defaults)


def parameters(config):
    return read(config).parameters


@pytest.mark.parametrize("config", [HUNYUAN, OWN, {**OWN, "moe_topk": [2] * 9}])
def test_parameters_and_cache(config):
    architecture = read(config)
    assert architecture.parameters == 235_520
    assert architecture.active_parameters == 174_080
    assert architecture.kv_bytes_per_token() == 768


def test_numbers_may_differ_from_layer_to_layer():
    architecture = read({**OWN, "moe_intermediate_size": [40, 40, 20, 40], "moe_topk": [2, 2, 2, 1]})
    expert = 3 * 64 * 40
    assert architecture.parameters == 235_520 - 4 * expert // 2
    assert architecture.active_parameters == architecture.parameters - (2 + 2 + 1 + 3) * expert


def test_layers_that_share_keys_and_values():
    architecture = read({**OWN, "use_cla": True, "cla_share_factor": 2})
    assert architecture.kv_bytes_per_token() == 768 // 2
    assert architecture.parameters == 235_520 - 2 * 2 * 64 * 48


def test_skipped_layers_are_dense():
    assert parameters({**OWN, "moe_layer_num_skipped": 1}) == 235_520 - 4 * 3 * 64 * 40 - 4 * 64


def test_latent_attention_is_not_understood():
    with pytest.raises(UnsupportedArchitectureError, match="use_mla"):
        read({**OWN, "use_mla": True})


@pytest.mark.parametrize("change", [{"moe_topk": [2]}, {"moe_topk": 5}, {"moe_intermediate_size": [0] * 4}])
def test_impossible_values(change):
    with pytest.raises(ConfigError):
        read({**OWN, **change})
