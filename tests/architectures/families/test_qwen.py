"""Qwen 1 to 3 and MiMo."""

import pytest

from kvtax.architectures.cache import FullAttention, SlidingWindow
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
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
        (BASE | {"model_type": "qwen2"}, 157_344),
        (BASE | {"model_type": "qwen2", "tie_word_embeddings": True, "head_dim": 20}, 228_464),
        (BASE | {"model_type": "qwen3"}, 926_144),
        (BASE | {"model_type": "qwen3", "attention_bias": True, "head_dim": 12, "num_key_value_heads": None}, 230_424),
        (BASE | {"model_type": "qwen2", "architectures": ["Qwen2ForSequenceClassification"], "num_labels": 3}, 151_136),
        (BASE | {"model_type": "qwen2", "architectures": ["Qwen2Model"]}, 150_944),
        ({"model_type": "qwen2"}, 12_049_846_272),
    ],
)
def test_parameters(config, parameters):
    assert read(**config).parameters == parameters


def windows(**config):
    caches = read(**BASE, **config).caches
    return [cache.window if isinstance(cache, SlidingWindow) else None for cache in caches]


def test_windows_are_off_unless_they_are_asked_for():
    assert windows(model_type="qwen2", sliding_window=10, max_window_layers=2) == [None] * 5
    on = {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 10}
    assert windows(**on, max_window_layers=2) == [None, None, 10, 10, 10]
    # the class default is that the first 28 layers are full
    assert windows(**on) == [None] * 5
    kinds = ["sliding_attention", *["full_attention"] * 4]
    assert windows(**on, layer_types=kinds) == [10, None, None, None, None]


def test_qwen1_keeps_gate_and_up_in_one_number():
    # the count of the published checkpoint
    assert read(model_type="qwen").parameters == 7_721_324_544
    assert read(model_type="qwen").caches[0] == FullAttention(32, 128, 128, 0)


def test_mimo_lists_its_prediction_layer_without_loading_it():
    plain = read(model_type="mimo", **BASE)
    assert plain.parameters == read(model_type="qwen2", **BASE).parameters
    with_mtp = read(model_type="mimo", num_nextn_predict_layers=2, **BASE)
    assert with_mtp.parameters == plain.parameters
    names = {tensor.name for tensor in with_mtp.tensors if not tensor.loaded}
    assert "model.mtp_layers.*.input_proj.weight" in names
    assert all(tensor.component == "mtp" for tensor in with_mtp.tensors if not tensor.loaded)


def test_what_is_impossible_or_not_understood():
    with pytest.raises(ConfigError, match="num_key_value_heads"):
        read(**BASE | {"model_type": "qwen2", "num_key_value_heads": 3})
    kinds = ["strange_attention"] * 5
    with pytest.raises(UnsupportedArchitectureError, match="strange_attention"):
        read(model_type="qwen2", use_sliding_window=True, layer_types=kinds, **BASE)
