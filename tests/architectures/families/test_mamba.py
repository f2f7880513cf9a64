"""Mamba, Falcon Mamba and Mamba 2. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import Recurrent, State
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError
from kvtax.sources.class_defaults import class_defaults

MAMBA = {
    "model_type": "mamba", "hidden_size": 40, "num_hidden_layers": 3, "vocab_size": 97, "state_size": 8, "conv_kernel": 3,
    "use_bias": True,
}  # fmt: skip
MAMBA2 = {
    "model_type": "mamba2", "hidden_size": 24, "expand": 2, "num_heads": 8, "head_dim": 6, "n_groups": 2,
    "num_hidden_layers": 3, "vocab_size": 60,
}  # fmt: skip


def read(config, **changes):
    return read_architecture({**config, **changes}, class_defaults)


def test_mamba():
    architecture = read(MAMBA)
    assert architecture.parameters == 42_080
    states = (State("conv", (80, 2)), State("recurrent", (80, 8)))
    assert [type(cache) for cache in architecture.caches] == [Recurrent] * 3
    assert architecture.caches[0].states == states
    assert architecture.state_bytes() == 3 * (80 * 2 * 2 + 80 * 8 * 4)
    assert architecture.kv_bytes(1000) == architecture.state_bytes()


def test_a_stated_width_wins_over_the_expansion():
    config = {"model_type": "mamba", "hidden_size": 40, "num_hidden_layers": 3, "vocab_size": 97}
    assert read(config, intermediate_size=50, time_step_rank=5).parameters == 31_790


def test_falcon_mamba_has_norms_without_weights():
    config = {"model_type": "falcon_mamba", "hidden_size": 48, "num_hidden_layers": 2, "vocab_size": 60}
    assert read(config, tie_word_embeddings=False).parameters == 45_264


def test_class_defaults():
    assert read({"model_type": "mamba", "num_hidden_layers": 24}).parameters == 129_135_360
    assert read({"model_type": "mamba2"}).parameters == 7_285_403_648


def test_mamba2():
    architecture = read(MAMBA2)
    assert architecture.parameters == 59_400
    conv, ssm = architecture.caches[0].states
    assert (conv.shape, ssm.shape) == ((48 + 2 * 2 * 128, 3), (8, 6, 128))


def test_ranks_have_a_group_each():
    conv, ssm = read(MAMBA2).caches[0].per_rank(4).states
    assert (conv.shape, ssm.shape) == ((12 + 2 * 128, 3), (2, 6, 128))


def test_what_is_impossible():
    with pytest.raises(ConfigError, match="num_heads"):
        read(MAMBA2, num_heads=7)
    with pytest.raises(ConfigError, match="conv_kernel"):
        read(MAMBA, conv_kernel=0)
    with pytest.raises(ConfigError, match="expand"):
        read(MAMBA, expand=float("inf"))
