"""Qwen3-Next and the text models of Qwen3.5. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import FullAttention, Recurrent
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

SHARED = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_hidden_layers": 5,
    "vocab_size": 60, "intermediate_size": 24, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 8, "linear_value_head_dim": 6,
}  # fmt: skip
NEXT = {
    "model_type": "qwen3_next", "moe_intermediate_size": 8, "shared_expert_intermediate_size": 12, "num_experts": 4,
    "num_experts_per_tok": 2, "mlp_only_layers": [1], **SHARED,
}  # fmt: skip
DENSE = {"model_type": "qwen3_5_text", "full_attention_interval": 2, **SHARED}


def read(config, **changes):
    return read_architecture({**config, **changes}, class_defaults)


def test_qwen3_next():
    architecture = read(NEXT)
    assert architecture.parameters == 85_896
    assert architecture.active_parameters == 73_608
    assert [type(cache) for cache in architecture.caches] == [Recurrent] * 3 + [FullAttention, Recurrent]
    assert architecture.state_bytes() == 4 * ((2 * 16 + 24) * 3 * 2 + 4 * 8 * 6 * 4)


def test_spellings_give_the_same_answer():
    kinds = ["linear_attention"] * 3 + ["full_attention", "linear_attention"]
    for other in (read(NEXT, layer_types=kinds), read(NEXT, full_attention_interval=4)):
        assert (other.tensors, other.caches) == (read(NEXT).tensors, read(NEXT).caches)


def test_qwen3_5():
    architecture = read(DENSE)
    assert architecture.parameters == 70_058
    assert {tensor.name for tensor in architecture.tensors} >= {"model.layers.*.linear_attn.in_proj_qkv.weight"}
    assert architecture.state_bytes() == 3 * ((2 * 16 + 24) * 3 * 2 + 4 * 8 * 6 * 4)
    assert read(DENSE, mamba_ssm_dtype="bfloat16").state_bytes() == 3 * ((2 * 16 + 24) * 3 * 2 + 4 * 8 * 6 * 2)


def test_layers_that_predict_further_tokens_are_in_the_file_only():
    assert {tensor.loaded for tensor in read(NEXT).tensors if tensor.name.startswith("mtp.")} == {False}
    assert not [tensor for tensor in read(DENSE).tensors if tensor.component == "mtp"]
    assert read(DENSE, mtp_num_hidden_layers=1).parameters == 70_058


def test_what_is_not_understood_or_impossible():
    with pytest.raises(UnsupportedArchitectureError, match="sliding_attention"):
        read(DENSE, layer_types=["sliding_attention"] * 5)
    with pytest.raises(ConfigError, match="linear_num_key_heads"):
        read(NEXT, linear_num_key_heads=3)
    with pytest.raises(ConfigError, match="full_attention_interval"):
        read(NEXT, full_attention_interval=0)
