"""GLM-4.5, dots.llm1, Solar Open, Sarvam MoE and DeepSeek MoE. Parameter counts are those of transformers 5.24.0 for the same configs."""

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
EXPERTS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "intermediate_size": 96}
GLM = {
    "model_type": "glm4_moe", **SIZES, **EXPERTS, "first_k_dense_replace": 1, "n_shared_experts": 2, "head_dim": 24,
    "attention_bias": True, "use_qk_norm": True,
}  # fmt: skip
DOTS = {
    "model_type": "dots1", **SIZES, **EXPERTS, "first_k_dense_replace": 2, "n_shared_experts": 1, "sliding_window": 16,
    "attention_bias": True, "max_window_layers": 3,
}  # fmt: skip
SOLAR = {"model_type": "solar_open", **SIZES, **EXPERTS, "n_shared_experts": 1}
SARVAM = {
    "model_type": "sarvam_moe", **SIZES, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "intermediate_size": 96,
    "num_shared_experts": 2, "use_qkv_bias": True, "tie_word_embeddings": True,
}  # fmt: skip
DEEPSEEK = {"model_type": "deepseek", **SIZES, **EXPERTS, "first_k_dense_replace": 1, "n_shared_experts": 2}


def read(config):
    return read_architecture(config, class_defaults)


def parameters(config):
    return read(config).parameters


@pytest.mark.parametrize(
    ("config", "total", "active", "first", "later"),
    [
        (GLM, 190_208, 162_560, 768, 768),
        (DOTS, 146_880, 128_448, 512, 384),
        (SOLAR, 499_776, 462_912, 4096, 4096),
        (SARVAM, 308_288, 280_640, 2048, 2048),
    ],
)
def test_parameters_and_cache(config, total, active, first, later):
    architecture = read(config)
    assert (architecture.parameters, architecture.active_parameters) == (total, active)
    assert architecture.kv_bytes_per_token(at=1) == first
    assert architecture.kv_bytes_per_token() == later


def test_the_mtp_layer_is_in_the_file_but_not_loaded():
    without = read({**GLM, "num_nextn_predict_layers": 0})
    assert without.parameters == parameters(GLM)
    extra = read(GLM).checkpoint_parameters - without.checkpoint_parameters
    layer = 4 * 3 * 64 * 24 + 3 * 64 * 48 + 4 * 64 + 4 + 2 * 64 * 96 + 2 * 64 * 48 + 96 + 2 * 48 + 2 * 24 + 2 * 64
    assert extra == layer + 2 * 100 * 64 + 2 * 64 * 64 + 3 * 64


def test_deepseek_moe_has_no_correction_bias():
    assert parameters(DEEPSEEK) == read(DEEPSEEK).checkpoint_parameters
    attention = {"attention_bias": False, "use_qk_norm": False, "head_dim": 16, "num_nextn_predict_layers": 0}
    assert parameters(DEEPSEEK) == parameters({**GLM, **attention})


def test_null_experts_make_deepseek_dense():
    assert read({**DEEPSEEK, "n_routed_experts": None}).num_experts == 0


def test_missing_experts():
    with pytest.raises(ConfigError, match="n_routed_experts"):
        read({**DOTS, "n_routed_experts": None})


def test_unknown_mlp_type():
    with pytest.raises(UnsupportedArchitectureError, match="MLP type"):
        read({**GLM, "mlp_layer_types": ["dense", "sparse", "other", "sparse"]})
