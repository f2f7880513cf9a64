"""The choices that carry a need as a page and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvtax.budgets import Budget
from kvtax.planning.fit import Choice, Fit, Limit, Nearest
from kvtax.planning.grid import show_change
from kvtax.planning.need import Need
from kvtax.terms import Notice
from kvtax.units import format_gib, format_requests, format_share
from kvtax.views.budget_charts import budget_charts
from kvtax.views.charts import AnyChart
from kvtax.views.json_form import fields_to_dict
from kvtax.views.page import Cell, Column, Fact, Facts, Grid, Page, Row, number_cell
from kvtax.views.variant_words import error_dict, reason_lines

SCHEMA = "kvtax.fit/1"
MOST_ROWS = 12
"""Choices that a page shows where no number is asked for."""
_COLUMNS = (
    Column("choice", "choice", fold=True),
    Column("GiB", "total_bytes", right=True),
    Column("weights", "weights_bytes", right=True, from_width=92),
    Column("KV pool", "kv_pool_bytes", right=True, from_width=92),
    Column("requests", "max_concurrency", right=True),
    Column("free", "headroom", right=True),
    Column("per hour", "price_per_hour", right=True),
    Column("sure", "sure"),
)
_KEYS = {
    "memory": "memory of all cards",
    "price": "price an hour",
    "cards": "number of cards",
    "headroom": "share of the KV pool that stays free",
}


def fit_page(found: Fit, *, most: int = MOST_ROWS) -> Page:
    """The choices, best first; where there is none, what binds and what is nearest.

    Args:
        found: what is shown.
        most: rows.
    """
    if found.limit is not None:
        return _failure(found, found.limit)
    best = found.choices[0].budget
    engines = dict.fromkeys(choice.budget.prepared.plan.label for choice in found.choices)
    title = f"{best.model.id}: {found.need}, {' or '.join(engines)}"
    said: set[Notice] = set()
    rows = tuple(
        _row(choice, number, said, priced=_priced(found)) for number, choice in enumerate(found.choices[:most])
    )
    return Page(title, (Grid("choices", "", _columns(found), rows, tuple(_remarks(found, most))),))


def fit_grid(found: Fit) -> Grid:
    """Every choice with exact values, for CSV."""
    rows = tuple(_row(choice, 1, set(), priced=_priced(found)) for choice in found.choices)
    return Grid("choices", "", _columns(found), rows)


def _columns(found: Fit) -> tuple[Column, ...]:
    currency = next((choice.currency for choice in found.choices if choice.currency), "")
    columns = (column for column in _COLUMNS if _priced(found) or column.key != "price_per_hour")
    return tuple(
        column._replace(title=f"{currency}/h") if column.key == "price_per_hour" else column for column in columns
    )


def _priced(found: Fit) -> bool:
    return any(choice.price_per_hour is not None for choice in found.choices)


def choice_name(change: Any, budget: Budget) -> str:
    """A choice in words: `2 x l40s kv_cache_dtype=fp8`.

    Args:
        change: the fields that were chosen.
        budget: with them.
    """
    count = budget.prepared.gpu_count
    cards = budget.gpu.id if count == 1 else f"{count} x {budget.gpu.id}"
    hidden = {"gpu", "gpu_count", "vram", "free_memory", "weights_bytes"}
    if budget.deployment.tensor_parallel_size == count:
        hidden.add("tensor_parallel_size")
    return " ".join(
        (cards, show_change({name: value for name, value in change.items() if name not in hidden}))
    ).rstrip()


def _row(choice: Choice, number: int, said: set[Notice], *, priced: bool) -> Row:
    budget, price = choice.budget, choice.price_per_hour
    lines = reason_lines(budget, None, said)
    said.update(budget.notices)
    cells = [
        Cell(choice_name(choice.change, budget), None, "strong" if number == 0 else ""),
        Cell(format_gib(choice.total_bytes, 1), choice.total_bytes),
        Cell(format_gib(budget.weights_bytes, 1), budget.weights_bytes),
        Cell(format_gib(budget.kv_pool_bytes, 1), budget.kv_pool_bytes),
        Cell(format_requests(budget.max_concurrency), budget.max_concurrency),
        Cell(format_share(max(choice.headroom, 0.0)), choice.headroom),
        *([number_cell(f"{price or 0:,.2f}", price)] if priced else ()),
        Cell("yes" if choice.sure else "tight", choice.sure, "good" if choice.sure else "note"),
    ]
    return Row(tuple(cells), tuple(lines))


def _remarks(found: Fit, most: int) -> Iterator[str]:
    yield f"ranked by {_KEYS[found.by]}; GiB: of all cards; weights and KV pool: of one"
    yield "free: share of the KV pool that stays; sure: carried at the low end of the 90 % interval, too"
    if _priced(found):
        yield "price: of all cards, an hour, by the list that was given"
    left = len(found.choices) - most
    if left > 0:
        yield f"{left} more choices carry it: --most {len(found.choices)} shows all"
    yield f"{found.tried - len(found.choices)} of {found.tried} choices do not carry it"


def fit_charts(found: Fit, *, most: int = MOST_ROWS) -> tuple[AnyChart, ...]:
    """Where the memory of each choice goes, and how its concurrency falls with context.

    Args:
        found: what is shown.
        most: choices.
    """
    named = [(choice_name(choice.change, choice.budget), choice.budget) for choice in found.choices[:most]]
    return budget_charts(named) if named else ()


# ---- where none carries it ----


def _failure(found: Fit, limit: Limit) -> Page:
    near = [f"{each.need} on {choice_name(each.change, each.budget)}" for each in limit.nearest]
    near = near or ["nothing like it: try other cards (-g all), more ranks, or --vary quantization=..."]
    facts = (Fact("limit", "limit", limit.words, limit.what), *(Fact("nearest", "nearest", words) for words in near))
    return Page(f"None of {found.tried} choices carries {found.need}", (Facts("limit", "", facts),))


# ---- JSON ----


def fit_to_dict(found: Fit) -> dict[str, Any]:
    """The same as `kvtax.fit/1`.

    Args:
        found: what is shown.
    """
    from kvtax.budget_result import catalogue_stamp

    limit = found.limit
    return {
        "schema": SCHEMA,
        **catalogue_stamp(),
        "need": need_to_dict(found.need),
        "by": found.by,
        "tried": found.tried,
        "choices": [_choice(choice) for choice in found.choices],
        "limit": None
        if limit is None
        else {"what": limit.what, "message": limit.words, "nearest": [_nearest(near) for near in limit.nearest]},
        "failed": [
            {
                "set": fields_to_dict(one.change),
                "verdict": None if one.budget is None else one.budget.verdict,
                **({"error": error_dict(one.error)} if one.error is not None else {}),
            }
            for one in found.failed
        ],
    }


def need_to_dict(need: Need) -> dict[str, Any]:
    """A need as JSON has it."""
    return {
        "concurrency": need.concurrency,
        "max_model_len": need.max_model_len,
        "mix": [{"concurrency": one.concurrency, "tokens": one.tokens} for one in need.mix],
    }


def _choice(choice: Choice) -> dict[str, Any]:
    document = choice.budget.to_dict()
    return {
        "set": fields_to_dict(choice.change),
        "deployment": document["deployment"],
        "budget": document,
        "launch": None,
        "price_per_hour": choice.price_per_hour,
        "currency": choice.currency or None,
        "cards": choice.cards,
        "total_bytes": choice.total_bytes,
        "headroom": choice.headroom,
        "sure": choice.sure,
    }


def _nearest(near: Nearest) -> dict[str, Any]:
    return {
        "need": need_to_dict(near.need),
        "set": fields_to_dict(near.change),
        "gpu": near.budget.gpu.id,
        "cards": near.budget.prepared.gpu_count,
    }
