"""Causes add up: parts to the change of the pool, shares of fields to the whole change."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvtax
from kvtax.planning.causes import MOST_FIELDS, causes, figures_of

BASE = {"model": "llama-3-8b", "gpu": "h100-sxm", "max_model_len": 8192}
CHANGES = {
    "kv_cache_dtype": ["fp8"],
    "tensor_parallel_size": [2, 4],
    "gpu": ["l4", "a100-80gb-sxm", "h200-sxm"],
    "max_model_len": [1024, 4096],
    "max_num_batched_tokens": [2048, 16384],
    "enforce_eager": [True],
    "gpu_memory_utilization": [0.8, 0.95],
    "engine_version": ["0.12", "0.19"],
}


@st.composite
def changes(draw):
    names = draw(st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=4, unique=True))
    return {name: draw(st.sampled_from(CHANGES[name])) for name in names}


def compute(some):
    return figures_of(kvtax.budget(**{**BASE, **some}))


@settings(max_examples=40, deadline=None)
@given(changes())
def test_parts_and_shares_add_up(change):
    before, after = compute({}), compute(change)
    found = causes(before, after, change, compute)
    difference = after.kv_pool_bytes - before.kv_pool_bytes
    assert sum(part.effect_bytes for part in found.parts) == difference
    assert sum(share.kv_pool_bytes for share in found.shares) == difference
    requests = sum(share.max_concurrency for share in found.shares)
    assert requests == pytest.approx(after.max_concurrency - before.max_concurrency, abs=1e-6)
    assert sorted(name for share in found.shares for name in share.fields) == sorted(change)


def test_the_order_of_the_changes_does_not_matter():
    one = {"kv_cache_dtype": "fp8", "tensor_parallel_size": 2}
    other = dict(reversed(one.items()))
    shares = [causes(compute({}), compute(change), change, compute).shares for change in (one, other)]
    assert [share.fields for share in shares[0]] == [share.fields for share in shares[1]]
    assert [share.max_concurrency for share in shares[0]] == pytest.approx([s.max_concurrency for s in shares[1]])


def test_many_changes_are_attributed_in_the_order_given():
    change = {name: values[0] for name, values in CHANGES.items() if name != "gpu"}
    assert len(change) > MOST_FIELDS
    found = causes(compute({}), compute(change), change, compute)
    assert found.in_order
    assert (
        sum(share.kv_pool_bytes for share in found.shares) == compute(change).kv_pool_bytes - compute({}).kv_pool_bytes
    )


def test_a_card_and_its_size_are_one_cause():
    change = {"gpu": "l4", "vram": None, "free_memory": None, "kv_cache_dtype": "fp8"}
    base = {**BASE, "vram": "60GiB"}

    def of(some):
        return figures_of(kvtax.budget(**{**base, **some}))

    found = causes(of({}), of(change), change, of)
    assert {share.fields for share in found.shares} == {("gpu", "vram", "free_memory"), ("kv_cache_dtype",)}
