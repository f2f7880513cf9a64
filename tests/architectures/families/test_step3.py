"""Step 3.5 (the text model of Step 3.7). Parameter counts are those of transformers 5.24.0 for the same configs."""

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
STEP = {
    "model_type": "step3p5", **SIZES, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "intermediate_size": 96,
    "share_expert_dim": 40, "head_dim": 24, "sliding_window": 16, "num_sliding_attention_heads": 8,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
}  # fmt: skip
OWN = {key: value for key, value in STEP.items() if key not in ("num_sliding_attention_heads", "n_routed_experts")} | {
    "attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": 8, "head_dim": 24},
    "moe_num_experts": 4, "moe_top_k": 2, "num_attention_groups": 2, "moe_layers_enum": "3,4",
    "layer_types": [*STEP["layer_types"], "sliding_attention"], "num_nextn_predict_layers": 1,
}  # fmt: skip
del OWN["num_key_value_heads"], OWN["num_experts_per_tok"]


def read(config):
    return read_architecture(config, class_defaults)


def parameters(config):
    return read(config).parameters


@pytest.mark.parametrize("config", [STEP, OWN])
def test_parameters_and_cache(config):
    architecture = read(config)
    assert architecture.parameters == 195_072
    assert architecture.active_parameters == 185_856
    assert architecture.kv_bytes_per_token(at=1) == 768
    assert architecture.kv_bytes_per_token() == 384


def test_mtp_layers_are_windowed_and_dense():
    layer = 2 * 64 * 8 * 24 + 2 * 64 * 48 + 8 * 64 + 2 * 24 + 2 * 64 + 3 * 64 * 96
    extra = layer + 3 * 64 + 2 * 64 * 64 + 100 * 64
    assert read(OWN).checkpoint_parameters == read(STEP).checkpoint_parameters + extra


def test_experts_start_in_the_fourth_layer():
    assert parameters({**STEP, "mlp_layer_types": ["dense", "dense", "dense", "sparse"]}) == 195_072


def test_windowed_layers_of_another_head_width_are_not_understood():
    with pytest.raises(UnsupportedArchitectureError):
        read({**OWN, "attention_other_setting": {"num_attention_heads": 8, "head_dim": 32}})


@pytest.mark.parametrize("change", [{"moe_layers_enum": "a"}, {"moe_layers_enum": 3}, {"layer_types": ["x"] * 4}])
def test_impossible_values(change):
    with pytest.raises((ConfigError, UnsupportedArchitectureError)):
        read({**STEP, **change})
