"""Points of a curve are the budgets of their lengths."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvtax
from kvtax.planning.curves import at_lengths, lengths_for

CHOICES = [
    {"model": "llama-3-8b", "gpu": "l4"},
    {"model": "gemma-3-27b", "gpu": "h100-sxm", "engine": "sglang", "kv_cache_dtype": "fp8_e4m3"},
    {"model": "gpt-oss-20b", "gpu": "h100-sxm", "tensor_parallel_size": 2},
    {"model": "llama-3-8b", "gpu": "rtx-4090", "engine": "llama.cpp", "quantization": "q4_k_m", "concurrency": 3},
    {"model": "falcon-mamba-7b", "gpu": "l4"},
    {"model": "llama-3-8b", "gpu": "l4", "engine": "transformers", "concurrency": 2},
]


@given(st.sampled_from(CHOICES), st.integers(1, 131_072))
@settings(max_examples=40, deadline=None)
def test_a_point_is_the_budget_of_its_length(fields, length):
    base = kvtax.budget(**fields)
    (point,) = at_lengths(base, [length])
    limit = base.prepared.architecture.max_position_embeddings or base.max_model_len
    if length > limit:
        assert point is None
        return
    alone = kvtax.budget(**fields, max_model_len=length)
    assert point is not None
    assert point.max_concurrency == alone.max_concurrency
    assert point.per_gpu == alone.per_gpu
    assert (point.verdict, point.live_bytes_per_request) == (alone.verdict, alone.live_bytes_per_request)


def test_lengths_double_to_the_longest_limit_and_hold_what_is_asked():
    short, long = kvtax.budget(model="llama-3-8b", gpu="l4"), kvtax.budget(model="qwen3-32b", gpu="h200")
    asked = kvtax.budget(model="llama-3-8b", gpu="l4", max_model_len=5000)
    assert lengths_for([short]) == (1024, 2048, 4096, 8192)
    assert lengths_for([short, long, asked]) == (1024, 2048, 4096, 5000, 8192, 16384, 32768, 40960)
    assert lengths_for([]) == ()


def test_a_longer_length_than_the_limit_is_there_where_it_is_asked_for():
    beyond = kvtax.budget(model="llama-3-8b", gpu="a100-80", max_model_len=16384)
    assert lengths_for([beyond])[-1] == 16384
    assert at_lengths(beyond, [16384])[0] is not None


@pytest.mark.parametrize("fields", CHOICES)
def test_the_point_at_the_budgets_own_length_is_that_budget(fields):
    base = kvtax.budget(**fields)
    (point,) = at_lengths(base, [base.max_model_len])
    assert point is not None and point.per_gpu == base.per_gpu and point.max_concurrency == base.max_concurrency
