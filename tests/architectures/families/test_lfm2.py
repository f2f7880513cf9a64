"""LFM2, LFM2 MoE and LFM3. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import FullAttention, Recurrent, SlidingWindow
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

SHARED = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 60,
}
KINDS = ["conv", "full_attention", "conv"]
LFM2 = {"model_type": "lfm2", "intermediate_size": 100, "block_multiple_of": 16, "layer_types": KINDS, **SHARED}
LFM2_MOE = {
    "model_type": "lfm2_moe", "intermediate_size": 24, "moe_intermediate_size": 8, "num_experts": 4,
    "num_experts_per_tok": 2, "num_dense_layers": 1, "layer_types": KINDS, **SHARED,
}  # fmt: skip
LFM3 = {"model_type": "lfm3", "intermediate_size": 24, **SHARED, "head_dim": 16, "num_hidden_layers": 6}


def read(config, **changes):
    return read_architecture({**config, **changes}, class_defaults)


def test_lfm2():
    architecture = read(LFM2)
    assert architecture.parameters == 95_840
    assert [type(cache) for cache in architecture.caches] == [Recurrent, FullAttention, Recurrent]
    assert architecture.state_bytes() == 2 * 64 * 2 * 2


def test_spellings_give_the_same_answer():
    older = {key: value for key, value in LFM2.items() if key not in ("layer_types", "intermediate_size")}
    other = read(older, full_attn_idxs=[1], block_ff_dim=100, intermediate_size=7)
    assert (other.tensors, other.caches) == (read(LFM2).tensors, read(LFM2).caches)
    assert read(LFM2, tie_embedding=False).parameters == 95_840 + 60 * 64


def test_lfm2_moe():
    architecture = read(LFM2_MOE)
    assert architecture.parameters == 67_168
    assert architecture.active_parameters == 61_024


def test_lfm3():
    architecture = read(LFM3)
    assert architecture.parameters == 125_568
    assert isinstance(architecture.caches[4], SlidingWindow)
    assert architecture.kv_bytes_per_token(at=1) == 2 * architecture.kv_bytes_per_token()
    assert read({"model_type": "lfm3"}).parameters == 1_728_801_536


def test_what_is_not_understood_or_impossible():
    with pytest.raises(UnsupportedArchitectureError, match="sliding_attention"):
        read(LFM2, layer_types=["conv", "sliding_attention", "conv"])
    with pytest.raises(ConfigError, match="layer_types"):
        read(LFM2_MOE, layer_types=None)
    with pytest.raises(ConfigError, match="sliding_window"):
        read(LFM3, sliding_window=None)
