"""InternLM 1, 2 and 3."""

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError
from kvtax.sources.class_defaults import class_defaults

BASE = {
    "num_hidden_layers": 5,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "intermediate_size": 96,
}


def read(**config):
    return read_architecture(config, class_defaults)


# parameter counts are those of transformers 5.24.0 for the same configs
@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (BASE | {"model_type": "internlm3", "head_dim": 8}, 156_864),
        (BASE | {"model_type": "internlm", "tie_word_embeddings": True}, 151_264),
    ],
)
def test_parameters(config, parameters):
    assert read(**config).parameters == parameters


def test_internlm2_is_llama_with_fused_attention():
    llama = read(model_type="llama", **BASE)
    found = read(model_type="internlm2", bias=False, **BASE)
    assert found.parameters == llama.parameters
    assert found.caches == llama.caches
    fused = next(tensor for tensor in found.tensors if tensor.name == "model.layers.*.attention.wqkv.weight")
    assert fused.shape == ((8 + 2 * 2) * 8, 64)
    assert fused.heads == (8, 2)


def test_biases():
    plain = read(model_type="internlm2", bias=False, **BASE).parameters
    attention = 5 * ((8 + 2 * 2) * 8 + 64)
    # the class default is true
    assert read(model_type="internlm2", **BASE).parameters == plain + attention
    biased = read(model_type="internlm3", head_dim=8, qkv_bias=True, bias=True, **BASE).parameters
    assert biased == plain + attention + 5 * (2 * 96 + 64)
    assert read(model_type="internlm3", head_dim=8, attention_bias=True, mlp_bias=True, **BASE).parameters == biased


def test_reward_model_has_a_head_of_one_row():
    reward = read(model_type="internlm2", architectures=["InternLM2ForRewardModel"], **BASE)
    assert reward.parameters == read(model_type="internlm2", **BASE).parameters - 100 * 64 + 64


def test_what_is_impossible():
    with pytest.raises(ConfigError, match="intermediate_size"):
        read(**BASE | {"model_type": "internlm2", "intermediate_size": "wide"})
