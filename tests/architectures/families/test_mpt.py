"""MPT."""

import pytest

from kvtax.architectures.cache import FullAttention
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

BASE = {"n_layers": 5, "d_model": 64, "n_heads": 8, "vocab_size": 100}


def read(**config):
    return read_architecture(config, class_defaults)


# parameter counts are those of transformers 5.24.0 for the same configs
@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (BASE | {"model_type": "mpt"}, 252_864),
        (BASE | {"model_type": "mpt", "tie_word_embeddings": False}, 259_264),
        (BASE | {"model_type": "mpt", "no_bias": False, "expansion_ratio": 2}, 252_864),
    ],
)
def test_parameters(config, parameters):
    assert read(**config).parameters == parameters


def test_llm_foundry_reads_more_of_its_config():
    plain = read(model_type="mpt", **BASE).parameters
    foundry = {"model_type": "mpt", "architectures": ["MPTForCausalLM"], "no_bias": True, **BASE}
    alibi = {"alibi": True}
    assert read(**foundry, attn_config=alibi).parameters == plain
    assert read(**foundry).parameters == plain + 2048 * 64
    assert read(**foundry, attn_config=alibi, expansion_ratio=2).parameters == plain - 5 * 2 * 2 * 64 * 64
    grouped = alibi | {"attn_type": "grouped_query_attention", "kv_n_heads": 2}
    assert read(**foundry, attn_config=grouped).caches[0] == FullAttention(2, 8, 8, 0)
    biased = read(**foundry | {"no_bias": False}, attn_config=alibi).parameters
    assert biased == plain + 5 * (192 + 64 + 256 + 64 + 2 * 64) + 64


def test_what_is_impossible_or_not_understood():
    foundry = {"model_type": "mpt", "architectures": ["MPTForCausalLM"], **BASE}
    with pytest.raises(ConfigError, match="kv_n_heads"):
        read(**foundry, attn_config={"attn_type": "grouped_query_attention", "kv_n_heads": 3})
    with pytest.raises(UnsupportedArchitectureError, match="attn_config"):
        read(**foundry, attn_config={"qk_ln": True})
