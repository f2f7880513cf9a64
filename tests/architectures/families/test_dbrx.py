"""DBRX. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError
from kvtax.sources.class_defaults import class_defaults

DBRX = {
    "model_type": "dbrx", "d_model": 64, "n_heads": 4, "n_layers": 3, "vocab_size": 100, "max_seq_len": 512,
    "attn_config": {"kv_n_heads": 2}, "ffn_config": {"moe_num_experts": 4, "moe_top_k": 2, "ffn_hidden_size": 24},
}  # fmt: skip


def read(config):
    return read_architecture(config, class_defaults)


def test_parameters_and_cache():
    architecture = read(DBRX)
    assert architecture.parameters == 106_176
    assert architecture.active_parameters == 78_528
    assert architecture.kv_bytes_per_token() == 3 * 2 * 2 * 16 * 2
    assert architecture.max_position_embeddings == 512


def test_nested_configs_left_out_are_the_class_defaults():
    config = {key: value for key, value in DBRX.items() if key != "attn_config"}
    assert read(config).num_key_value_heads == 1
    assert read({**DBRX, "ffn_config": {"moe_top_k": 2}}).moe_intermediate_size == 3584


@pytest.mark.parametrize(
    "change", [{"attn_config": {"kv_n_heads": 3}}, {"attn_config": "x"}, {"n_heads": 5}, {"tie_word_embeddings": True}]
)
def test_impossible_values(change):
    with pytest.raises(ConfigError):
        read({**DBRX, **change})
