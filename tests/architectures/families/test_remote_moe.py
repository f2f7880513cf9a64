"""Arctic, Grok, Ling and Step 3: model types that transformers 5.24.0 does not have. Totals are the published ones of whole models."""

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

ARCTIC = {
    "model_type": "arctic", "hidden_size": 7168, "num_hidden_layers": 35, "num_attention_heads": 56,
    "num_key_value_heads": 8, "intermediate_size": 4864, "num_local_experts": 128, "num_experts_per_tok": 2,
    "moe_layer_frequency": 1, "parallel_attn_mlp_res": True, "vocab_size": 32000,
}  # fmt: skip
GROK1 = {"model_type": "grok-1", "architectures": ["Grok1ModelForCausalLM"]}
GROK2 = {
    "model_type": "git", "architectures": ["Grok1ForCausalLM"], "hidden_size": 8192, "intermediate_size": 32768,
    "moe_intermediate_size": 16384, "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 128, "num_local_experts": 8, "num_experts_per_tok": 2, "residual_moe": True, "vocab_size": 131072,
}  # fmt: skip
LING = {
    "model_type": "bailing_moe", "architectures": ["BailingMoeV2ForCausalLM"], "hidden_size": 2048,
    "num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 256,
    "intermediate_size": 5120, "moe_intermediate_size": 512, "num_experts_per_tok": 8, "num_shared_experts": 1,
    "first_k_dense_replace": 1, "vocab_size": 157184,
}  # fmt: skip
STEP3 = {"model_type": "step3_vl", "projector_bias": False, "vision_config": {"intermediate_size": 15360}}


def read(config):
    return read_architecture(config, class_defaults)


@pytest.mark.parametrize(
    ("config", "total", "per_token"),
    [
        (ARCTIC, 478_584_608_768, 143_360),
        (GROK1, 315_684_820_992, 262_144),
        (GROK2, 269_515_497_472, 262_144),
        (LING, 16_255_643_392, 40_960),
        (STEP3, 320_969_912_832, 61 * 2 * 256 * 2),
    ],
)
def test_published_totals(config, total, per_token):
    architecture = read(config)
    assert architecture.parameters == total
    assert architecture.kv_bytes_per_token() == per_token


def test_arctic_layers_without_experts():
    third = read({**ARCTIC, "moe_layer_frequency": 3})
    assert third.parameters < read(ARCTIC).parameters / 2
    assert read({**ARCTIC, "moe_layer_frequency": 2}).parameters == read(ARCTIC).parameters


def test_ling_generations():
    first = {key: value for key, value in LING.items() if key != "architectures"} | {"use_bias": False}
    norms, router = 20 * 2 * 128, 19 * 256
    assert read(first).parameters == read(LING).parameters - norms - router
    assert (
        read({**LING, "model_type": "bailing_moe_v2", "architectures": None, "use_bias": False}).parameters
        == 16_255_643_392
    )


def test_ling_mtp_layers_are_not_loaded():
    with_mtp = read({**LING, "num_nextn_predict_layers": 1})
    assert with_mtp.parameters == 16_255_643_392
    assert with_mtp.checkpoint_parameters > 16_255_643_392


def test_grok_2_takes_no_defaults_of_the_other_model_of_its_type():
    with pytest.raises(ConfigError, match="vocab_size"):
        read({key: value for key, value in GROK2.items() if key != "vocab_size"})


def test_step3_with_more_key_value_heads_is_not_understood():
    with pytest.raises(UnsupportedArchitectureError):
        read({**STEP3, "text_config": {"num_attention_groups": 2}})


@pytest.mark.parametrize("change", [{"num_experts_per_tok": 129}, {"moe_layer_frequency": 0}, {"hidden_size": "x"}])
def test_impossible_values(change):
    with pytest.raises(ConfigError):
        read({**ARCTIC, **change})
