"""Fit finds what a brute-force search finds, calls nothing a fit that budget does not, and says what binds where nothing does."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvtax
from kvtax.errors import InputError
from kvtax.planning.fit import KEYS, RANKS, rank_key
from kvtax.planning.need import Class, Need, carries, read_mix, share_needed
from kvtax.sources.gpus import find_gpu
from kvtax.sources.prices import PriceEntry, Prices, load_prices

CARDS = ["l4", "rtx-4090", "a100-80gb-sxm", "h100-sxm", "dgx-spark", "mi300x"]
MODELS = ["llama-3-8b", "qwen3-32b", "gpt-oss-120b", "gemma-3-27b", "deepseek-v3"]


def brute(fields, grid):
    """Every choice that budget calls a fit, one by one."""
    found = []
    for values in product(*grid.values()):
        change = dict(zip(grid, values, strict=True))
        count = change.get("tensor_parallel_size") or change.get("gpu_count") or 1
        if count > 1 and find_gpu(change["gpu"]).unified_memory:
            continue
        if kvtax.budget(**fields, **change).fits:
            found.append(change)
    return found


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(MODELS),
    st.sampled_from([1, 8, 40, 400]),
    st.sampled_from([1024, 8192, 32768]),
    st.sampled_from(["vllm", "sglang", "llama.cpp"]),
    st.sampled_from(KEYS),
)
def test_fit_is_brute_force_ranked(model, concurrency, length, engine, by):
    fields = {"model": model, "concurrency": concurrency, "max_model_len": length, "engine": engine}
    count = "gpu_count" if engine == "llama.cpp" else "tensor_parallel_size"
    prices = Prices(PriceEntry(card, float(place)) for place, card in enumerate(CARDS, 1))
    found = kvtax.fit(gpu=CARDS, by=by, prices=prices, **fields)
    expected = brute(fields, {"gpu": CARDS, count: RANKS})
    assert sorted(map(str, expected)) == sorted(str(dict(choice.change)) for choice in found.choices)
    assert all(kvtax.budget(**fields, **choice.change).verdict == "fits" for choice in found.choices)
    keys = [rank_key(choice, by) for choice in found.choices]
    assert keys == sorted(keys)
    assert (found.limit is None) == bool(found.choices)


def test_more_choices_are_looked_at_on_demand():
    fields = {"model": "llama-3.1-70b", "concurrency": 8, "max_model_len": 8192}
    found = kvtax.fit(
        vary={"kv_cache_dtype": ["auto", "fp8"], "tensor_parallel_size": [2, 4]}, gpu=["h100-sxm", "l40s"], **fields
    )
    grid = {"gpu": ["h100-sxm", "l40s"], "kv_cache_dtype": ["auto", "fp8"], "tensor_parallel_size": [2, 4]}
    assert len(found.choices) == len(brute(fields, grid))
    assert found.tried == 8


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), st.sampled_from([512, 2048, 8192])), min_size=1, max_size=4))
def test_a_mix_takes_the_sum_of_its_shares(mix):
    budget = kvtax.budget(model="llama-3-8b", gpu="l40s", max_model_len=8192)
    need = Need(mix=tuple(Class(*each) for each in mix))
    expected = sum(
        count / kvtax.budget(model="llama-3-8b", gpu="l40s", max_model_len=length).max_concurrency
        for count, length in mix
    )
    assert share_needed(budget, need) == pytest.approx(expected)
    assert carries(budget, need) == (expected <= 1)


def test_a_mix_of_one_length_is_a_plain_need():
    plain = kvtax.fit(model="qwen3-32b", gpu=CARDS, concurrency=16, max_model_len=8192)
    mixed = kvtax.fit(model="qwen3-32b", gpu=CARDS, traffic=[(16, 8192)])
    assert [choice.change for choice in plain.choices] == [choice.change for choice in mixed.choices]


@pytest.mark.parametrize("engine", ["vllm", "llama.cpp"])
def test_the_nearest_need_is_carried_and_one_more_is_not(engine):
    found = kvtax.fit(model="qwen3-32b", gpu=["h100-sxm"], engine=engine, concurrency=3000, max_model_len=16384)
    assert found.limit.what == "kv_pool"
    fewer, shorter = found.limit.nearest
    for near, more in ((fewer, {"concurrency": 1}), (shorter, {"max_model_len": 1})):
        asked = {"concurrency": near.need.concurrency, "max_model_len": near.need.max_model_len}
        same = {"model": "qwen3-32b", "engine": engine, **near.change}
        assert kvtax.budget(**same, **asked).fits
        longer = {name: value + more.get(name, 0) for name, value in asked.items()}
        count = "gpu_count" if engine == "llama.cpp" else "tensor_parallel_size"
        others = [{"gpu": "h100-sxm", count: ranks} for ranks in RANKS]
        assert not any(kvtax.budget(model="qwen3-32b", engine=engine, **longer, **other).fits for other in others)


def test_a_mix_that_is_too_much_is_scaled_down():
    found = kvtax.fit(model="qwen3-32b", gpu=["h100-sxm"], traffic=[(3000, 4096), (500, 16384)])
    near = found.limit.nearest[0]
    assert carries(near.budget, near.need)
    assert near.need.mix[0].concurrency / near.need.mix[1].concurrency == pytest.approx(6, rel=0.1)


def test_weights_that_no_choice_holds():
    found = kvtax.fit(model="deepseek-v3", gpu=["l4"])
    assert found.limit.what == "weights"
    assert not found.limit.nearest


def test_what_the_engine_refuses():
    found = kvtax.fit(model="llama-3-8b", gpu=["t4"], dtype="bfloat16", max_model_len=512)
    assert found.limit.what == "refused"


def test_an_error_of_every_choice_is_raised():
    with pytest.raises(kvtax.UnknownNameError):
        kvtax.fit(model="no-such-model")
    with pytest.raises(InputError, match="ranked by"):
        kvtax.fit(model="llama-3-8b", by="colour")
    with pytest.raises(InputError, match="no prices"):
        kvtax.fit(model="llama-3-8b", by="price")


@pytest.mark.parametrize("text", ["", "4", "4x", "x4k", "0x4k", "4x0", "ax4k", ",", "1x2x3"])
def test_a_mix_that_cannot_be_read(text):
    with pytest.raises(InputError):
        read_mix(text)


def test_prices_are_of_all_cards():
    found = kvtax.fit(model="llama-3-8b", gpu=["h100-sxm"], max_model_len=8192, prices=load_prices("examples"))
    one = found.choices[0].price_per_hour
    assert [choice.price_per_hour for choice in found.choices] == pytest.approx(
        [one * choice.cards for choice in found.choices]
    )


def test_each_engine_shares_a_model_in_its_own_way():
    fields = {"model": "qwen3-32b", "concurrency": 2, "max_model_len": 8192}
    found = kvtax.fit(vary={"engine": ["vllm", "llama.cpp"]}, gpu=["l4", "h100-sxm"], **fields)
    for engine, count in (("vllm", "tensor_parallel_size"), ("llama.cpp", "gpu_count")):
        alone = kvtax.fit(gpu=["l4", "h100-sxm"], engine=engine, **fields)
        shown = [choice.change for choice in found.choices if choice.change["engine"] == engine]
        assert sorted(map(str, shown)) == sorted(str({"engine": engine, **choice.change}) for choice in alone.choices)
        assert any(change[count] > 1 for change in shown)
