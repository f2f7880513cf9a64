"""gpt-oss. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

SIZES = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
OSS = {
    "model_type": "gpt_oss",
    **SIZES,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "intermediate_size": 40,
    "head_dim": 24,
    "sliding_window": 16,
}


def read(config):
    return read_architecture(config, class_defaults)


def test_parameters_and_cache():
    architecture = read(OSS)
    assert architecture.parameters == 214_368
    assert architecture.active_parameters == 151_776
    assert architecture.kv_bytes_per_token(at=1) == 768
    assert architecture.kv_bytes_per_token() == 384
    assert architecture.kv_bytes(100) == 384 * 100 + 384 * 16


def test_every_second_layer_is_full_where_layer_types_are_left_out():
    stated = {**OSS, "layer_types": ["sliding_attention", "full_attention"] * 2}
    assert read(stated).caches == read(OSS).caches


def test_layout_of_the_experts():
    shapes = {tensor.name: tensor.shape for tensor in read(OSS).tensors if tensor.linear and "experts" in tensor.name}
    assert shapes == {
        "model.layers.*.mlp.experts.gate_up_proj": (4, 80, 64),
        "model.layers.*.mlp.experts.down_proj": (4, 64, 40),
    }


def test_other_spelling_of_the_experts_per_token():
    config = {key: value for key, value in OSS.items() if key != "num_experts_per_tok"} | {"experts_per_token": 2}
    assert read(config).active_parameters == 151_776


def test_unknown_layer_type():
    with pytest.raises(UnsupportedArchitectureError, match="layer type"):
        read({**OSS, "layer_types": ["sliding_attention", "full_attention", "chunked", "full_attention"]})


def test_windows_without_a_size():
    with pytest.raises(ConfigError, match="sliding_window"):
        read({**OSS, "sliding_window": None})
