"""K-EXAONE, Laguna, Mellum, Flint and Cohere MoE. Parameter counts are those of transformers 5.24.0 for the same configs."""

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
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "intermediate_size": 96,
    "head_dim": 24,
}
EXAONE = {"model_type": "exaone_moe", **SIZES, **EXPERTS, "sliding_window": 16}
LAGUNA = {
    "model_type": "laguna", **SIZES, **EXPERTS, "shared_expert_intermediate_size": 40, "sliding_window": 16,
    "num_attention_heads_per_layer": [4, 8, 8, 4],
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
}  # fmt: skip
MELLUM = {"model_type": "mellum", **SIZES, **EXPERTS, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}
FLINT = {"model_type": "flint", **SIZES, **EXPERTS, "shared_expert_intermediate_size": 40, "sliding_window": 16}
COHERE = {
    "model_type": "cohere2_moe", **SIZES, **EXPERTS, "intermediate_size": 24, "prefix_dense_intermediate_size": 96,
    "num_shared_experts": 1, "first_k_dense_replace": 1, "sliding_window": 16,
}  # fmt: skip


def read(config):
    return read_architecture(config, class_defaults)


def parameters(config):
    return read(config).parameters


@pytest.mark.parametrize(
    ("config", "total", "active", "later"),
    [
        (EXAONE, 175_616, 147_968, 192),
        (LAGUNA, 210_956, 183_308, 384),
        (MELLUM, 161_792, 134_144, 768),
        (FLINT, 176_912, 158_480, 576),
        (COHERE, 168_768, 141_120, 192),
    ],
)
def test_parameters_and_cache(config, total, active, later):
    architecture = read(config)
    assert (architecture.parameters, architecture.active_parameters) == (total, active)
    assert architecture.kv_bytes_per_token(at=1) == 768
    assert architecture.kv_bytes_per_token() == later


def test_a_gate_per_element_is_wider():
    wider = parameters({**LAGUNA, "gating": "per-element"}) - parameters(LAGUNA)
    assert wider == 64 * (4 + 8 + 8 + 4) * 23


def test_mtp_layers_are_not_loaded():
    with_mtp = read({**EXAONE, "num_nextn_predict_layers": 1})
    assert with_mtp.parameters == 175_616
    layer = 2 * 64 * 96 + 2 * 64 * 48 + 2 * 24 + 3 * 64 * 96 + 2 * 64
    assert with_mtp.checkpoint_parameters - read(EXAONE).checkpoint_parameters == layer + 2 * 64 * 64 + 3 * 64


def test_unknown_gate():
    with pytest.raises(UnsupportedArchitectureError, match="gating"):
        read({**LAGUNA, "gating": "per-layer"})


@pytest.mark.parametrize("heads", [[4, 8, 8], [4, 8, 3, 4], [4, 8, "x", 4]])
def test_impossible_heads(heads):
    with pytest.raises(ConfigError):
        read({**LAGUNA, "num_attention_heads_per_layer": heads})
