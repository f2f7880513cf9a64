"""Gemma 1, 2 and 3 (text) and VaultGemma."""

import pytest

from kvtax.architectures.cache import SlidingWindow
from kvtax.architectures.config import Config
from kvtax.architectures.families.gemma import build
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError
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
        (BASE | {"model_type": "gemma", "head_dim": 16}, 201_664),
        (BASE | {"model_type": "gemma2", "attention_bias": True}, 1_753_984),
        (BASE | {"model_type": "gemma3_text"}, 1_740_864),
        (BASE | {"model_type": "gemma3_text", "tie_word_embeddings": False, "head_dim": 12}, 183_224),
        (BASE | {"model_type": "vaultgemma"}, 1_737_664),
        ({"model_type": "gemma3_text"}, 2_628_658_432),
    ],
)
def test_parameters(config, parameters):
    assert read(**config).parameters == parameters


def windows(**config):
    caches = read(**BASE | config).caches
    return [cache.window if isinstance(cache, SlidingWindow) else None for cache in caches]


def test_gemma2_alternates():
    assert windows(model_type="gemma2") == [4096, None, 4096, None, 4096]
    assert windows(model_type="vaultgemma", sliding_window=9) == [9, None, 9, None, 9]
    assert windows(model_type="gemma2", sliding_window=9, layer_types=["full_attention"] * 5) == [None] * 5
    assert windows(model_type="gemma") == [None] * 5


def test_every_sixth_layer_of_gemma3_is_full():
    twelve = {"model_type": "gemma3_text", "num_hidden_layers": 12, "sliding_window": 512}
    expected = [512] * 5 + [None] + [512] * 5 + [None]
    assert windows(**twelve) == expected
    assert windows(**twelve, sliding_window_pattern=6) == expected
    kinds = ["sliding_attention" if window else "full_attention" for window in expected]
    assert windows(**twelve, layer_types=kinds) == expected
    assert windows(**twelve, sliding_window_pattern=4) == [512, 512, 512, None] * 3


def test_encoder_that_looks_both_ways_has_half_the_window():
    assert windows(model_type="gemma3_text", sliding_window=512, use_bidirectional_attention=True) == [257] * 5


def test_text_config_of_another_model():
    outer = {"model_type": "gemma3", "text_config": {"num_hidden_layers": 2}}
    config = Config(outer, class_defaults).sub("text_config")
    found = build(config, prefix="language_model.")
    assert all(tensor.name.startswith("language_model.model.") for tensor in found.tensors)
    assert found.num_hidden_layers == 2


def test_what_is_impossible():
    with pytest.raises(ConfigError, match="sliding_window_pattern"):
        windows(model_type="gemma3_text", sliding_window_pattern=0)
