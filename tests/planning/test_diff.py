"""Two budgets: parts add up, releases add up, and a saved budget is held against today's."""

import json

import pytest

import kvtax
from kvtax.engines.registry import plan_class
from kvtax.errors import InputError
from kvtax.sources.saved_budget import parse_saved

BASE = {"model": "llama-3-8b", "gpu": "a100-80gb-sxm", "max_model_len": 8192}


def total(found):
    return found.after.figures.kv_pool_bytes - found.before.figures.kv_pool_bytes


@pytest.mark.parametrize(
    ("one", "other"),
    [({}, {"kv_cache_dtype": "int8_per_token_head"}), ({"gpu": "l4"}, {"gpu": "l40s", "tensor_parallel_size": 2}),
     ({"engine_version": "0.12"}, {"engine_version": "0.33"}), ({"engine": "vllm"}, {"engine": "sglang"})],
)  # fmt: skip
def test_causes_add_up(one, other):
    found = kvtax.diff({**BASE, **one}, {**BASE, **other})
    assert sum(part.effect_bytes for part in found.causes.parts) == total(found)
    assert sum(share.kv_pool_bytes for share in found.causes.shares) == total(found)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_releases_add_up_both_ways(engine):
    plan = plan_class(engine)
    versions = [plan.version_words(version) for version in (plan.OLDEST, plan.NEWEST)]
    for first, second in (versions, versions[::-1]):
        base = {**BASE, "engine": engine}
        found = kvtax.diff({**base, "engine_version": first}, {**base, "engine_version": second})
        assert sum(step.kv_pool_bytes for step in found.steps) == total(found)
        assert all(step.rules for step in found.steps)
        for step, following in zip(found.steps, found.steps[1:], strict=False):
            assert step.after == following.before


def test_a_saved_budget_is_the_same_today(tmp_path):
    budget = kvtax.budget(**BASE, concurrency=16)
    file = tmp_path / "before.json"
    file.write_text(json.dumps(budget.to_dict()), encoding="utf-8")
    found = kvtax.diff(str(file), budget)
    assert total(found) == 0
    assert not found.changes
    assert not found.before.since_saved


def test_what_changed_since_it_was_saved_is_told_apart():
    document = kvtax.budget(**BASE).to_dict()
    document["per_gpu"]["kv_pool_bytes"] -= 1 << 30
    document["per_gpu"]["weights_bytes"] += 1 << 30
    saved = parse_saved(json.dumps(document).encode(), "old.json")
    from kvtax.planning.diff import saved_side

    side = saved_side(saved)
    assert side.since_saved == 1 << 30
    found = kvtax.diff(side, BASE)
    assert total(found) == 1 << 30
    assert sum(part.effect_bytes for part in found.causes.parts) == 1 << 30


def test_a_saved_budget_of_what_is_gone_stands_alone():
    document = kvtax.budget(**BASE).to_dict()
    document["asked"]["model"] = "no-such-model"
    from kvtax.planning.diff import saved_side

    side = saved_side(parse_saved(json.dumps(document).encode(), "old.json"))
    assert side.budget is None
    assert kvtax.diff(side, BASE).causes.shares == ()


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"schema": "kvtax.budgets/1"}',
        '{"schema": "kvtax.budget/1"}',
        '{"schema": "kvtax.budget/1", "per_gpu": 3}',
    ],
)
def test_what_is_no_budget_says_so(text, tmp_path):
    file = tmp_path / "x.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        kvtax.diff(str(file), BASE)
    assert "x.json" in str(caught.value)


@pytest.mark.parametrize("value", [True, "1", 1.5, 2**80, None, []])
def test_a_figure_that_is_no_whole_number(value):
    document = kvtax.budget(**BASE).to_dict()
    document["per_gpu"]["weights_bytes"] = value
    with pytest.raises(InputError, match=r"per_gpu\.weights_bytes"):
        parse_saved(json.dumps(document).encode(), "x")
