"""DeepSeek V2 to V3.2, Kimi K2 and GLM-5. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import MultiHeadLatent
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

V2 = {
    "model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], "num_hidden_layers": 4, "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": None, "kv_lora_rank": 24, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 20, "intermediate_size": 96, "moe_intermediate_size": 40,
    "n_routed_experts": 6,
    "n_shared_experts": 2, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "vocab_size": 130,
    "attention_bias": True, "mlp_bias": True,
}  # fmt: skip
V32 = {
    "model_type": "deepseek_v32", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 24, "index_n_heads": 3, "index_head_dim": 48, "vocab_size": 100, "n_routed_experts": 4,
    "mlp_layer_types": ["sparse", "dense", "sparse", "dense"], "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "intermediate_size": 56,
}  # fmt: skip
GLM = {
    "model_type": "glm_moe_dsa", "num_hidden_layers": 7, "hidden_size": 64, "num_attention_heads": 4, "q_lora_rank": 32,
    "kv_lora_rank": 24, "vocab_size": 100, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "intermediate_size": 56, "first_k_dense_replace": 2, "index_topk_freq": 3, "index_skip_topk_offset": 2,
}  # fmt: skip
LITE = {
    "model_type": "glm4_moe_lite", "num_hidden_layers": 3, "hidden_size": 64, "vocab_size": 100,
    "tie_word_embeddings": True
}  # fmt: skip


def read(config):
    return read_architecture(config, class_defaults)


@pytest.mark.parametrize(
    ("config", "parameters", "growth"),
    [
        (V2, 289_600, 4 * 2 * (24 + 8)),
        ({"model_type": "deepseek_v3", "num_hidden_layers": 5}, 26_618_387_456, 5 * 1152),
        ({"model_type": "kimi_k2", "num_hidden_layers": 5}, 26_618_387_456, 5 * 1152),
        (V32, 471_968, 4 * (2 * (24 + 64) + 48 + 4)),
        (GLM, 1_619_784, 7 * 2 * (24 + 64) + 3 * 132),
        (LITE, 67_123_648, 3 * 1152),
    ],
)
def test_parameters_and_cache_growth(config, parameters, growth):
    architecture = read(config)
    assert architecture.parameters == parameters
    assert architecture.kv_bytes_per_token() == growth
    assert architecture.kv_bytes(100) == 100 * growth


def test_active_parameters_leave_unused_experts_out():
    sparse, unused, expert = 3, 4, 3 * 40 * 64
    assert read(V2).active_parameters == 289_600 - sparse * unused * expert


def test_shared_indexers_are_owned_by_some_layers():
    caches = read(GLM).caches
    assert [cache.index_bytes for cache in caches] == [132, 132, 0, 0, 132, 0, 0]
    stated = {**GLM, "indexer_types": ["full"] + ["shared"] * 6}
    assert [cache.index_bytes for cache in read(stated).caches] == [132] + [0] * 6
    pattern = {**GLM, "index_topk_pattern": "FSSFSSF"}
    assert (
        read(pattern).caches == read({**GLM, "index_topk_pattern": ["full", "shared", "shared"] * 2 + ["full"]}).caches
    )
    assert read(GLM).caches[2] == MultiHeadLatent(24, 64)


def test_mtp_layers_are_in_the_file_and_not_loaded():
    plain, more = read({**V32, "num_nextn_predict_layers": 0}), read({**V32, "num_nextn_predict_layers": 2})
    assert more.parameters == plain.parameters
    mtp = [tensor for tensor in more.tensors if not tensor.loaded]
    assert {tensor.layers for tensor in mtp} == {(4, 5)}
    assert {tensor.component for tensor in mtp} == {"mtp"}
    assert "model.layers.*.shared_head.head.weight" in {tensor.name for tensor in mtp}
    assert more.caches == plain.caches


def test_experts_from_first_k_dense_replace_in_every_nth_layer():
    architecture = read({**V2, "num_hidden_layers": 6, "first_k_dense_replace": 1, "moe_layer_freq": 2})
    routers = [tensor.layers for tensor in architecture.tensors if tensor.component == "router"]
    assert routers == [(2, 4)]


@pytest.mark.parametrize(
    ("config", "old", "new"), [(V2, "n_routed_experts", "num_experts"), (V32, "n_routed_experts", "num_local_experts")]
)
def test_spellings_of_the_number_of_experts(config, old, new):
    other = {key: value for key, value in config.items() if key != old}
    assert read({**other, new: config[old]}).parameters == read(config).parameters


@pytest.mark.parametrize("heads", [None, 1, 3, 128])
def test_key_value_heads_shape_nothing(heads):
    assert read({**V2, "num_key_value_heads": heads}).parameters == 289_600


def test_no_experts_at_all():
    architecture = read({**V2, "n_routed_experts": None})
    assert architecture.num_experts == 0
    assert architecture.active_parameters == architecture.parameters


@pytest.mark.parametrize("key", ["layer_types", "indexer_types", "mlp_layer_types"])
def test_unknown_kinds_of_layer(key):
    with pytest.raises(UnsupportedArchitectureError):
        read({**GLM, key: ["other"] * 7})


@pytest.mark.parametrize(
    "change",
    [
        {"kv_lora_rank": 0},
        {"q_lora_rank": None},
        {"num_experts_per_tok": 5},
        {"indexer_types": ["full"] * 6},
        {"indexer_types": ["shared"] * 7},
        {"index_topk_pattern": 7},
        {"v_head_dim": "wide"},
    ],
)
def test_impossible_values(change):
    with pytest.raises(ConfigError):
        read({**GLM, **change})
