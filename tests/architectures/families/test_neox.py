"""GPT-NeoX, Bloom and Persimmon."""

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
        (BASE | {"model_type": "gpt_neox", "intermediate_size": 96}, 159_648),
        (
            BASE
            | {"model_type": "gpt_neox", "intermediate_size": 96, "attention_bias": False, "tie_word_embeddings": True},
            151_968,
        ),
        (BASE | {"model_type": "gpt_neox_japanese", "intermediate_multiple_size": 3}, 212_672),
        (BASE | {"model_type": "bloom"}, 256_576),
        (BASE | {"model_type": "bloom", "tie_word_embeddings": False, "n_embed": 32}, 70_048),
        (BASE | {"model_type": "persimmon", "intermediate_size": 96}, 159_808),
        (BASE | {"model_type": "persimmon", "intermediate_size": 96, "qk_layernorm": False}, 159_648),
    ],
)
def test_parameters(config, parameters):
    assert read(**config).parameters == parameters


def test_names_and_caches():
    names = {tensor.name for tensor in read(model_type="gpt_neox", intermediate_size=96, **BASE).tensors}
    assert "embed_out.weight" in names
    assert read(model_type="bloom", **BASE).caches == (FullAttention(8, 8, 8, 0),) * 5


def test_spellings():
    short = {"n_layer": 5, "hidden_size": 64, "n_head": 8, "vocab_size": 100}
    assert read(model_type="bloom", **short).parameters == read(model_type="bloom", **BASE).parameters


def test_rope():
    assert read(model_type="gpt_neox", intermediate_size=96, **BASE).rotary_dim == 2
    assert read(model_type="gpt_neox", intermediate_size=96, rotary_pct=1.0, **BASE).rotary_dim == 8
    assert read(model_type="bloom", **BASE).rotary_dim == 0


def test_what_is_impossible():
    with pytest.raises(ConfigError, match="hidden_size"):
        read(**BASE | {"model_type": "bloom", "hidden_size": 60})
