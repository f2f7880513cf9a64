"""BART, mBART, Marian and Pegasus."""

import copy

import pytest

from kvtax.architectures.cache import CrossAttention, FullAttention
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

BART = {
    "model_type": "bart",
    "architectures": ["BartForConditionalGeneration"],
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 36,
    "vocab_size": 100,
    "max_position_embeddings": 20,
}


def read(base, **changes):
    """The architecture of a config, with `text_config__head_dim=4` for a nested key and None for a key that is left out."""
    config = copy.deepcopy(base)
    for path, value in changes.items():
        *levels, key = path.split("__")
        level = config
        for name in levels:
            level = level[name]
        if value is None:
            level.pop(key, None)
        else:
            level[key] = value
    return read_architecture(config, class_defaults)


# parameter counts are those of transformers 5.24.0 for the same configs
@pytest.mark.parametrize(
    ("changes", "parameters"),
    [
        ({}, 32_708),
        ({"model_type": "mbart", "architectures": ["MBartForConditionalGeneration"]}, 32_804),
        ({"model_type": "pegasus", "architectures": ["PegasusForConditionalGeneration"]}, 32_612),
        ({"model_type": "marian", "architectures": ["MarianMTModel"]}, 32_516),
        (
            {
                "model_type": "marian",
                "architectures": ["MarianMTModel"],
                "share_encoder_decoder_embeddings": False,
                "decoder_vocab_size": 90,
            },
            34_676,
        ),
    ],
)
def test_parameters(changes, parameters):
    assert read(BART, **changes).parameters == parameters


def test_caches():
    whole = read(BART)
    own, source = FullAttention(4, 6, 6), CrossAttention(4, 6, 6, 20)
    assert whole.caches == (own, source) * 3
    assert whole.cache_layers == (0, 0, 1, 1, 2, 2)
    assert whole.kv_bytes_per_token() == 3 * 2 * 24 * 2


def test_other_spelling():
    other = read(BART, d_model=None, hidden_size=24, encoder_layers=None, num_hidden_layers=2)
    assert other.tensors == read(BART).tensors


def test_refused():
    with pytest.raises(UnsupportedArchitectureError):
        read(BART, architectures=["BartForSequenceClassification"])
    with pytest.raises(ConfigError):
        read(BART, decoder_attention_heads=5)
