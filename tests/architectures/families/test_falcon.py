"""Falcon 1."""

import pytest

from kvtax.architectures.cache import FullAttention
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError
from kvtax.sources.class_defaults import class_defaults

BASE = {"num_hidden_layers": 5, "hidden_size": 64, "num_attention_heads": 8, "vocab_size": 100}


def read(**config):
    return read_architecture(config, class_defaults)


# parameter counts are those of transformers 5.24.0 for the same configs
@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (BASE | {"model_type": "falcon"}, 217_088),
        (BASE | {"model_type": "falcon", "multi_query": False, "bias": True}, 255_808),
        (
            BASE
            | {
                "model_type": "falcon",
                "new_decoder_architecture": True,
                "num_kv_heads": 2,
                "tie_word_embeddings": False,
            },
            229_248,
        ),
        (BASE | {"model_type": "falcon", "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1}, 252_928),
        (BASE | {"model_type": "falcon", "parallel_attn": False, "ffn_hidden_size": 50}, 85_888),
        (BASE | {"model_type": "falcon", "n_embed": 32}, 56_064),
    ],
)
def test_parameters(config, parameters):
    assert read(**config).parameters == parameters


def test_the_cache_holds_the_heads_of_the_weights():
    assert read(model_type="falcon", **BASE).caches[0] == FullAttention(1, 8, 8, 0)
    assert read(model_type="falcon", multi_query=False, num_kv_heads=2, **BASE).caches[0].num_key_value_heads == 8
    new = read(model_type="falcon", new_decoder_architecture=True, num_kv_heads=2, **BASE)
    assert new.caches[0].num_key_value_heads == 2
    assert read(model_type="falcon", new_decoder_architecture=True, **BASE).caches[0].num_key_value_heads == 8


def test_rope():
    assert read(model_type="falcon", **BASE).rotary_dim == 8
    assert read(model_type="falcon", alibi=True, **BASE).rotary_dim == 0


def test_what_is_impossible():
    with pytest.raises(ConfigError, match="num_kv_heads"):
        read(model_type="falcon", new_decoder_architecture=True, num_kv_heads=3, **BASE)
