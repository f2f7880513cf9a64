"""T5, mT5 and UMT5."""

import copy

import pytest

from kvtax.architectures.cache import CrossAttention, FullAttention
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

T5 = {
    "model_type": "t5",
    "architectures": ["T5ForConditionalGeneration"],
    "d_model": 24,
    "d_kv": 8,
    "d_ff": 40,
    "num_layers": 3,
    "num_heads": 4,
    "vocab_size": 100,
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
        ({}, 42_232),
        ({"model_type": "mt5", "architectures": ["MT5ForConditionalGeneration"], "num_decoder_layers": 5}, 66_184),
        ({"model_type": "umt5", "architectures": ["UMT5ForConditionalGeneration"]}, 48_504),
        ({"feed_forward_proj": "gated-gelu", "architectures": ["T5EncoderModel"]}, 20_552),
    ],
)
def test_parameters(changes, parameters):
    assert read(T5, **changes).parameters == parameters


def test_head_of_its_own():
    # T5 1.1 says false and has a head in the file: flan-t5-base is published with 247,577,856 parameters
    config = {
        "d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12, "num_heads": 12, "vocab_size": 32128,
        "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
    }  # fmt: skip
    assert read(T5 | config).parameters == 247_577_856


def test_caches():
    whole = read(T5, num_decoder_layers=2)
    own, source = FullAttention(4, 8, 8), CrossAttention(4, 8, 8, 512)
    assert whole.kind == "encoder-decoder"
    assert whole.caches == (own, source, own, source)
    assert whole.cache_layers == (0, 0, 1, 1)
    assert read(T5, architectures=["T5EncoderModel"]).caches == ()


def test_other_spelling():
    other = read(T5, d_model=None, hidden_size=24, num_heads=None, num_attention_heads=4)
    assert other.tensors == read(T5).tensors


def test_refused():
    with pytest.raises(UnsupportedArchitectureError):
        read(T5, feed_forward_proj="a-b-c")
    with pytest.raises(UnsupportedArchitectureError):
        read(T5, architectures=["T5ForTokenClassification"])
    with pytest.raises(ConfigError):
        read(T5, d_model=0)
