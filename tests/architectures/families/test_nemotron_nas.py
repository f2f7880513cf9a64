"""Llama Nemotron: layers that were pruned or resized one by one."""

import pytest

from kvtax.architectures.cache import FullAttention, NoCache
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

FULL = {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 6}}
WIDE = {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 12}}
BARE = {"attention": {"no_op": True}, "ffn": {"no_op": True}}


def read(*blocks, **config):
    base = {
        "model_type": "nemotron-nas",
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_hidden_layers": len(blocks),
        "vocab_size": 100,
        "block_configs": list(blocks),
    }
    return read_architecture(base | config, class_defaults)


def test_uniform_blocks_are_llama():
    llama = {
        "model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2,
        "num_hidden_layers": 3, "vocab_size": 100, "intermediate_size": 256,
    }  # fmt: skip
    expected = read_architecture(llama, class_defaults)
    found = read(FULL, FULL, FULL)
    assert found.parameters == expected.parameters
    assert found.caches == expected.caches


def test_what_is_left_out_has_neither_norm_nor_cache():
    outer = 2 * 100 * 64 + 64
    assert read(BARE).parameters == outer
    assert read(BARE).caches == (NoCache(),)
    square = read({"attention": {"replace_with_linear": True}, "ffn": {"replace_with_linear": True}})
    assert square.parameters == outer + 2 * (64 * 64 + 64)
    assert square.caches == (NoCache(),)


def test_layers_of_different_shape():
    mixed = read(FULL, WIDE, BARE)
    assert mixed.caches == (FullAttention(2, 8, 8), FullAttention(4, 8, 8), NoCache())
    widths = {tensor.shape[0]: tensor.layers for tensor in mixed.tensors if "gate_proj" in tensor.name}
    assert widths == {256: (0,), 512: (1,)}
    assert (mixed.num_key_value_heads, mixed.intermediate_size) == (4, 512)


def test_what_is_impossible_or_not_understood():
    with pytest.raises(ConfigError, match="n_heads_in_group"):
        read({"attention": {"n_heads_in_group": 3}, "ffn": {"no_op": True}})
    with pytest.raises(ConfigError, match="block_configs"):
        read(FULL, num_hidden_layers=2)
    with pytest.raises(UnsupportedArchitectureError, match="window_length"):
        read({"attention": {"n_heads_in_group": 4, "window_length": 512}, "ffn": {"no_op": True}})
