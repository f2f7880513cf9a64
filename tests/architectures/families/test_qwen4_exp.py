"""The text model of Qwen4-Exp. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import FullAttention, Recurrent
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

BASE = {
    "model_type": "qwen4_exp_text", "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "num_hidden_layers": 4, "vocab_size": 60, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 12,
    "num_experts": 4, "num_experts_per_tok": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 8, "linear_value_head_dim": 6, "indexer_n_heads": 2, "indexer_kv_heads": 1,
    "indexer_head_dim": 8, "indexer_budget": 8, "indexer_compress_ratio": 4, "hc_lowrank": 3, "hc_count": 2,
    "ple_layer_ids": [2], "ngram_vocab_size_base": 100, "heads_per_ngram": 2, "ple_embed_dim": 16,
}  # fmt: skip


def read(config, **changes):
    return read_architecture({**config, **changes}, class_defaults)


def test_parameters_and_caches():
    architecture = read(BASE)
    assert architecture.parameters == 46_826
    assert architecture.active_parameters == 40_682
    assert [type(cache) for cache in architecture.caches] == [Recurrent] * 3 + [FullAttention]
    # keys, values and the indexer's key of every token
    assert architecture.kv_bytes_per_token() == 2 * (8 + 8) * 2 + 8 * 2


def test_a_layer_with_n_grams_keeps_its_convolution_and_the_last_tokens():
    plain, with_ngrams = read(BASE).caches[0], read(BASE).caches[1]
    assert with_ngrams.state_bytes() - plain.state_bytes() == 2 * 32 * (4 - 1) * 3 * 2 + 2 * 8


def test_spellings_give_the_same_answer():
    for kind in ("full_attention", "indexed_attention", "qwen_sparse_attention"):
        other = read(BASE, layer_types=["linear_attention"] * 3 + [kind])
        assert (other.tensors, other.caches) == (read(BASE).tensors, read(BASE).caches)


def test_what_is_not_understood_or_impossible():
    with pytest.raises(UnsupportedArchitectureError, match="ple_layer_ids"):
        read(BASE, ple_layer_ids=[4])
    with pytest.raises(ConfigError, match="indexer_head_dim"):
        read(BASE, indexer_head_dim=None)
    with pytest.raises(ConfigError, match="ple_embed_dim"):
        read(BASE, ple_embed_dim=18)
