"""Nemotron H. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import FullAttention, NoCache, Recurrent
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

BASE = {
    "model_type": "nemotron_h", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 60,
    "mamba_num_heads": 8, "mamba_head_dim": 4, "n_groups": 2, "ssm_state_size": 16, "moe_intermediate_size": 12,
    "moe_shared_expert_intermediate_size": 16, "moe_latent_size": 6, "intermediate_size": 20,
    "hybrid_override_pattern": "ME*-M",
}  # fmt: skip


def read(config, **changes):
    return read_architecture({**config, **changes}, class_defaults)


def test_parameters_and_caches():
    architecture = read(BASE)
    assert architecture.parameters == 135_984
    assert architecture.active_parameters == 135_120
    kinds = [Recurrent, NoCache, FullAttention, NoCache, Recurrent]
    assert [type(cache) for cache in architecture.caches] == kinds
    assert architecture.state_bytes() == 2 * ((32 + 2 * 2 * 16) * 3 * 2 + 32 * 16 * 4)
    assert read(BASE, mamba_ssm_cache_dtype="float16").state_bytes() == 2 * (96 * 3 * 2 + 32 * 16 * 2)


def test_spellings_give_the_same_answer():
    kinds = ["mamba", "moe", "attention", "mlp", "mamba"]
    for key in ("layers_block_type", "layer_types"):
        other = {name: value for name, value in BASE.items() if name != "hybrid_override_pattern"}
        assert read(other, **{key: kinds}, num_hidden_layers=99).tensors == read(BASE).tensors
    assert read(BASE, mamba_d_conv=5).caches == read(BASE, conv_kernel=5).caches


def test_layers_that_predict_further_tokens_are_in_the_file_only():
    architecture = read(BASE, num_nextn_predict_layers=1, mtp_hybrid_override_pattern="*E")
    assert architecture.parameters == 135_984
    mtp = [tensor for tensor in architecture.tensors if tensor.component == "mtp"]
    assert {tensor.name for tensor in mtp} >= {"mtp.layers.*.eh_proj.weight", "mtp.layers.*.mixer.q_proj.weight"}
    assert not any(tensor.loaded for tensor in mtp)


def test_mlp_widths_may_differ():
    wide = read(BASE, hybrid_override_pattern="-*-", intermediate_size=[20, 30])
    assert wide.component_parameters()["mlp"] == 2 * 64 * 50


def test_what_is_not_understood_or_impossible():
    with pytest.raises(UnsupportedArchitectureError, match="'X'"):
        read(BASE, hybrid_override_pattern="MX")
    with pytest.raises(ConfigError, match="hybrid_override_pattern"):
        read(BASE, hybrid_override_pattern="M" * 5000)
    with pytest.raises(ConfigError, match="not a dtype"):
        read(BASE, mamba_ssm_cache_dtype="float7")
