"""kvtax agrees with itself: sums, monotony, sharding, concurrency, and the numbers that --explain prints."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvtax
from kvtax.architectures.cache import LayerCache, Recurrent
from kvtax.budgets import Budget
from kvtax.formulas.weights import element_bytes, rank_weight_elements
from strategies import KV_DTYPES, caches, llama_configs

MODELS = [
    "llama-3-8b", "llama-3.1-70b", "qwen2.5-7b", "gemma-3-27b", "gpt-oss-20b", "deepseek-v3", "qwen3-next-80b",
    "llama-4-scout", "phi-3-mini", "mistral-7b", "qwen3-30b-a3b", "deepseek-v3.2",
]  # fmt: skip
LARGE = ("deepseek-v3", "deepseek-v3.2", "llama-4-scout", "llama-3.1-70b", "qwen3-next-80b")
tokens = st.integers(1, 200_000)
dtypes = st.sampled_from(["bfloat16", "fp8_e4m3", "float32"])


def held(layers: list[LayerCache], count: int, dtype: str) -> int:
    return sum(cache.bytes(count, dtype) for cache in layers)


@given(st.lists(caches(), max_size=6), st.lists(caches(), max_size=6), tokens, st.sampled_from(KV_DTYPES))
def test_layers_add_up(first: list[LayerCache], second: list[LayerCache], count: int, dtype: str) -> None:
    assert held(first + second, count, dtype) == held(first, count, dtype) + held(second, count, dtype)


@given(caches(), tokens, st.integers(0, 5000), st.sampled_from(KV_DTYPES))
def test_more_tokens_never_hold_less(cache: LayerCache, count: int, more: int, dtype: str) -> None:
    assert cache.bytes(count, dtype) <= cache.bytes(count + more, dtype)
    assert cache.tokens_held(count) <= count


@given(caches(), tokens)
def test_more_bits_never_hold_less(cache: LayerCache, count: int) -> None:
    sizes = [cache.bytes(count, dtype) for dtype in ("nvfp4", "fp8_e4m3", "bfloat16", "float32")]
    assert sizes == sorted(sizes)


@given(caches(), tokens)
def test_growth_is_the_difference(cache: LayerCache, count: int) -> None:
    if isinstance(cache, Recurrent):
        return
    assert cache.growth("bfloat16", count) == cache.bytes(count, "bfloat16") - cache.bytes(count - 1, "bfloat16")


@given(caches(), tokens, st.sampled_from([1, 2, 3, 4, 8, 16]))
def test_shards_of_a_cache_are_never_less_than_the_whole(cache: LayerCache, count: int, tp: int) -> None:
    assert tp * cache.per_rank(tp).bytes(count, "bfloat16") >= cache.bytes(count, "bfloat16")


@given(llama_configs(), st.sampled_from([1, 2, 3, 4, 8, 16]))
@settings(deadline=None)
def test_shards_of_weights_are_never_less_than_the_whole(config: dict[str, Any], tp: int) -> None:
    found = kvtax.architecture(config)
    on_rank = sum(element_bytes(count, dtype) for (_, dtype), count in rank_weight_elements(found, tp).items())
    assert tp * on_rank >= found.weight_bytes()
    if tp == 1:
        assert on_rank >= found.weight_bytes()


@pytest.mark.parametrize("model", MODELS)
@given(st.sampled_from([1, 2, 4, 8, 16]))
@settings(max_examples=5, deadline=None)
def test_shards_of_catalogue_models(model: str, tp: int) -> None:
    found = kvtax.architecture(model)
    on_rank = sum(element_bytes(count, dtype) for (_, dtype), count in rank_weight_elements(found, tp).items())
    assert tp * on_rank >= found.weight_bytes()


def budget(model: str, **fields: Any) -> Budget:
    return kvtax.budget(model=model, gpu="h200", tensor_parallel_size=8 if model in LARGE else 1, **fields)


@pytest.mark.parametrize("model", MODELS)
@given(st.integers(1, 8192), dtypes)
@settings(max_examples=15, deadline=None)
def test_maximum_concurrency_fits_and_one_more_does_not(model: str, length: int, kv_cache_dtype: str) -> None:
    found = budget(model, max_model_len=length, kv_cache_dtype=None if kv_cache_dtype == "float32" else kv_cache_dtype)
    assert found.verdict == "fits"
    most = math.floor(found.max_concurrency)
    assert most >= 1
    assert (
        budget(model, max_model_len=length, kv_cache_dtype=found.deployment.kv_cache_dtype, concurrency=most).verdict
        == "fits"
    )
    more = budget(model, max_model_len=length, kv_cache_dtype=found.deployment.kv_cache_dtype, concurrency=most + 1)
    assert more.verdict == "over_budget"
    assert found.kv_bytes_per_request * most <= found.kv_pool_bytes < more.kv_demand_bytes + found.pool.bytes_per_block


@pytest.mark.parametrize("model", MODELS)
@given(st.integers(1, 60_000), st.integers(0, 5000))
@settings(max_examples=15, deadline=None)
def test_longer_requests_never_raise_concurrency(model: str, length: int, more: int) -> None:
    one, other = budget(model, max_model_len=length), budget(model, max_model_len=length + more)
    assert one.live_bytes_per_request <= other.live_bytes_per_request
    assert one.kv_bytes_per_request <= other.kv_bytes_per_request


@pytest.mark.parametrize("model", MODELS)
@given(
    st.integers(1, 60_000),
    st.sampled_from(["h100-sxm", "a100-80gb-sxm", "l4", "rtx-4090", "b200", "mi300x"]),
    st.sampled_from([1, 2, 4]),
)
@settings(max_examples=15, deadline=None)
def test_numbers_of_explain_evaluate_to_the_value(model: str, length: int, gpu: str, tp: int) -> None:
    found = kvtax.budget(model=model, gpu=gpu, max_model_len=length, tensor_parallel_size=tp)
    for term in (*found.terms, *found.figures):
        values = {name: given.value for name, given in term.inputs.items()}
        assert eval(term.formula, {"__builtins__": {}}, values) == term.bytes, term  # noqa: S307
        assert eval(term.numbers(), {"__builtins__": {}}) == term.bytes, term  # noqa: S307
        assert term.source


@pytest.mark.parametrize("model", MODELS)
def test_parts_add_up_to_the_card(model: str) -> None:
    for gpu in ("h100-sxm", "rtx-4090", "m3-max", "tpu-v5e"):
        part = kvtax.budget(model=model, gpu=gpu, max_model_len=4096).to_dict()["per_gpu"]
        parts = (
            "weights_bytes",
            "activation_bytes",
            "cuda_graph_bytes",
            "runtime_bytes",
            "kv_pool_bytes",
            "unallocated_bytes",
        )
        assert part["total_bytes"] == sum(part[name] for name in parts)


@given(llama_configs(), st.integers(1, 100_000))
@settings(deadline=None)
def test_a_budget_holds_what_the_architecture_holds(config: dict[str, Any], length: int) -> None:
    found = kvtax.budget(model=config, gpu="h100-sxm", max_model_len=length)
    assert found.live_bytes_per_request == kvtax.architecture(config).kv_bytes(length)
    assert found.kv_bytes_per_request >= found.live_bytes_per_request
