"""Phi 1 to 4 and Phi-3-small."""

import pytest

from kvtax.architectures.cache import FullAttention, SlidingWindow
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
        (BASE | {"model_type": "phi"}, 127_908),
        (BASE | {"model_type": "phi", "qk_layernorm": True, "num_key_value_heads": None}, 159_268),
        (BASE | {"model_type": "phi3"}, 156_864),
        (
            {
                "num_hidden_layers": 5,
                "hidden_size": 64,
                "num_attention_heads": 8,
                "vocab_size": 100,
                "intermediate_size": 96,
                "model_type": "phi3",
                "tie_word_embeddings": True,
            },
            181_184,
        ),
        ({"model_type": "phi3"}, 3_821_079_552),
    ],
)
def test_parameters(config, parameters):
    assert read(**config).parameters == parameters


def test_phi3_has_one_window():
    assert read(model_type="phi3", sliding_window=2047, **BASE).caches[4] == SlidingWindow(2, 8, 8, 2047, 0)
    assert read(model_type="phi3", **BASE).caches[4] == FullAttention(2, 8, 8, 0)


def test_phi3_small():
    # the published checkpoint holds 2,048 more: the frequencies of its rope
    whole = read(model_type="phi3small")
    assert whole.parameters == 7_392_272_384
    assert whole.kv_bytes_per_token() == 32 * 2 * 8 * 128 * 2
    stated = read(model_type="phi3small", ff_intermediate_size=96, hidden_size=64)
    derived = read(model_type="phi3small", ff_intermediate_size=None, ff_dim_multiplier=1, hidden_size=64)
    assert derived.intermediate_size == 256
    assert stated.intermediate_size == 96
    unpadded = {"ff_intermediate_size": None, "ff_dim_multiplier": 1, "gegelu_pad_to_256": False, "hidden_size": 64}
    assert read(model_type="phi3small", **unpadded).intermediate_size == 42


def test_part_of_the_head_that_rope_turns():
    assert read(model_type="phi", **BASE).rotary_dim == 4
    assert read(model_type="phi3", **BASE).rotary_dim == 8
    assert read(model_type="phi3", partial_rotary_factor=0.75, **BASE).rotary_dim == 6
    assert read(model_type="phi3", rope_parameters={"partial_rotary_factor": 0.25}, **BASE).rotary_dim == 2


def test_what_is_impossible():
    with pytest.raises(ConfigError, match="partial_rotary_factor"):
        read(model_type="phi3", partial_rotary_factor=2, **BASE)
