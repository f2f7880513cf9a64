"""Charts of budgets: how the KV of a request grows, how concurrency falls with context, where the memory of each choice goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvtax.planning.curves import at_lengths, lengths_for
from kvtax.units import format_bytes, format_requests, format_tokens
from kvtax.views.charts import BYTES, REQUESTS, TOKENS, Axis, Bar, Bars, Curve, Curves, Segment, SegmentKind

if TYPE_CHECKING:
    from kvtax.budgets import Budget

NamedBudgets = Sequence[tuple[str, "Budget"]]
"""Choices that are compared, each with the name that stands in the chart."""
CONTEXT = Axis("context [tokens]", TOKENS, logarithmic=True)
SEGMENTS = ("weights", "activation", "cuda_graph", "runtime", "kv_pool", "unallocated")
"""The parts of `Budget.per_gpu` in the order in which they are drawn."""
_NAMES = {"weights": "weights", "unallocated": "unallocated"}


def budget_charts(named: NamedBudgets) -> tuple[Curves | Bars, ...]:
    """What `kvtax budget` plots: where the memory goes, and concurrency against context.

    Args:
        named: at least one choice.
    """
    curves = concurrency_chart(named)
    return (memory_chart(named), *([] if curves is None else [curves]))


def kv_growth_chart(budget: Budget) -> Curves | None:
    """What one request holds on one rank against its length, and what the engine sets aside for it where that is more.

    Args:
        budget: of the deployment.

    Returns:
        The chart; None where a request keeps nothing.
    """
    lengths = lengths_for([budget])
    budgets = [found for found in at_lengths(budget, lengths) if found is not None]
    held = tuple(found.live_bytes_per_request for found in budgets)
    if len(held) < 2 or not any(held):
        return None
    curves, remarks = [Curve("", held)], list[str]()
    aside = tuple(found.kv_bytes_per_request for found in budgets)
    if any(most > 1.05 * least for least, most in zip(held, aside, strict=True)):
        curves = [Curve("held", held), Curve("set aside", aside, dotted=True)]
        remarks = [f"set aside: what {budget.deployment.engine} takes from its pool for a request, in whole blocks"]
    y = Axis("KV of one request on one GPU", BYTES, logarithmic=all(held) and all(aside))
    title = f"{budget.model.id}: KV of one request, {budget.settings()['kv_cache_dtype'].value}"
    return Curves(title, CONTEXT, y, lengths, tuple(curves), tuple(remarks))


def concurrency_chart(named: NamedBudgets, title: str = "") -> Curves | None:
    """Maximum concurrency against context, one curve for each choice.

    Args:
        named: the choices.
        title: of the chart; empty: the model, where all have the same one.

    Returns:
        The chart; None where no choice carries a request of any length.
    """
    lengths = lengths_for([budget for _, budget in named])
    curves, nothing = [], []
    for name, budget in named:
        values = tuple(_requests(found) for found in at_lengths(budget, lengths))
        if any(values):
            curves.append(Curve(name if len(named) > 1 else "", values))
        else:
            nothing.append(name)
    if not curves or len(lengths) < 2:
        return None
    remarks = (f"carries no request of any length: {', '.join(nothing)}",) if nothing else ()
    y = Axis("maximum concurrency [requests]", REQUESTS, logarithmic=True)
    return Curves(
        title or f"{_shared(named)}maximum concurrency against context", CONTEXT, y, lengths, tuple(curves), remarks
    )


def _requests(budget: Budget | None) -> float | None:
    """Maximum concurrency, as `kvtax budget` prints it; None where the engine does not start at this length."""
    if budget is None or budget.verdict in ("refused", "out_of_memory"):
        return None
    return budget.max_concurrency


def memory_chart(named: NamedBudgets, title: str = "") -> Bars:
    """Where the memory of the tightest GPU of each choice goes.

    Args:
        named: the choices.
        title: of the chart; empty: the model, where all have the same one.
    """
    bars = tuple(_bar(name, budget) for name, budget in named)
    used = {segment.key for bar in bars for segment in bar.segments}
    return Bars(
        title or f"{_shared(named)}memory of one GPU",
        Axis("memory of one GPU", BYTES),
        tuple(SegmentKind(key, name) for key, name in _segment_names(named).items() if key in used),
        bars,
        "memory of the GPU",
        "the engine's limit",
    )


def _segment_names(named: NamedBudgets) -> dict[str, str]:
    """The parts under the names that the engines have for them: several, where they differ."""
    found: dict[str, str] = {}
    for key in SEGMENTS:
        label = "cuda_graphs" if key == "cuda_graph" else key
        names = [_NAMES.get(key) or _label(budget, label) for _, budget in named]
        found[key] = " / ".join(dict.fromkeys(names))
    return found


def _label(budget: Budget, key: str) -> str:
    """What a part is called where no engine rule is known, or in the engine."""
    if not budget.prepared.engine_known:
        return {"kv_pool": "left for KV and all else", "runtime": "system"}.get(key, key)
    return budget.prepared.plan.LABELS[key]


def _bar(name: str, budget: Budget) -> Bar:
    """The parts above zero; where the pool is below it, the others reach beyond the limit and nothing is left to show."""
    parts = budget.per_gpu
    short = parts["kv_pool_bytes"] < 0
    segments = tuple(
        Segment(key, parts[f"{key}_bytes"])
        for key in SEGMENTS
        if parts[f"{key}_bytes"] > 0 and not (short and key == "unallocated")
    )
    limit = parts["limit_bytes"] if parts["limit_bytes"] != parts["total_bytes"] else None
    return Bar(name, segments, parts["total_bytes"], limit, _note(budget), "good" if budget.fits else "bad")


def _note(budget: Budget) -> str:
    """What the choice carries, in a few words."""
    if budget.verdict == "refused":
        return "refused"
    if budget.verdict == "out_of_memory":
        return "out of memory"
    if budget.kv_pool_bytes < 0:
        return f"{format_bytes(-budget.kv_pool_bytes)} short"
    return f"{format_requests(budget.max_concurrency)} x {format_tokens(budget.max_model_len)}"


def _shared(named: NamedBudgets) -> str:
    """The model's name and a colon, where all choices have the same one."""
    names = {budget.model.id for _, budget in named}
    return f"{names.pop()}: " if len(names) == 1 else ""
