"""Starts of real servers beside what kvtax says from their flags: errors by engine and family, and the residuals that intervals rest on.

    python tests/evidence.py            the errors, and each start whose error is large
    python tests/evidence.py --write    the same into configs/engines/*.json and the table in README.md

A start is answered from its flags alone; `given` means that the printed weights are put in. A margin of an interval rests on the residuals
of the starts of the same engine and kind of case (`Plan.kind`).
"""

from __future__ import annotations

import ast
import json
import math
import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import kvtax
from kvtax.budgets import Budget

ROOT = Path(__file__).parents[1]
STARTS = [json.loads(line) for line in (ROOT / "tests/data/evidence/starts.jsonl").read_text().splitlines()]
ENGINES = ROOT / "configs/engines"
GIB = 2**30
# what a report calls a quantisation, where that is not a name of kvtax
_QUANTIZATION = {"unknown": None, "exl3": None, "fp32": None, "mxfp4-fp8": "mxfp4", "nvfp4-mlp": "nvfp4"}
_KV_DTYPE = {"fp8 (fp8_ds_mla)": "fp8_ds_mla", "fp4_e2m1": "nvfp4"}
_SAME = (
    "model", "engine", "gpu", "dtype", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel",
    "decode_context_parallel_size", "max_num_seqs", "enforce_eager", "block_size",
)  # fmt: skip
_FURTHER = {
    "mamba_full_memory_ratio", "swa_full_tokens_ratio", "cuda_graph_max_bs", "max_running_requests", "attention_backend",
    "disable_radix_cache", "enable_dp_attention", "max_total_tokens", "disable_piecewise_cuda_graph",
}  # fmt: skip


# ---- a start as a deployment ----


def fields(start: dict[str, Any]) -> dict[str, Any]:
    """The fields of a Deployment that a start states."""
    found = {name: start[name] for name in _SAME if name in start}
    found["engine_version"] = start.get("version_for_model") or start.get("engine_version")
    if start["engine"] == "sglang":  # which takes a day for the release of that day
        found["engine_version"] = found["engine_version"] or start.get("date")
    found["max_model_len"] = start["observed"].get("at_len") or start.get("max_model_len")
    found["max_num_batched_tokens"] = start.get("max_num_batched_tokens") or start.get("chunked_prefill_size")
    found["enable_prefix_caching"] = start.get("prefix_caching")
    found["gpu_memory_utilization"] = start.get("mem_fraction_static") or start.get("gpu_memory_utilization")
    name = _QUANTIZATION.get(start.get("quantization", ""), start.get("quantization"))
    group = start.get("quant_group")
    if name in ("awq-int4", "gptq-int4", "gptq-int8") and group and group != 128:
        name = f"{name}-g{group}"
    found["quantization"] = name
    kv_cache_dtype = start.get("kv_cache_dtype")
    found["kv_cache_dtype"] = _KV_DTYPE.get(kv_cache_dtype or "", kv_cache_dtype)
    found["speculative"] = _speculative(str(start.get("speculative") or ""))
    if start.get("gpu_total_gib"):
        found["vram"] = f"{start['gpu_total_gib']}GiB"
    elif not start.get("gpu"):
        found["vram"] = f"{start.get('gpu_total_assumed_gib') or 1000}GiB"
    free = start.get("avail_before_load_gib") or start.get("free_at_start_gib")
    if free:
        found["free_memory"] = f"{free}GiB"
    return {name: value for name, value in (found | _flags(start)).items() if value is not None}


def _speculative(text: str) -> str | None:
    for method in ("eagle3", "eagle", "mtp", "nextn"):
        if method in text.lower():
            count = re.search(r"(\d+)\s*$", text)
            return f"{method}:{count[1] if count else 1}"
    return None


def _flags(start: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for flag in start.get("other_flags", ()):
        match = re.fullmatch(r"(\w+)=([\w.]+)", flag)
        if match and match[1].removesuffix("_arg") in _FURTHER:
            try:
                found[match[1].removesuffix("_arg")] = ast.literal_eval(match[2])
            except (ValueError, SyntaxError):
                found[match[1].removesuffix("_arg")] = match[2]
        elif flag.startswith("limit-mm "):
            found["limit_mm_per_prompt"] = ast.literal_eval(flag[9:])
        elif flag == "language-model-only":
            found["language_model_only"] = True
        elif flag == "pooling runner":
            found["runner"] = "pooling"
        elif flag == "async scheduling":
            found["async_scheduling"] = True
    if "max_running_requests" in found:
        found.pop("max_running_requests")
    return found


@cache
def _answer(index: int, given: bool) -> Budget | kvtax.KvtaxError:
    start = STARTS[index]
    asked = fields(start)
    if given:
        asked["weights_bytes"] = round(start["observed"]["weights_gib"] * GIB)
    try:
        return kvtax.budget(**asked)
    except kvtax.KvtaxError as error:
        return error


class Case(NamedTuple):
    """A start, and its budget or why there is none; `given` is the budget with the printed weights put in."""

    start: dict[str, Any]
    budget: Budget | kvtax.KvtaxError
    given: Budget | None

    @property
    def answered(self) -> bool:
        """Whether there is a budget."""
        return isinstance(self.budget, Budget)


@cache
def cases(engine: str) -> tuple[Case, ...]:
    """Every start of an engine."""
    found = []
    for index, start in enumerate(STARTS):
        if start["engine"] != engine:
            continue
        budget = _answer(index, False)
        given = _answer(index, True) if start["observed"].get("weights_gib") and start["tp_known"] else None
        found.append(Case(start, budget, given if isinstance(given, Budget) else None))
    return tuple(found)


# ---- errors ----


class Error(NamedTuple):
    """How far one figure of one start lies from what was printed [%]."""

    start: dict[str, Any]
    value: float


def discrete(case: Case) -> bool:
    """Whether the card has memory of its own."""
    return not case.start.get("unstable_memory")


def weight_errors(engine: str) -> list[Error]:
    """(predicted - printed) / printed of the weights of one GPU [%]."""
    found = []
    for case in cases(engine):
        start, seen = case.start, case.start["observed"]
        offloaded = start.get("weights_on_cpu") or any("offload" in flag for flag in start.get("other_flags", ()))
        if not seen.get("weights_gib") or start.get("quantization") in ("unknown", "exl3") or not start["tp_known"]:
            continue
        if offloaded or start["grade"] == "C" or not case.answered or not discrete(case):
            continue
        memory = case.budget.memory
        predicted = (memory.weights_bytes + memory.load_extra_bytes) / GIB
        found.append(Error(start, 100 * (predicted - seen["weights_gib"]) / seen["weights_gib"]))
    return found


def total_gib(start: dict[str, Any], budget: Budget) -> float:
    """Memory of the card [GiB]."""
    return start.get("gpu_total_assumed_gib") or budget.memory.total_bytes / GIB


def printed_pool_gib(start: dict[str, Any], budget: Budget) -> float | None:
    """The pool as printed, or the printed tokens times the exact rate where layers are plain [GiB]."""
    seen = start["observed"]
    if seen.get("kv_pool_gib") is not None:
        return seen["kv_pool_gib"]
    plain = not start.get("hybrid") or (start["engine"] == "vllm" and not start["v1"])
    if seen.get("kv_tokens") and plain and not start.get("speculative"):
        return seen["kv_tokens"] * budget.kv_bytes_per_token / GIB
    return None


def pool_errors(engine: str, given: bool, everywhere: bool = False) -> list[Error]:
    """(predicted - printed) pool as a share of the card [%], with the printed weights put in where `given`."""
    found = []
    for case in cases(engine):
        budget = case.given if given else case.budget
        if case.start["grade"] != "A" or not isinstance(budget, Budget) or not (discrete(case) or everywhere):
            continue
        if not given and case.start.get("weights_doubt"):  # the printed pool rests on weights that no flag tells
            continue
        printed = printed_pool_gib(case.start, budget)
        if printed is not None:
            error = budget.kv_pool_bytes / GIB - printed
            found.append(Error(case.start, 100 * error / total_gib(case.start, budget)))
    return found


def rate_errors(engine: str) -> list[Error]:
    """Pool over printed tokens where layers are plain, in units of what rounding of the printed figures allows (1: at its edge)."""
    found = []
    for case in cases(engine):
        start, seen = case.start, case.start["observed"]
        plain = not start.get("hybrid") or (engine == "vllm" and not start["v1"])
        if not plain or start.get("rate_excluded") or not start["tp_known"] or start["grade"] == "C":
            continue
        if not seen.get("kv_pool_gib") or seen["kv_pool_gib"] <= 0 or not seen.get("kv_tokens") or not case.answered:
            continue
        printed = seen["kv_pool_gib"] * GIB / seen["kv_tokens"]
        room = max(0.005, 0.006 / seen["kv_pool_gib"] + 16 / seen["kv_tokens"])
        found.append(Error(start, (case.budget.kv_bytes_per_token - printed) / printed / room))
    return found


def concurrency_errors(engine: str) -> list[Error]:
    """(predicted - printed) / printed of the maximum concurrency, end to end [%]."""
    found = []
    for case in cases(engine):
        seen = case.start["observed"]
        if case.start["grade"] != "A" or not case.answered or not discrete(case):
            continue
        if seen.get("max_concurrency") and seen.get("at_len"):
            error = (case.budget.max_concurrency - seen["max_concurrency"]) / seen["max_concurrency"]
            found.append(Error(case.start, 100 * error))
    return found


def concurrency_given_pool_errors(engine: str) -> list[Error]:
    """(predicted - printed) / printed of the maximum concurrency from the printed pool [%]."""
    found = []
    for case in cases(engine):
        seen = case.start["observed"]
        pool = seen.get("kv_pool_gib") or 0
        if case.start["grade"] == "C" or pool <= 0 or not seen.get("max_concurrency") or not seen.get("at_len"):
            continue
        try:
            asked = fields(case.start) | {"kv_cache_memory_bytes": round(pool * GIB)}
            budget = kvtax.budget(**asked)
        except kvtax.KvtaxError:
            continue
        error = (budget.max_concurrency - seen["max_concurrency"]) / seen["max_concurrency"]
        found.append(Error(case.start, 100 * error))
    return found


def verdicts(engine: str | None = None) -> list[tuple[Case, bool, bool]]:
    """(case, whether it started, whether kvtax says so) of the starts whose outcome can be told from memory; no answer counts as wrong."""
    found = []
    for name in ("vllm", "sglang", "tensorrt-llm") if engine is None else (engine,):
        for case in cases(name):
            if not case.start.get("verdict_usable"):
                continue
            started = case.start["verdict"] == "fits"
            says = case.budget.verdict in ("fits", "over_budget") if case.answered else not started
            found.append((case, started, says))
    return found


# ---- what is written down ----


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile of a few values, between neighbours."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * share
    low, high = math.floor(position), math.ceil(position)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def summary(errors: Iterable[Error]) -> dict[str, float | int]:
    """Number of starts and of sources, median and 90th percentile of the size of the errors."""
    found = list(errors)
    sizes = [abs(error.value) for error in found]
    if not sizes:
        return {"starts": 0}
    return {
        "starts": len(sizes),
        "sources": len({error.start["source_group"] for error in found}),
        "median": round(statistics.median(sizes), 2),
        "p90": round(quantile(sizes, 0.9), 2),
    }


FAMILIES = {
    "vllm": (
        ("V1 (0.8 and later), discrete cards", lambda start: start["v1"]),
        ("of these, one kind of cache", lambda start: start["v1"] and not start.get("hybrid")),
        ("of these, windows or recurrent state", lambda start: start["v1"] and start.get("hybrid")),
        ("V0 (before 0.8), discrete cards", lambda start: not start["v1"]),
    ),
    "sglang": (
        ("discrete cards", lambda start: True),
        ("of these, one kind of cache", lambda start: not start.get("hybrid")),
        ("of these, windows or recurrent state", lambda start: start.get("hybrid")),
    ),
    "tensorrt-llm": (("discrete cards", lambda start: True),),
}  # fmt: skip
LOWEST, HIGHEST = 0.04, 0.96
"""Quantiles of the residuals that an interval of 90 % reaches to: a little wider, since few starts stand for many."""
FEW = 8
"""Residuals of a kind from which it has a margin of its own."""
LEAST_WIDTH = 0.008
"""What the totals of one card model differ by, and so the least that a margin can be to each side (reference: totals printed by torch)."""


def residuals(engine: str) -> dict[str, list[Error]]:
    """(printed - predicted) / card by kind of case, of every start that printed its pool; weights as known from flags and printed both."""
    found: dict[str, list[Error]] = {}
    for given in (False, True):
        for error in pool_errors(engine, given, everywhere=True):
            case = next(case for case in cases(engine) if case.start is error.start)
            budget = case.given if given else case.budget
            assert isinstance(budget, Budget)
            kind = budget.prepared.plan.kind()
            entry = Error(error.start, -error.value / 100)
            if not any(other.start is error.start for other in found.get(kind, ())):
                found.setdefault(kind, []).append(entry)
    return found


def ends(values: Sequence[float]) -> tuple[float, float]:
    """The margin that a list of residuals gives [share of the card]."""
    low, high = quantile(values, LOWEST), quantile(values, HIGHEST)
    return min(low, -LEAST_WIDTH), max(high, LEAST_WIDTH)


def margins(engine: str, without: str = "") -> dict[str, dict[str, Any]]:
    """Margins by kind, and of all together; the starts of one source can be left out."""
    found, everything = {}, []
    for kind, errors in sorted(residuals(engine).items()):
        kept = [error for error in errors if error.start["source_group"] != without]
        everything += kept
        if len(kept) >= FEW:
            low, high = ends([error.value for error in kept])
            sources = len({error.start["source_group"] for error in kept})
            found[kind] = {"low": round(low, 4), "high": round(high, 4), "starts": len(kept), "sources": sources}
    if len(everything) >= FEW:  # fewer stand for nothing: the wide interval of an engine without starts counts
        low, high = ends([error.value for error in everything])
        found["all"] = {
            "low": round(low, 4),
            "high": round(high, 4),
            "starts": len(everything),
            "sources": len({error.start["source_group"] for error in everything}),
        }
    return found


def coverage(engine: str, crossed: bool = False) -> tuple[float, float, int]:
    """Share of starts whose printed pool lies in the interval, median width [% of the card], and their number.

    Args:
        engine: its name.
        crossed: each source is judged by the margins of the others.
    """
    inside, widths = [], []
    for kind, errors in residuals(engine).items():
        for error in errors:
            if error.start.get("unstable_memory"):
                continue
            table = margins(engine, error.start["source_group"] if crossed else "")
            entry = table.get(kind) or table.get("all")
            if entry is None:
                continue
            inside.append(entry["low"] <= error.value <= entry["high"])
            widths.append(100 * (entry["high"] - entry["low"]))
    return (sum(inside) / len(inside), statistics.median(widths), len(inside)) if inside else (0.0, 0.0, 0)


def record(engine: str) -> dict[str, Any]:
    """What configs/engines holds of an engine."""
    answered = cases(engine)
    rows = []
    for name, belongs in FAMILIES[engine]:
        row: dict[str, Any] = {"family": name}
        for quantity, errors in (
            ("weights", weight_errors(engine)),
            ("pool", pool_errors(engine, False)),
            ("pool_given_weights", pool_errors(engine, True)),
            ("concurrency", concurrency_errors(engine)),
        ):
            row[quantity] = summary(error for error in errors if belongs(error.start))
        rows.append(row)
    told = verdicts(engine)
    share, width, count = coverage(engine)
    return {
        "engine": engine,
        "generated_by": "python tests/evidence.py --write",
        "starts": len(answered),
        "sources": len({case.start["source_group"] for case in answered}),
        "errors": rows,
        "verdicts": {"starts": len(told), "right": sum(started == says for _, started, says in told)},
        "interval": {"starts": count, "inside": round(share, 3), "median_width": round(width, 2)},
        "kinds": margins(engine),
    }


def table() -> str:
    """The table of errors for README.md."""
    lines = [
        "| engine, kind of start | weights of a card | pool, share of the card | the same, weights given | concurrency |",
        "|---|---|---|---|---|",
    ]
    for engine in FAMILIES:
        known = json.loads((ENGINES / f"{engine}.json").read_text(encoding="utf-8"))
        for row in known["errors"]:
            cells = [
                f"{entry['median']:g} / {entry['p90']:g} % ({entry['starts']})" if entry["starts"] else ""
                for entry in (row[name] for name in ("weights", "pool", "pool_given_weights", "concurrency"))
            ]
            lines.append(f"| {engine}: {row['family']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def write() -> None:
    """Put the records and the table where they belong."""
    ENGINES.mkdir(exist_ok=True)
    for engine in FAMILIES:
        if cases(engine):
            text = json.dumps(record(engine), indent=1, ensure_ascii=False) + "\n"
            (ENGINES / f"{engine}.json").write_text(text, encoding="utf-8")
    page = ROOT / "README.md"
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table()}{END}{after}", encoding="utf-8")


BEGIN, END = "<!-- errors: python tests/evidence.py --write -->\n", "<!-- end of errors -->"

if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    for shown in FAMILIES:
        print(shown, json.dumps(record(shown)["errors"]), *(f"inside {x:.3f}" for x in coverage(shown, True)[:2]))
        for found in sorted(pool_errors(shown, False), key=lambda error: -abs(error.value))[:30]:
            print(
                f"{found.value:+6.1f} % of the card  {found.start['id']}  {found.start.get('gpu')}  {found.start['model']}"
            )
