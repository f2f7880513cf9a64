"""GLM 4 dense, under its old and new names."""

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
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
        (BASE | {"model_type": "glm", "head_dim": 16}, 209_024),
        (BASE | {"model_type": "glm", "attention_bias": False, "tie_word_embeddings": True}, 918_464),
        (BASE | {"model_type": "glm4", "head_dim": 16}, 209_664),
        (BASE | {"model_type": "glm4", "attention_bias": False}, 925_504),
    ],
)
def test_parameters(config, parameters):
    assert read(**config).parameters == parameters


CHATGLM = {
    "model_type": "chatglm",
    "architectures": ["ChatGLMModel"],
    "num_layers": 5,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "kv_channels": 16,
    "padded_vocab_size": 100,
    "ffn_hidden_size": 96,
    "add_qkv_bias": True,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
}


def test_chatglm_is_glm_under_other_names():
    old, new = read(**CHATGLM), read(model_type="glm", head_dim=16, **BASE)
    assert old.parameters == new.parameters
    assert old.caches == new.caches
    # the rows of the embedding are the padded ones
    assert read(**CHATGLM, vocab_size=77).parameters == old.parameters


def test_chatglm_without_groups_and_with_all_biases():
    full = read(**CHATGLM | {"multi_query_attention": False})
    assert full.caches[0].num_key_value_heads == 8
    biased = read(**CHATGLM | {"add_bias_linear": True})
    assert biased.parameters == read(**CHATGLM).parameters + 5 * (64 + 2 * 96 + 64)


def test_what_is_impossible_or_not_understood():
    with pytest.raises(ConfigError, match="multi_query_group_num"):
        read(**CHATGLM | {"multi_query_group_num": 3})
    with pytest.raises(UnsupportedArchitectureError, match="rmsnorm"):
        read(**CHATGLM, rmsnorm=False)
