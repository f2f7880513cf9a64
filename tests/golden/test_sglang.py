"""SGLang: its automatic shares, pools worked out by hand, and what real servers printed at start, beside what kvtax says."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

import evidence
import kvtax
from kvtax.budgets import Budget
from kvtax.engines.sglang.fraction import Reserve, automatic_fraction, prefill_graph_sizes, step_defaults

DATA = Path(__file__).parents[1] / "data"
CASES = json.loads((DATA / "engine-cases/cases.json").read_text())
GIB = 2**30
NEWEST = (0, 5, 23)


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


def sizes(errors: list[evidence.Error]) -> list[float]:
    """How large errors are, whatever their sign."""
    return [abs(error.value) for error in errors]


def by_source(errors: list[evidence.Error]) -> list[float]:
    """The median of each source: some gave twenty starts, most gave one."""
    found: dict[str, list[float]] = {}
    for error in errors:
        found.setdefault(error.start["source_group"], []).append(abs(error.value))
    return [statistics.median(values) for values in found.values()]


def test_every_start_is_answered() -> None:
    assert all(case.answered for case in evidence.cases("sglang"))


def test_pool_with_weights_given() -> None:
    errors = sizes(evidence.pool_errors("sglang", given=True))
    assert len(errors) >= 22
    assert statistics.median(errors) <= 0.2
    assert max(errors) <= 0.5


def test_pool_from_flags_alone() -> None:
    """Two more starts are left out: their loader kept 5.3 GiB until graphs were captured (weights_doubt)."""
    errors = sizes(evidence.pool_errors("sglang", given=False))
    assert len(errors) >= 22
    assert statistics.median(errors) <= 0.5
    assert max(errors) <= 0.7


def test_concurrency_of_the_printed_pool() -> None:
    errors = sizes(evidence.concurrency_given_pool_errors("sglang"))
    assert len(errors) >= 22
    assert statistics.median(errors) <= 0.1
    assert max(errors) <= 0.7


def test_rate_per_token() -> None:
    errors = sizes(evidence.rate_errors("sglang"))
    assert len(errors) >= 10
    assert max(errors) <= 1


def test_weights_by_source() -> None:
    medians = by_source(evidence.weight_errors("sglang"))
    assert len(medians) >= 15
    assert statistics.median(medians) <= 0.7


def test_verdicts() -> None:
    """One failure is not seen: weights of a ROCm build of mid 2025 that are nearly twice the checkpoint's."""
    wrong = [case.start["id"] for case, started, says in evidence.verdicts("sglang") if started != says]
    assert wrong in ([], ["sglang-0050"])


def test_failed_start_says_what_to_raise() -> None:
    case = next(case for case in evidence.cases("sglang") if case.start["id"] == "sglang-0043")
    assert isinstance(case.budget, Budget)
    assert case.budget.verdict == "kv_too_small"
    assert case.budget.answer.reason is not None
    assert "--mem-fraction-static" in case.budget.answer.reason.message
    assert case.budget.kv_pool_bytes < 0
    assert case.budget.max_concurrency == 0
