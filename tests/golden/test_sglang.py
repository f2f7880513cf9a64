"""SGLang: its automatic shares, pools worked out by hand, and what real servers printed at start, beside what kvtax says."""

from __future__ import annotations

import json
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kvtax
from kvtax.budgets import Budget
from kvtax.engines.sglang.fraction import Reserve, automatic_fraction, prefill_graph_sizes, step_defaults

DATA = Path(__file__).parents[1] / "data"
CASES = json.loads((DATA / "engine-cases/cases.json").read_text())
STARTS = [json.loads(line) for line in (DATA / "evidence/sglang-starts.jsonl").read_text().splitlines()]
GIB = 2**30
NEWEST = (0, 5, 23)
_SAME = (
    "model", "gpu", "dtype", "kv_cache_dtype", "tensor_parallel_size", "data_parallel_size", "max_num_seqs", "enforce_eager",
    "block_size", "swa_full_tokens_ratio",
)  # fmt: skip
_QUANTIZATION = {"mxfp4-fp8": "mxfp4", "unknown": None}


@pytest.mark.parametrize("row", CASES["sglang_auto_mem_fraction"], ids=lambda row: f"{row['gpu']}-tp{row['tp']}")
def test_automatic_share(row: dict[str, Any]) -> None:
    tokens, largest = step_defaults(row["gpu_mem_mib"], row["tp"], NEWEST)
    assert (tokens, largest) == (row["chunked_prefill"], row["decode_max_bs"])
    assert len(prefill_graph_sizes(tokens)) == row["prefill_graphs"]
    asked = Reserve(row["gpu_mem_mib"], row["tp"], chunked_prefill_size=tokens, graph_max_bs=largest)
    assert automatic_fraction(asked, NEWEST) == row["mem_fraction_static"]
    assert automatic_fraction(asked._replace(latent=True), NEWEST) == row["mem_fraction_static_mla"]


_BY_HAND = {
    "llama-3-8b": ("llama-3-8b", {}),
    "llama-3.1-70b tp8": ("llama-3.1-70b", {"tp": 8}),
    "llama-3.1-70b tp16": ("llama-3.1-70b", {"tp": 16}),
    "qwen2.5-7b tp4": ("qwen2.5-7b", {"tp": 4}),
    "phi-3-mini MHA": ("phi-3-mini-4k", {}),
    "mistral-7b": ("mistral-7b-v0.1", {}),
    "deepseek-v3 bf16 tp8": ("deepseek-v3", {"tp": 8}),
    "deepseek-v3 fp8 tp8": ("deepseek-v3", {"tp": 8, "kv_cache_dtype": "fp8_e4m3"}),
    "deepseek-v3.2 fp8 tp8": ("deepseek-v3.2", {"tp": 8, "kv_cache_dtype": "fp8_e4m3"}),
    "gemma-3-27b": ("gemma-3-27b", {}),
    "gpt-oss-120b": ("gpt-oss-120b", {}),
    "llama-4-scout tp4": ("llama-4-scout", {"tp": 4}),
    "minimax-m2 tp4": ("minimax-m2", {"tp": 4}),
    "qwen3-30b-a3b tp8": ("qwen3-30b-a3b", {"tp": 8}),
    "whisper-large-v3 decoder self only": ("whisper-large-v3", {}),
}


@pytest.mark.parametrize("row", CASES["hand_derived"]["sglang"], ids=lambda row: row["model"])
def test_pools_by_hand(row: dict[str, Any]) -> None:
    name, more = _BY_HAND[row["model"]]
    config = json.loads((DATA / f"engine-cases/configs/{name}.json").read_text())
    budget = kvtax.budget(
        model=config, gpu="h100-80", engine="sglang", kv_cache_memory_bytes=20 * GIB, block_size=1, **more
    )
    found = budget.answer.detail
    assert found.pool.capacity_tokens == row["max_total_num_tokens"]
    if "cell_size" in row:
        assert found.pool.bytes_per_token == row["cell_size"]
    else:
        assert (found.cell.full_bytes, found.cell.window_bytes) == (row["full_cell"], row["swa_cell"])
        assert found.tokens.window_tokens == row["swa_tokens"]


def fields(start: dict[str, Any]) -> dict[str, Any]:
    """A start as Deployment fields."""
    found = {name: start[name] for name in _SAME if name in start}
    found |= start.get("flags", {})
    found["engine"] = "sglang"
    found["engine_version"] = start.get("engine_version") or start.get("date")
    name = start.get("quantization")
    found["quantization"] = _QUANTIZATION.get(name, name)
    found["gpu_memory_utilization"] = start.get("mem_fraction_static")
    found["max_num_batched_tokens"] = start.get("chunked_prefill_size")
    found["max_model_len"] = start["observed"].get("at_len") or start.get("max_model_len")
    if "gpu" not in start:
        found["vram"] = f"{start.get('gpu_total_assumed_gib') or 1000}GiB"
    if "avail_before_load_gib" in start:
        found["free_memory"] = f"{start['avail_before_load_gib']}GiB"
    for method in ("eagle3", "eagle"):
        if method in start.get("speculative", "").lower():
            found["speculative"] = f"{method}:1"
            break
    return {name: value for name, value in found.items() if value is not None}


@cache
def answers(loaded: bool = False, pool: bool = False) -> list[tuple[dict[str, Any], Budget]]:
    """The starts with their budgets, given the printed weights (`loaded`) or the printed pool (`pool`)."""
    found = []
    for start in STARTS:
        more: dict[str, Any] = {}
        seen = start["observed"]
        if loaded:
            if "weights_gib" not in seen or "kv_pool_gib" not in seen or start["grade"] != "A":
                continue
            more["weights_bytes"] = round(seen["weights_gib"] * GIB)
        if pool:
            if not seen.get("kv_pool_gib") or "kv_tokens" not in seen or not start.get("tp_known", True):
                continue
            more["kv_cache_memory_bytes"] = round(seen["kv_pool_gib"] * GIB)
        try:
            found.append((start, kvtax.budget(**fields(start), **more)))
        except (kvtax.SourceError, kvtax.UnknownNameError):
            continue
    return found


def test_nearly_all_are_answered() -> None:
    assert len(answers()) >= 0.97 * len(STARTS)


def test_pool_with_weights_given() -> None:
    errors = [
        100 * abs(budget.kv_pool_bytes / GIB - start["observed"]["kv_pool_gib"]) / (budget.memory.total_bytes / GIB)
        for start, budget in answers(loaded=True)
    ]
    assert len(errors) >= 20
    assert statistics.median(errors) <= 0.2
    assert max(errors) <= 0.5


def test_tokens_of_a_given_pool() -> None:
    """One start is left out: its sparse keys were held in 16 bit by a flag that the report does not state."""
    errors = [
        100 * abs(budget.pool.capacity_tokens / start["observed"]["kv_tokens"] - 1)
        for start, budget in answers(pool=True)
        if start["id"] != "sglang-0109"
    ]
    assert len(errors) >= 25
    assert statistics.median(errors) <= 0.1
    assert max(errors) <= 0.7


def test_weights_of_unquantised_models() -> None:
    errors = [
        100 * abs(budget.to_dict()["per_gpu"]["model_load_bytes"] / GIB / start["observed"]["weights_gib"] - 1)
        for start, budget in answers()
        if "weights_gib" in start["observed"] and "quantization" not in start
    ]
    assert len(errors) >= 9
    assert statistics.median(errors) <= 0.5
    assert max(errors) <= 6  # a model of 1.2 GiB


def test_weights_by_source() -> None:
    by_source: dict[str, list[float]] = {}
    for start, budget in answers():
        if "weights_gib" in start["observed"] and start.get("quantization") != "unknown":
            size = budget.to_dict()["per_gpu"]["model_load_bytes"] / GIB
            error = 100 * abs(size / start["observed"]["weights_gib"] - 1)
            by_source.setdefault(start["source_group"], []).append(error)
    medians = [statistics.median(errors) for errors in by_source.values()]
    assert len(medians) >= 15
    assert statistics.median(medians) <= 0.5


def test_verdicts() -> None:
    """One failure is not seen: weights of a ROCm build of mid 2025 that are twice the checkpoint's."""
    wrong = []
    for start, budget in answers():
        if start.get("verdict_usable"):
            starts = budget.verdict in ("fits", "over_budget")
            if starts != (start["verdict"] == "fits"):
                wrong.append(start["id"])
    assert wrong in ([], ["sglang-0050"])


def test_failed_start_says_what_to_raise() -> None:
    start = next(start for start in STARTS if start["id"] == "sglang-0043")
    budget = kvtax.budget(**fields(start))
    assert budget.verdict == "kv_too_small"
    assert budget.answer.reason is not None
    assert "--mem-fraction-static" in budget.answer.reason.message
    assert budget.kv_pool_bytes < 0
    assert budget.max_concurrency == 0
