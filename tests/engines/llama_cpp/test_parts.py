"""Shapes, presets, cells and placement on their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtax.architectures.gguf import traits
from kvtax.architectures.gguf.keys import read_shape
from kvtax.architectures.gguf.tensor import GgufTensor
from kvtax.engines.llama_cpp import cache, placement, presets
from kvtax.engines.llama_cpp.presets import Facts
from kvtax.errors import InputError, KvtaxError, UnknownNameError, UnsupportedArchitectureError

KEYS = {
    "general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 256, "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2, "llama.feed_forward_length": 512, "llama.vocab_size": 1000,
}  # fmt: skip


def test_keys_with_their_architecture_or_without() -> None:
    shape = read_shape(KEYS)
    assert shape == read_shape({key.removeprefix("llama."): value for key, value in KEYS.items()}, "llama")
    assert (shape.layers[0].key_length, shape.layers[1].head_count_kv, len(shape.layers)) == (64, 2, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"llama.block_count": 0}, {"llama.block_count": -1}, {"llama.block_count": "2"}, {"llama.block_count": 10**9},
        {"llama.embedding_length": None}, {"llama.attention.head_count_kv": [2]}, {"llama.vocab_size": 2.5},
        {"llama.attention.sliding_window": 8, "llama.attention.sliding_window_pattern": []},
    ],
)  # fmt: skip
def test_keys_that_cannot_be(changes: dict[str, object]) -> None:
    with pytest.raises(InputError):
        read_shape(KEYS | changes)


def test_no_architecture() -> None:
    with pytest.raises(UnsupportedArchitectureError):
        read_shape({"block_count": 2})


def test_a_prediction_layer_is_no_layer_of_the_main_model() -> None:
    shape = read_shape(KEYS | {"llama.block_count": 3, "llama.nextn_predict_layers": 1})
    assert (len(shape.layers), shape.next_layers) == (2, 1)


def test_window_patterns() -> None:
    gemma = {key.replace("llama", "gemma3"): value for key, value in KEYS.items()}
    gemma |= {"general.architecture": "gemma3", "gemma3.block_count": 12, "gemma3.attention.sliding_window": 512}
    assert [layer.windowed for layer in read_shape(gemma).layers] == ([True] * 5 + [False]) * 2
    stated = gemma | {"gemma3.attention.sliding_window_pattern": [True, False]}
    assert [layer.windowed for layer in read_shape(stated).layers] == [True, False] * 6
    period = gemma | {"gemma3.attention.sliding_window_pattern": 3}
    assert [layer.windowed for layer in read_shape(period).layers] == [True, True, False] * 4
    assert not any(layer.windowed for layer in read_shape(KEYS | {"llama.attention.sliding_window": 512}).layers)


VALUES = st.one_of(
    st.integers(-2, 2**50), st.integers(0, 8), st.booleans(), st.none(), st.text(max_size=3), st.floats(allow_nan=True),
    st.lists(st.one_of(st.integers(-1, 9), st.none(), st.booleans()), max_size=5),
)  # fmt: skip
NAMES = (
    "block_count", "embedding_length", "attention.head_count", "attention.head_count_kv", "feed_forward_length", "vocab_size",
    "attention.key_length", "attention.sliding_window", "attention.sliding_window_pattern", "attention.shared_kv_layers",
    "full_attention_interval", "attention.recurrent_layers", "attention.indexer.key_length", "attention.indexer.types",
    "attention.compress_ratios", "ssm.state_size", "ssm.inner_size", "ssm.conv_kernel", "kda.head_dim", "wkv.head_size",
    "shortconv.l_cache", "nextn_predict_layers", "expert_used_count", "attention.key_length_mla",
)  # fmt: skip


@given(
    st.sampled_from(
        ["llama", "gemma3", "qwen35", "nemotron_h", "jamba", "deepseek4", "glm-dsa", "mamba", "rwkv6", "unheard-of"]
    ),
    st.dictionaries(st.sampled_from(NAMES), VALUES),
)
def test_whatever_keys_say_there_is_a_shape_or_one_clear_error(arch: str, changes: dict[str, object]) -> None:
    plain = {key.removeprefix("llama."): value for key, value in KEYS.items() if not key.startswith("general")}
    try:
        shape = read_shape(plain | changes, arch)
    except KvtaxError:
        return
    assert cache.context_bytes(shape, cache.Context(4096, cache_type_k="f32", cache_type_v="f32")) >= 0


def test_deepseek_v4_keeps_a_window_compressed_rows_and_states() -> None:
    """Worked out by hand from the rules; no context of it was measured."""
    keys = {
        "block_count": 3, "embedding_length": 1024, "attention.head_count": 8, "attention.head_count_kv": 1, "vocab_size": 1000,
        "attention.key_length": 512, "attention.value_length": 512, "attention.sliding_window": 128, "attention.indexer.key_length": 128,
        "attention.compress_ratios": [0, 4, 128],
    }  # fmt: skip
    shape = read_shape(keys, "deepseek4")
    context = cache.Context(8192)
    window = 768 * 512 * 2  # pad(128 + 512, 256) cells
    sizes = [cache.layer_kv_bytes(shape, layer, context) for layer in shape.layers]
    assert sizes == [window, window + 2048 * (512 + 128) * 2, window + 256 * 512 * 2]
    states = [cache.layer_state_bytes(shape, layer, context) for layer in shape.layers]
    assert states == [0, 4 * 2 * 8 * (1024 + 256), 4 * 2 * 128 * 512]


@given(st.integers(1, 200_000), st.integers(1, 64), st.booleans())
def test_slots_hold_what_is_asked_for(n_ctx: int, n_parallel: int, unified: bool) -> None:
    context = cache.Context(n_ctx, n_parallel, kv_unified=unified)
    assert context.n_ctx_effective % 256 == 0
    assert context.n_ctx_effective >= n_ctx
    assert context.n_ctx_effective < n_ctx + 256 * (n_parallel + 1)
    assert context.ubatch <= context.batch <= n_ctx


@given(
    st.integers(1, 120),
    st.integers(0, 130),
    st.lists(st.integers(0, 100), min_size=1, max_size=8).filter(lambda shares: sum(shares) > 0),
)
def test_every_unit_has_a_home_and_the_last_ones_are_on_cards(blocks: int, units: int, shares: list[int]) -> None:
    cards = placement.assign(blocks, units, shares)
    assert len(cards) == blocks + 1
    assert sum(card >= 0 for card in cards) == min(units, blocks + 1)
    assert cards == sorted(cards)
    assert all(card < 0 or shares[card] for card in cards)


def test_presets_have_the_names_of_llama_quantize() -> None:
    assert presets.find_preset("Q4_K_M") == presets.find_preset("q4-k-m") == "q4_k_m"
    assert not presets.is_preset("fp8")
    with pytest.raises(UnknownNameError):
        presets.find_preset("q9_z")


def test_rows_that_are_no_whole_blocks_take_another_type() -> None:
    tensors = [GgufTensor("ffn_up", (columns, 64), 0) for columns in (256, 288, 40)]
    facts = Facts("llama", 32, 1)
    assert presets.tensor_types("q4_k_s", tensors, facts) == ["q4_k", "q5_0", "float16"]
    assert presets.tensor_types("q2_k", tensors[:2], facts) == ["q2_k", "q4_0"]


def test_norms_routers_and_vectors_stay_float32() -> None:
    kept = [
        GgufTensor("attn_norm", (256,), 0), GgufTensor("ffn_gate_inp", (256, 8), 0), GgufTensor("ssm_conv1d", (4, 256), 0),
        GgufTensor("attn_q.bias", (256,), 0),
    ]  # fmt: skip
    assert presets.tensor_types("q4_k_m", kept, Facts("llama", 1, 1)) == ["float32"] * 4
    assert presets.tensor_types("bf16", kept, Facts("llama", 1, 1)) == ["float32"] * 4


def test_fused_projections_were_no_values_before() -> None:
    tensors = [GgufTensor("attn_qkv", (256, 768), index) for index in range(32)]
    newest, older = Facts("phi3", 32, 1), Facts("phi3", 32, 1, fused_qkv_is_value=False)
    assert set(presets.tensor_types("q4_k_m", tensors, newest)) == {"q4_k", "q6_k"}
    assert set(presets.tensor_types("q4_k_m", tensors, older)) == {"q5_k"}


def test_an_importance_matrix_changes_the_first_layers() -> None:
    tensors = [GgufTensor("ffn_down", (256, 256), index) for index in range(16)]
    plain = presets.tensor_types("iq4_xs", tensors, Facts("llama", 16, 1))
    helped = presets.tensor_types("iq4_xs", tensors, Facts("llama", 16, 1, imatrix=True))
    assert plain[:2] == ["q5_k", "q5_k"]
    assert set(helped) == {"iq4_xs"}


def test_rows_of_a_cache_are_whole_blocks() -> None:
    assert cache.row_bytes("q8_0", 1024) == 1088
    with pytest.raises(InputError):
        cache.row_bytes("q8_0", 100)


def test_exaone_has_windows_in_one_size_only() -> None:
    assert traits.period("exaone4", 64) == (4, False)
    assert traits.period("exaone4", 30) is None
