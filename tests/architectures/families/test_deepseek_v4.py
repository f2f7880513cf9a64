"""DeepSeek V4. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import CompressedLatent
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

TINY = {
    "model_type": "deepseek_v4", "num_hidden_layers": 5, "hidden_size": 64, "num_attention_heads": 4, "head_dim": 32,
    "q_lora_rank": 24, "o_groups": 2, "o_lora_rank": 16, "index_n_heads": 3, "index_head_dim": 16, "hc_mult": 3,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "vocab_size": 100,
    "num_hash_layers": 2,
    "compress_ratios": [0, 4, 128, 4, 0, 0],
}  # fmt: skip
SLIDING, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"


def read(config):
    return read_architecture(config, class_defaults)


def test_parameters_and_caches():
    architecture = read(TINY)
    assert architecture.parameters == 326_756
    window, sparse, heavy = (
        CompressedLatent(32, 128, 0),
        CompressedLatent(32, 128, 4, 16),
        CompressedLatent(32, 128, 128),
    )
    assert list(architecture.caches) == [window, sparse, heavy, sparse, window]
    assert architecture.kv_bytes(1000) == 5 * 128 * 64 + 2 * 250 * 96 + 7 * 64


def test_spellings_give_the_same_answer():
    kinds = [SLIDING, SPARSE, HEAVY, SPARSE, SLIDING]
    others = {key: value for key, value in TINY.items() if key not in ("compress_ratios", "num_hash_layers")}
    spelt = read({**others, "layer_types": kinds, "mlp_layer_types": ["hash_moe"] * 2 + ["moe"] * 3})
    assert spelt.parameters == read(TINY).parameters
    assert spelt.caches == read(TINY).caches
    assert read({**TINY, "model_type": "deepseek_ref"}).tensors == read(TINY).tensors


def test_default_kinds_and_rates():
    other = {key: value for key, value in TINY.items() if key != "compress_ratios"}
    assert [cache.ratio for cache in read(other).caches] == [128, 128, 128, 4, 128]
    rates = {"compress_rates": {SPARSE: 8, HEAVY: 64}, "compress_rate_hca": 32}
    assert [cache.ratio for cache in read({**other, **rates}).caches] == [32, 32, 32, 8, 32]


def test_the_file_holds_one_mtp_block_for_each_further_ratio():
    for count in (1, 3):
        architecture = read({**TINY, "compress_ratios": [0, 4, 128, 4, 0] + [0] * count})
        assert architecture.parameters == 326_756
        norms = [tensor for tensor in architecture.tensors if tensor.name == "mtp.*.attn_norm.weight"]
        assert [(tensor.copies, tensor.loaded) for tensor in norms] == [(count, False)]


def test_hashed_layers_have_a_table_instead_of_a_bias():
    buffers = {tensor.name: tensor for tensor in read(TINY).tensors if not tensor.parameter and tensor.loaded}
    assert buffers["layers.*.ffn.gate.tid2eid"].layers == (0, 1)
    assert buffers["layers.*.ffn.gate.tid2eid"].shape == (100, 2)
    assert buffers["layers.*.ffn.gate.bias"].layers == (2, 3, 4)


@pytest.mark.parametrize(
    "change",
    [{"compress_ratios": [0, 4, 16, 4, 0]}, {"layer_types": ["other"] * 5}, {"mlp_layer_types": ["other"] * 5}],
)
def test_kinds_that_are_not_understood(change):
    with pytest.raises(UnsupportedArchitectureError):
        read({**TINY, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"compress_ratios": [0, 4]},
        {"o_groups": 3},
        {"head_dim": None},
        {"compress_rates": {SPARSE: 0, HEAVY: 128}},
        {"compress_rates": [4]},
        {"num_experts_per_tok": 5},
    ],
)
def test_impossible_values(change):
    with pytest.raises(ConfigError):
        read({**TINY, **change})
