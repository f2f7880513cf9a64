"""What-if gives what `kvtax budget` gives for the same deployment, in the order asked for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvtax
from kvtax.planning.changes import HARDWARE, LIMIT, NOTHING, QUALITY, RISK, SPEED
from kvtax.planning.grid import Axis
from kvtax.planning.lengths import room_requests
from kvtax.planning.whatif import all_changes

MODELS = ("llama-3-8b", "gemma-3-27b", "gpt-oss-20b", "qwen3-next-80b", "deepseek-v3")
CARDS = ("l4", "a100-80gb-sxm", "h100-sxm", "mi300x", "rtx-4090")
VALUES = {
    "kv_cache_dtype": ["auto", "fp8"],
    "tensor_parallel_size": [1, 2, 3, 8],
    "gpu": list(CARDS),
    "max_model_len": [1024, 32768],
    "enforce_eager": [True, False],
    "quantization": [None, "fp8", "awq-int4"],
    "engine": ["vllm", "sglang"],
    "concurrency": [None, 1, 500],
}


@st.composite
def questions(draw):
    base = {"model": draw(st.sampled_from(MODELS)), "gpu": draw(st.sampled_from(CARDS)), "max_model_len": 4096}
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3, unique=True))
    return base, [{name: draw(st.sampled_from(VALUES[name]))} for name in names]


def same(one, other):
    assert (one.verdict, one.max_concurrency, one.capacity_tokens) == (
        other.verdict,
        other.max_concurrency,
        other.capacity_tokens,
    )
    assert one.per_gpu == other.per_gpu
    assert one.interval == other.interval


@settings(max_examples=60, deadline=None)
@given(questions())
def test_every_figure_is_that_of_budget(question):
    base, changes = question
    found = kvtax.whatif(changes, **base)
    same(found.base, kvtax.budget(**base))
    assert len(found.outcomes) == (1 if len(changes) == 1 else len(changes) + 1)
    for outcome in found.outcomes:
        assert outcome.budget is not None, outcome.error
        same(outcome.budget, kvtax.budget(**{**base, **outcome.set}))
        difference = outcome.budget.kv_pool_bytes - found.base.kv_pool_bytes
        assert sum(part.effect_bytes for part in outcome.causes.parts) == difference


def test_each_alone_and_all_together():
    changes = [{"kv_cache_dtype": "fp8"}, {"tensor_parallel_size": 2}, {"tensor_parallel_size": 4}]
    found = all_changes(changes, [])
    assert found[:3] == changes
    assert found[3:] == [
        {"kv_cache_dtype": "fp8", "tensor_parallel_size": 2},
        {"kv_cache_dtype": "fp8", "tensor_parallel_size": 4},
    ]


def test_a_grid_is_laid_over_each_change():
    found = all_changes([{"kv_cache_dtype": "fp8"}], [Axis("max_model_len", (1, 2)), Axis("concurrency", (3,))])
    assert found == [
        {"kv_cache_dtype": "fp8", "max_model_len": 1, "concurrency": 3},
        {"kv_cache_dtype": "fp8", "max_model_len": 2, "concurrency": 3},
    ]


def test_what_holds_for_one_card_alone_is_set_back_with_it():
    found = kvtax.whatif([{"gpu": "l4"}], model="llama-3-8b", gpu="h100-sxm", vram="60GiB", max_model_len=4096)
    assert found.outcomes[0].set == {"gpu": "l4", "vram": None}
    same(found.outcomes[0].budget, kvtax.budget(model="llama-3-8b", gpu="l4", max_model_len=4096))


def test_an_engine_does_not_inherit_a_version():
    found = kvtax.whatif([{"engine": "sglang"}], model="llama-3-8b", gpu="l4", engine_version="0.19")
    assert found.outcomes[0].set == {"engine": "sglang", "engine_version": None}


def test_a_change_that_cannot_be_made_is_an_outcome():
    found = kvtax.whatif([{"gpu": "no-such-card"}, {"n_parallel": 4}], model="llama-3-8b", gpu="l4")
    assert [outcome.error.code for outcome in found.outcomes] == ["unknown-gpu", "field-not-in-engine", "unknown-gpu"]


@pytest.mark.parametrize(
    "base",
    [
        {"model": "llama-3-8b", "gpu": "l4", "max_model_len": 8192, "concurrency": 8},
        {"model": "qwen3-next-80b", "gpu": "h200-sxm", "max_model_len": 32768},
        {"model": "qwen3-30b-a3b", "gpu": "rtx-4090", "engine": "llama.cpp", "max_model_len": 32768, "concurrency": 4},
        {"model": "gpt-oss-120b", "gpu": "h100-sxm", "engine": "sglang", "max_model_len": 65536},
        {"model": "llama-3-8b", "gpu": "t4", "dtype": "bfloat16"},
    ],
    ids=str,
)
def test_levers_are_ranked_and_bring_what_they_say(base):
    found = kvtax.whatif(**base)
    assert found.ranked
    assert found.outcomes
    ranks = []
    for outcome in found.outcomes:
        same(outcome.budget, kvtax.budget(**{**base, **outcome.set}))
        assert outcome.lever.cost
        assert outcome.lever.paid_with in (HARDWARE, QUALITY, SPEED, LIMIT, RISK, NOTHING)
        assert outcome.budget.verdict != "refused"
        better = room_requests(outcome.budget) > room_requests(found.base)
        assert better or (outcome.fits and not found.base.fits)
        ranks.append((outcome.fits, outcome.budget.verdict == "over_budget", room_requests(outcome.budget)))
    fitting = [rank for rank in ranks if rank[0]]
    assert ranks[: len(fitting)] == fitting
    assert [rank[2] for rank in fitting] == sorted((rank[2] for rank in fitting), reverse=True)


def test_the_notebook_sees_a_table():
    found = kvtax.whatif([{"kv_cache_dtype": "fp8"}], model="llama-3-8b", gpu="h100-sxm")
    assert "<table" in found._repr_html_()
    assert "kv_cache_dtype=fp8" in found._repr_html_()


def test_levers_of_an_engine_that_allocates_bring_room():
    base = {
        "model": "qwen3-8b",
        "gpu": "rtx-4090",
        "engine": "llama.cpp",
        "quantization": "q4_k_m",
        "max_model_len": 32768,
    }
    found = kvtax.whatif(concurrency=2, **base)
    assert room_requests(found.base) > 2
    quantised = next(outcome for outcome in found.outcomes if "cache_type_k" in outcome.set)
    more = int(room_requests(quantised.budget))
    assert kvtax.budget(**{**base, **quantised.set, "concurrency": more}).fits
    assert not kvtax.budget(**{**base, **quantised.set, "concurrency": more + 1}).fits
