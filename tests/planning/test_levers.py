"""Each change that is offered really gives what it says."""

import pytest

import kvtax
from kvtax.planning.levers import COMMON_CARDS, levers
from kvtax.sources.gpus import find_gpu

QUESTIONS = [
    {"model": "llama-3-8b", "gpu": "a100-80", "max_model_len": 8192, "concurrency": 64},
    {"model": "llama-3-8b", "gpu": "l4", "max_model_len": 8192, "concurrency": 8},
    {"model": "llama-3-70b", "gpu": "h100-sxm", "max_model_len": 8192},
    {"model": "deepseek-v3", "gpu": "h200", "max_model_len": 8192},
    {"model": "deepseek-v3", "gpu": "rtx-4090", "max_model_len": 8192},
    {"model": "gemma-3-27b", "gpu": "l40s"},
    {"model": "llama-3-8b", "gpu": "t4", "dtype": "bfloat16"},
    {"model": "llama-3-8b", "gpu": "t4", "kv_cache_dtype": "fp8", "dtype": "float16", "max_model_len": 1024},
    {"model": "llama-3-8b", "gpu": "a100-80", "tensor_parallel_size": 3},
    {"model": "llama-3-8b", "gpu": "a100-80", "pipeline_parallel_size": 64},
    {"model": "llama-3-8b", "vram": "16GiB"},
    {"model": "llama-3-8b", "gpu": "h100-sxm", "kv_cache_memory_bytes": "1MiB"},
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: "-".join(map(str, question.values())))
def test_levers_give_what_they_say(question):
    base = kvtax.budget(**question)
    assert not base.fits
    found = levers(base)
    assert 1 <= len(found) <= 3
    for lever in found:
        again = kvtax.budget(base.deployment._replace(**lever.change.fields, **_length(question, lever)))
        assert (again.verdict, again.max_concurrency) == (lever.budget.verdict, lever.budget.max_concurrency)
        assert (
            again.fits
            or again.max_concurrency > base.max_concurrency
            or again.kv_pool_bytes > base.kv_pool_bytes
            or base.verdict == "refused"
        )
        assert lever.change.cost
    fits = [lever.budget.fits for lever in found]
    assert fits == sorted(fits, reverse=True)


def _length(question, lever):
    return {} if "max_model_len" in question or "max_model_len" in lever.change.fields else {"max_model_len": None}


def test_one_of_a_kind_and_best_first():
    base = kvtax.budget(**QUESTIONS[0])
    found = levers(base, limit=99)
    kinds = [lever.change.kind for lever in found]
    assert len(kinds) == len(set(kinds))
    curing = [lever.budget.max_concurrency * lever.budget.max_model_len for lever in found if lever.budget.fits]
    assert curing == sorted(curing, reverse=True)


def test_the_smallest_change_that_cures_is_kept():
    found = {lever.change.kind: lever for lever in levers(kvtax.budget(**QUESTIONS[2]), limit=99)}
    assert found["tensor_parallel_size"].change.fields["tensor_parallel_size"] in (2, 4)
    half = kvtax.budget(
        **QUESTIONS[2]
        | {"tensor_parallel_size": found["tensor_parallel_size"].change.fields["tensor_parallel_size"] // 2}
    )
    assert not half.fits


def test_two_changes_together_where_none_is_enough():
    found = levers(kvtax.budget(**QUESTIONS[4]))
    assert found
    assert not kvtax.budget(**QUESTIONS[4]).fits


def test_a_refusal_is_cured():
    assert all(
        lever.budget.verdict != "refused" for question in QUESTIONS[6:10] for lever in levers(kvtax.budget(**question))
    )


def test_the_common_cards_are_in_the_catalogue_smallest_first():
    totals = [find_gpu(name).total_bytes for name in COMMON_CARDS]
    assert [find_gpu(name).id for name in COMMON_CARDS] == list(COMMON_CARDS)
    assert totals == sorted(totals)


def test_too_few_cards_are_cured_by_more_cards_or_fewer_ranks():
    base = kvtax.budget(model="llama-3-8b", gpu="a100-80", gpu_count=1, tensor_parallel_size=2)
    assert base.verdict == "refused"
    found = {lever.change.flags: lever for lever in levers(base)}
    assert found["--gpu-count 2"].budget.fits
    assert found["--tp 1"].change.cost == "1 rank"
