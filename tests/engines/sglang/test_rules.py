"""SGLang's rules by release, its arithmetic of pools, and what it refuses."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvtax
from kvtax.engines.sglang.cells import Cell
from kvtax.engines.sglang.fraction import Reserve, automatic_fraction, reserved_mib, step_defaults, vision_share
from kvtax.engines.sglang.pool import States, state_pool, tokens_of
from kvtax.engines.sglang.rules import RELEASED, RULES, release_on, rule, version_words
from kvtax.engines.sglang.stages import stage_ranges

GIB = 2**30


def budget(model: str = "llama-3.1-8b", gpu: str = "h100-80", **more: Any) -> kvtax.Budget:
    return kvtax.budget(model=model, gpu=gpu, engine="sglang", **more)


def test_rules_are_in_order_with_sources() -> None:
    seen: dict[str, tuple[int, ...]] = {}
    for entry in RULES:
        assert entry.source.startswith("sglang "), entry.name
        assert seen.get(entry.name, (-1,)) < entry.since, entry.name
        seen[entry.name] = entry.since
    for name in seen:
        assert rule(name, (0, 0, 0)) is not None, f"{name} begins nowhere"
    assert [version for version, _ in RELEASED] == sorted(version for version, _ in RELEASED)
    assert [day for _, day in RELEASED] == sorted(day for _, day in RELEASED)


@pytest.mark.parametrize(
    ("version", "card_mib", "tp", "share"),
    [
        ((0, 4, 4), 81559, 1, 0.88),
        ((0, 4, 4), 81559, 8, 0.81),
        ((0, 4, 6), 81920, 2, 0.87),
        ((0, 4, 6), 143771, 1, (143771 - 18 * 1024) / 143771),
        ((0, 4, 8), 81559, 1, round((81559 - 10 * 1024) / 81559, 3)),
        ((0, 5, 2), 183359, 8, round((183359 - 32 * 1024) / 183359, 3)),
        ((0, 5, 3), 24564, 1, round((24564 - 512 - 3072 - 32 - 128) / 24564, 3)),
        ((0, 5, 9), 24564, 1, round((24564 - 512 - 3072 - 48 - 128) / 24564, 3)),
        ((0, 5, 12), 24564, 1, round((24564 - 512 - 3072 - 48 - 128 - 42 * 8) / 24564, 3)),
    ],
)
def test_share_by_release(version: tuple[int, ...], card_mib: int, tp: int, share: float) -> None:
    tokens, largest = step_defaults(card_mib, tp, version)
    asked = Reserve(card_mib, tp, chunked_prefill_size=tokens, graph_max_bs=largest)
    assert automatic_fraction(asked, version) == pytest.approx(share, abs=1e-12)


def test_share_of_dp_attention_and_drafts() -> None:
    plain = Reserve(143771, 8, graph_max_bs=512, chunked_prefill_size=8192)
    apart = plain._replace(attention_ranks_apart=8)
    assert reserved_mib(apart, (0, 5, 23)) - reserved_mib(plain, (0, 5, 23)) == 512 * 8 * 4.5
    draft = plain._replace(draft="eagle")
    assert reserved_mib(draft, (0, 5, 12)) - reserved_mib(plain, (0, 5, 12)) == 4096
    assert reserved_mib(draft, (0, 5, 23)) == reserved_mib(plain, (0, 5, 23))


@given(st.integers(4096, 400_000), st.sampled_from([1, 2, 4, 8, 16]))
def test_share_is_a_share(card_mib: int, tp: int) -> None:
    tokens, largest = step_defaults(card_mib, tp, (0, 5, 23))
    share = automatic_fraction(Reserve(card_mib, tp, chunked_prefill_size=tokens, graph_max_bs=largest), (0, 5, 23))
    assert share < 1
    assert share <= automatic_fraction(
        Reserve(card_mib, 1, chunked_prefill_size=tokens, graph_max_bs=largest), (0, 5, 23)
    )


def test_vision_share_follows_the_tower() -> None:
    assert vision_share(24, 1024, (0, 4, 8)) == 1
    assert vision_share(24, 1024, (0, 4, 9)) == 0.90
    assert vision_share(24, 1152, (0, 5, 23)) == pytest.approx(0.95 * (1 - 0.1 * (1152**2 / 1024**2 - 1)))
    assert vision_share(100, 4096, (0, 5, 23)) == pytest.approx(0.95 * 0.8)
    assert vision_share(1, 32, (0, 5, 23)) == pytest.approx(0.95 * 1.05)


def test_days_stand_for_releases() -> None:
    assert release_on("2026-10-30") == (0, 5, 23)
    assert release_on("2020-01-01") == (0, 4, 3)
    assert version_words("0.5.10rc1") == "0.5.10rc1"
    assert budget(engine_version="2025-03-25").prepared.plan.version == (0, 4, 4)
    assert budget(engine_version="nightly").prepared.plan.version == (0, 5, 23)


@given(st.integers(1, 200), st.integers(1, 16))
def test_stages_share_all_layers(layers: int, pp: int) -> None:
    found = stage_ranges(layers, min(pp, layers))
    assert [layer for stage in found for layer in stage] == list(range(layers))
    assert [len(stage) for stage in found] == sorted(len(stage) for stage in found)


@given(
    st.integers(0, 2**38),
    st.integers(1, 2**20),
    st.integers(0, 2**20),
    st.sampled_from([1, 16, 64, 256]),
    st.floats(0.01, 1),
)
def test_tokens_fit_and_no_page_more_does(kv: int, full: int, window: int, page: int, ratio: float) -> None:
    found = tokens_of(kv, Cell(full, window, 4, 4 if window else 0), page, ratio)
    assert found.tokens % page == 0
    assert found.kv_bytes <= kv + 1
    assert (found.tokens + page) * (full + ratio * window) > kv * (1 - 1e-12)


@given(st.integers(0, 2**38), st.integers(2**16, 2**28), st.sampled_from([0, 1]), st.sampled_from([0, 2, 5]))
def test_states_stay_within_their_part(rest: int, each: int, padding: int, drafts: int) -> None:
    asked = States(each, 0.9, None, 64, True, 2, padding, drafts)
    found = state_pool(rest, asked)
    if found.slots > 0:
        assert found.state_bytes + found.draft_bytes <= rest * 0.9 / 1.9 + each
        assert found.requests == found.slots // 5


def test_pools_of_states_and_tokens_divide_by_the_ratio() -> None:
    """sglang-0091: Qwen3.5-9B, 39.15 GiB free, 17.62 loaded, 0.85: 7.34 of state and 8.20 of keys and values."""
    found = budget(
        "Qwen/Qwen3.5-9B", vram="48GiB", gpu=None, free_memory="39.15GiB", weights_bytes="17.62GiB",
        gpu_memory_utilization=0.85,
    )  # fmt: skip
    states = found.answer.detail.states
    assert states is not None
    assert states.state_bytes / GIB == pytest.approx(7.34, abs=0.06)
    assert found.kv_pool_bytes / GIB == pytest.approx(8.20, abs=0.06)


def test_state_dtype() -> None:
    whole = budget("qwen3-next-80b", gpu="h200", tp=2).to_dict()["kv"]["state_bytes_per_request"]
    half = budget("qwen3-next-80b", gpu="h200", tp=2, mamba_ssm_cache_dtype="bfloat16")
    assert half.to_dict()["kv"]["state_bytes_per_request"] < 0.6 * whole


def test_states_cap_requests() -> None:
    cached = budget("qwen3-next-80b", gpu="h200", tp=2, max_mamba_cache_size=100)
    assert cached.answer.max_num_seqs == 20
    plain = budget("qwen3-next-80b", gpu="h200", tp=2, max_mamba_cache_size=100, enable_prefix_caching=False)
    assert plain.answer.max_num_seqs == 100
    older = budget("qwen3-next-80b", gpu="h200", tp=2, max_mamba_cache_size=100, engine_version="0.5.12")
    assert older.answer.max_num_seqs == 33


def test_windows_have_their_own_pool_or_not() -> None:
    apart = budget("gpt-oss-120b", max_model_len=32768)
    together = budget("gpt-oss-120b", max_model_len=32768, disable_hybrid_swa_memory=True)
    assert apart.answer.pool.capacity_tokens > together.answer.pool.capacity_tokens
    tokens = [
        budget("gpt-oss-120b", swa_full_tokens_ratio=ratio).answer.pool.capacity_tokens for ratio in (0.1, 0.4, 0.8)
    ]
    assert tokens == sorted(tokens, reverse=True)
    assert budget("gemma-3-27b").answer.detail.cell.window_layers == 0
    fixed = budget("gpt-oss-120b", enable_prefix_caching=False, max_num_seqs=64)
    assert fixed.answer.detail.tokens.window_tokens < apart.answer.detail.tokens.window_tokens


def test_window_pool_below_one_window_is_refused() -> None:
    found = budget("gpt-oss-120b", swa_full_tokens_ratio=0.001, kv_cache_memory_bytes="2GiB")
    assert found.verdict == "kv_too_small"
    assert found.answer.reason.code == "window-pool-too-small"


def test_dp_attention_keeps_more_heads_and_repeats_attention() -> None:
    split = budget("qwen3-235b-a22b", gpu="h200", tp=8)
    apart = budget("qwen3-235b-a22b", gpu="h200", tp=8, dp=8, enable_dp_attention=True)
    assert apart.kv_bytes_per_token == 4 * split.kv_bytes_per_token
    assert apart.memory.weights_bytes > split.memory.weights_bytes
    assert budget("qwen3-235b-a22b", gpu="h200", tp=8, dp=3, enable_dp_attention=True).verdict == "refused"


def test_draft_takes_weights_and_layers() -> None:
    plain = budget("deepseek-v3", gpu="h200", tp=8)
    newer = budget("deepseek-v3", gpu="h200", tp=8, speculative="mtp:1")
    older = budget("deepseek-v3", gpu="h200", tp=8, speculative="mtp:1", engine_version="0.5.12")
    assert newer.answer.detail.draft_weights_bytes > GIB
    assert newer.answer.detail.draft_kv_bytes > 0
    assert newer.kv_bytes_per_token == plain.kv_bytes_per_token
    assert older.answer.detail.draft_weights_bytes == 0
    assert any(notice.code == "draft-estimated" for notice in budget(speculative="eagle3:3").notices)


def test_tokens_are_capped_and_shared_over_stages() -> None:
    capped = budget(max_total_tokens=10_000, max_model_len=4096)
    assert capped.answer.pool.capacity_tokens == 10_000
    assert capped.kv_pool_bytes == 10_000 * 131072
    staged = budget("llama-3.1-70b", pp=2, max_model_len=4096)
    assert {rank.pool.capacity_tokens for rank in staged.answer.ranks} == {staged.answer.pool.capacity_tokens}


@pytest.mark.parametrize("kv_cache_dtype", ["bfloat16", "fp8_e4m3", "fp8_e5m2", "mxfp8", "nvfp4", "fp4_e2m1"])
def test_formats_of_keys_and_values(kv_cache_dtype: str) -> None:
    rates = {
        "bfloat16": 131072, "fp8_e4m3": 65536, "fp8_e5m2": 65536, "mxfp8": 65536 + 65536 // 32, "nvfp4": 36864, "fp4_e2m1": 36864,
    }  # fmt: skip
    assert budget(kv_cache_dtype=kv_cache_dtype, gpu="b200").kv_bytes_per_token == rates[kv_cache_dtype]


def test_rows_of_sparse_latent_attention() -> None:
    """61 layers: 1152 + 132 in 16 bit, 656 + 132 with scales on Hopper, 576 + 132 raw on Blackwell, where fp8 is the default."""
    assert budget("deepseek-v3.2", gpu="h200", tp=8).kv_bytes_per_token == 61 * (1152 + 132)
    assert budget("deepseek-v3.2", gpu="h200", tp=8, kv_cache_dtype="fp8_e4m3").kv_bytes_per_token == 61 * (656 + 132)
    assert budget("deepseek-v3.2", gpu="b200", tp=8).kv_bytes_per_token == 61 * (576 + 132)


@pytest.mark.parametrize(
    ("model", "more", "code"),
    [
        ("llama-3.1-8b", {"tp": 3}, "heads-not-divisible"),
        ("llama-3.1-8b", {"expert_parallel": True}, "no-experts"),
        ("llama-3.1-8b", {"dtype": "bfloat16", "gpu": "t4"}, "dtype-not-on-card"),
        ("deepseek-v3.2", {"kv_cache_dtype": "fp8_e5m2", "gpu": "h200", "tp": 8}, "kv-dtype-not-supported"),
    ],
)
def test_refusals(model: str, more: dict[str, Any], code: str) -> None:
    found = budget(model, **more)
    assert found.verdict == "refused"
    assert found.answer.reason.code == code


def test_verdicts() -> None:
    empty = budget("llama-3.1-70b", gpu="h100-80", tp=2, gpu_memory_utilization=0.8)
    assert (empty.verdict, empty.answer.reason.code) == ("kv_too_small", "pool-empty")
    assert empty.answer.detail.pool.capacity_tokens == 0
    assert budget("llama-3.1-70b").verdict == "out_of_memory"
    short = budget("llama-3.1-8b", gpu="rtx-4090")
    assert (short.verdict, short.answer.reason.code) == ("over_budget", "context-above-pool")


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("llama-3.1-8b", {}),
        ("gpt-oss-120b", {"max_model_len": 8192}),
        ("qwen3-next-80b", {"gpu": "h200", "tp": 2, "speculative": "mtp:2"}),
        ("deepseek-v3.2", {"gpu": "h200", "tp": 8, "speculative": "mtp:1"}),
        ("gemma-4-31b", {"tp": 2}),
    ],
)
def test_terms_give_their_values_and_parts_their_sum(model: str, more: dict[str, Any]) -> None:
    found = budget(model, **more)
    for term in found.terms:
        names = {name: value.value for name, value in term.inputs.items()}
        value = eval(compile(ast.parse(term.formula, mode="eval"), "formula", "eval"), {"__builtins__": {}}, names)  # noqa: S307
        assert value == pytest.approx(term.bytes, rel=1e-12), term.name
    parts = found.to_dict()["per_gpu"]
    taken = (
        "weights_bytes",
        "activation_bytes",
        "cuda_graph_bytes",
        "runtime_bytes",
        "kv_pool_bytes",
        "unallocated_bytes",
    )
    assert sum(parts[name] for name in taken) == parts["total_bytes"]


def test_offloaded_weights_are_in_ram() -> None:
    found = budget(cpu_offload="4GiB")
    assert found.to_dict()["host"]["weights_bytes"] == 4 * GIB
    assert budget().memory.weights_bytes - found.memory.weights_bytes == 4 * GIB


def test_fields_of_other_engines_are_refused() -> None:
    with pytest.raises(kvtax.InputError) as caught:
        budget(limit_mm_per_prompt={"image": 0})
    assert caught.value.code == "field-not-in-engine"


def test_kinds() -> None:
    kinds = {
        budget(model, gpu=gpu, tp=tp, **more).prepared.plan.kind()
        for model, gpu, tp, more in (
            ("llama-3.1-8b", "h100-80", 1, {}),
            ("gpt-oss-120b", "h100-80", 1, {"gpu_memory_utilization": 0.9}),
            ("qwen3-next-80b", "h200", 2, {}),
            ("deepseek-v3", "h200", 8, {}),
        )
    }
    assert kinds == {
        "plain, automatic fraction", "windows, given fraction", "state, automatic fraction", "latent, automatic fraction",
    }  # fmt: skip


def test_compressed_rows_of_a_token() -> None:
    """A log of DeepSeek-V4-Flash on Hopper prints bytes_per_full_token=15955.85."""
    older = budget("deepseek-ai/DeepSeek-V4-Flash", gpu="h200", tp=4, engine_version="0.5.12")
    assert older.kv_bytes_per_token == 15956
    newer = budget("deepseek-ai/DeepSeek-V4-Flash", gpu="h200", tp=4)
    assert newer.kv_bytes_per_token < older.kv_bytes_per_token
    assert newer.answer.detail.request_pools_bytes > 0
    fewer = budget("deepseek-ai/DeepSeek-V4-Flash", gpu="h200", tp=4, max_num_seqs=16)
    assert fewer.answer.detail.request_pools_bytes < newer.answer.detail.request_pools_bytes


def test_interval_is_wider_where_nothing_free_is_said() -> None:
    said = budget(free_memory="78.5GiB", vram="79.18GiB", max_model_len=8192)
    unsaid = budget(vram="79.18GiB", max_model_len=8192)
    widths = [high - low for low, high in (found.interval["kv_pool_bytes"] for found in (said, unsaid))]
    assert widths[1] - widths[0] == pytest.approx(2 * GIB / 5 * 0.83, rel=0.01)


def test_starts_that_hold_no_request_say_so() -> None:
    found = budget("llama-3.1-70b", tp=2, engine_version="0.5.2")
    assert found.verdict == "over_budget"
    assert found.longest_context() == found.answer.pool.capacity_tokens
    assert found.answer.reason.code == "context-above-pool"
