"""What real vLLM servers printed at start, beside what kvtax says from their flags.

The limits are what was reached, with a little room: a change that makes predictions worse fails here. `python tests/golden/test_evidence.py`
prints each start with its errors.
"""

from __future__ import annotations

import json
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kvtax
from kvtax.budgets import Budget

STARTS = [
    json.loads(line) for line in (Path(__file__).parents[1] / "data/evidence/starts.jsonl").read_text().splitlines()
]
GIB = 2**30
# what a report calls a quantisation, where that is not a name of kvtax
_QUANTIZATION = {"unknown": None, "exl3": None, "fp32": None, "mxfp4-fp8": "mxfp4", "nvfp4-mlp": "nvfp4"}
_KV_DTYPE = {"fp8 (fp8_ds_mla)": "fp8_ds_mla", "fp4_e2m1": "nvfp4"}
_SAME = (
    "model", "gpu", "dtype", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel",
    "decode_context_parallel_size", "max_num_seqs", "max_num_batched_tokens", "enforce_eager", "block_size",
    "gpu_memory_utilization",
)  # fmt: skip


def fields(start: dict[str, Any]) -> dict[str, Any]:
    """A start as Deployment fields."""
    found = {name: start[name] for name in _SAME if name in start}
    found["engine_version"] = start.get("version_for_model") or start.get("engine_version")
    found["max_model_len"] = start["observed"].get("at_len") or start.get("max_model_len")
    found["enable_prefix_caching"] = start.get("prefix_caching")
    name = _QUANTIZATION.get(start.get("quantization", ""), start.get("quantization"))
    group = start.get("quant_group")
    if name in ("awq-int4", "gptq-int4", "gptq-int8") and group and group != 128:
        name = f"{name}-g{group}"
    found["quantization"] = name
    kv_cache_dtype = start.get("kv_cache_dtype")
    found["kv_cache_dtype"] = _KV_DTYPE.get(kv_cache_dtype or "", kv_cache_dtype)
    if start.get("gpu_total_gib"):
        found["vram"] = f"{start['gpu_total_gib']}GiB"
    elif not start.get("gpu"):
        found["vram"] = "1000GiB"  # only weights and rates are compared where the card is not said
    if start.get("free_at_start_gib"):
        found["free_memory"] = f"{start['free_at_start_gib']}GiB"
    return {name: value for name, value in found.items() if value is not None}


@cache
def answers() -> list[tuple[dict[str, Any], Budget]]:
    """The starts that kvtax answers; those of models outside the catalogue and of GGUF files are not among them."""
    found = []
    for start in STARTS:
        try:
            found.append((start, kvtax.budget(**fields(start))))
        except (kvtax.SourceError, kvtax.UnknownNameError):
            continue
    return found


def discrete() -> list[tuple[dict[str, Any], Budget]]:
    """Starts of the V1 engine on discrete cards whose pool was printed and whose flags are known."""
    return [
        (start, budget)
        for start, budget in answers()
        if start["v1"]
        and start["grade"] == "A"
        and not start["unstable_memory"]
        and start["observed"].get("kv_pool_gib")
    ]


def pool_errors() -> list[tuple[float, dict[str, Any]]]:
    """Predicted - printed pool as a share of the card [%]."""
    return [
        (
            100 * (budget.kv_pool_bytes / GIB - start["observed"]["kv_pool_gib"]) / (budget.memory.total_bytes / GIB),
            start,
        )
        for start, budget in discrete()
    ]


def test_nearly_all_are_answered() -> None:
    assert len(answers()) >= 0.95 * len(STARTS)


def test_pool() -> None:
    errors = [abs(error) for error, _ in pool_errors()]
    assert len(errors) >= 60
    assert statistics.median(errors) <= 1.8
    assert statistics.quantiles(errors, n=10)[8] <= 11


def test_pool_by_source() -> None:
    """Two rigs gave half of the starts: each source counts once."""
    by_source: dict[str, list[float]] = {}
    for error, start in pool_errors():
        by_source.setdefault(start["source_group"], []).append(abs(error))
    medians = [statistics.median(errors) for errors in by_source.values()]
    assert len(medians) >= 20
    assert statistics.median(medians) <= 1.0


def test_rate_per_token_is_exact() -> None:
    """Pool over printed tokens, where layers are plain: within the rounding of the printed figures."""
    off = []
    for start, budget in answers():
        seen = start["observed"]
        if start.get("hybrid") or not seen.get("kv_pool_gib") or not seen.get("kv_tokens") or start.get("speculative"):
            continue
        printed = seen["kv_pool_gib"] * GIB / seen["kv_tokens"]
        room = max(0.005, 0.006 / seen["kv_pool_gib"] + 16 / seen["kv_tokens"])
        if abs(budget.live_bytes_per_token - printed) > room * printed:
            off.append(start["id"])
    assert len(off) <= 16, off


def test_interval_holds_most() -> None:
    inside = [
        low / GIB <= start["observed"]["kv_pool_gib"] <= high / GIB
        for start, budget in discrete()
        for low, high in [budget.interval["kv_pool_bytes"]]
    ]
    assert sum(inside) >= 0.85 * len(inside)


def test_starts_are_not_called_failures() -> None:
    wrong = [
        start["id"]
        for start, budget in answers()
        if start.get("verdict_usable") and start["verdict"] == "fits" and budget.verdict not in ("fits", "over_budget")
    ]
    assert len(wrong) <= 0.05 * len(answers()), wrong


@pytest.mark.parametrize("start", STARTS, ids=lambda start: start["id"])
def test_every_start_is_sourced(start: dict[str, Any]) -> None:
    assert start["source"]
    assert start["observed"]


if __name__ == "__main__":
    for error, start in sorted(pool_errors(), key=lambda pair: -abs(pair[0])):
        print(f"{error:+6.1f} % of the card  {start['id']}  {start['gpu']:14} {start['model']}  {start['source']}")
