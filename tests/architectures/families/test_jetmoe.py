"""JetMoE. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError
from kvtax.sources.class_defaults import class_defaults

JET = {
    "model_type": "jetmoe", "num_hidden_layers": 3, "hidden_size": 64, "num_key_value_heads": 2, "kv_channels": 16,
    "vocab_size": 100, "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 40,
}  # fmt: skip


def read(config):
    return read_architecture(config, class_defaults)


def test_parameters_and_cache():
    architecture = read(JET)
    assert architecture.parameters == 162_368
    assert architecture.active_parameters == 91_712
    assert architecture.kv_bytes_per_token() == 3 * 2 * 2 * 16 * 2
    assert architecture.num_attention_heads == 4


def test_the_number_of_query_heads_follows_from_the_experts():
    assert read({**JET, "num_attention_heads": 32}).num_attention_heads == 4


def test_the_head_is_tied_where_nothing_is_said():
    assert read({**JET, "tie_word_embeddings": False}).parameters == 162_368 + 100 * 64


def test_more_experts_per_token_than_there_are():
    with pytest.raises(ConfigError):
        read({**JET, "num_experts_per_tok": 5})
