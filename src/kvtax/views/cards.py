"""Several cards side by side: one row each, and the document `kvtax.budgets/1`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kvtax.errors import KvtaxError
from kvtax.safe_text import safe
from kvtax.terms import Notice
from kvtax.units import format_count, format_gib, format_requests

if TYPE_CHECKING:
    from kvtax.budgets import Budget

SCHEMA = "kvtax.budgets/1"
HEADINGS = ("GiB", "weights", "KV pool", "needed", "tokens", "requests")


class CardRow(NamedTuple):
    """One card: its figures as text under HEADINGS, and the shares that a bar shows."""

    gpu: str
    cells: tuple[str, ...]
    verdict: str
    word: str
    weights_share: float
    pool_share: float
    notices: tuple[Notice, ...]


Answer = tuple[str, "Budget | KvtaxError"]
"""The name of a card as given, and its budget or why there is none."""


def card_rows(answers: Sequence[Answer]) -> list[CardRow]:
    """A row per card, in the order given; a notice that several cards share is said once."""
    said: set[Notice] = set()
    return [_failed(name, answer) if isinstance(answer, KvtaxError) else _row(answer, said) for name, answer in answers]


def _row(budget: Budget, said: set[Notice]) -> CardRow:
    total = budget.memory.total_bytes
    needed, room = _needed(budget)
    cells = (
        format_gib(total, 1),
        format_gib(budget.weights_bytes, 1),
        format_gib(budget.kv_pool_bytes, 1),
        f"{format_count(-(-needed * 100 // room))} %" if room > 0 else "",
        format_count(budget.capacity_tokens),
        format_requests(budget.max_concurrency),
    )
    fresh = []
    for notice in budget.notices:
        shown = Notice(*(safe(text, 1000) for text in notice))
        if shown not in said:
            said.add(shown)
            fresh.append(shown)
    return CardRow(
        safe(budget.gpu.id, 64),
        cells,
        budget.verdict,
        budget.verdict.replace("_", " "),
        budget.weights_bytes / total if total else 0.0,
        budget.kv_pool_bytes / total if total else 0.0,
        tuple(fresh),
    )


def _needed(budget: Budget) -> tuple[int, int]:
    """What the requests asked for (one, where none is) take with all else, and of what: the limit of an engine that has one [bytes]."""
    if not budget.prepared.engine_known:
        return budget.weights_bytes + budget.kv_demand_bytes, budget.free_bytes
    if budget.prepared.plan.ALLOCATES:
        return budget.memory.total_bytes - budget.unallocated_bytes, budget.memory.total_bytes
    fixed = budget.deployment.kv_cache_memory_bytes is not None
    room = budget.memory.total_bytes - budget.unallocated_bytes if fixed else budget.memory.limit_bytes
    return room - budget.kv_pool_bytes + budget.kv_demand_bytes, room


def _failed(name: str, error: KvtaxError) -> CardRow:
    notice = Notice(error.code, safe(about_card(name, error), 1000), safe(error.hint, 1000))
    return CardRow(safe(name, 64), ("",) * len(HEADINGS), "error", "not known", 0.0, 0.0, (notice,))


def about_card(name: str, error: KvtaxError) -> str:
    """The message of an error with the card's name in it."""
    return str(error) if name in str(error) else f"{name}: {error}"


def cards_title(answers: Sequence[Answer]) -> str:
    """What is sized on all these cards."""
    for _, answer in answers:
        if not isinstance(answer, KvtaxError):
            asked = f", {answer.concurrency:,} requests" if answer.concurrency is not None else ""
            return safe(f"{answer.model.id}, {answer.max_model_len:,} tokens a request{asked}")
    return "no card could be sized"


def cards_legend(answers: Sequence[Answer]) -> str:
    """What the columns mean."""
    budgets = [answer for _, answer in answers if not isinstance(answer, KvtaxError)]
    asked = budgets[0].concurrency if budgets else None
    for_what = f"{asked:,} requests" if asked is not None and asked > 1 else "one request"
    return f"GiB of one card; needed: share of what the engine may use, for {for_what}"


def cards_to_dict(answers: Sequence[Answer]) -> dict[str, Any]:
    """The document of several cards: a budget each, or an error with the card's name."""
    rows = [
        {"gpu": name, **answer.to_dict()} if isinstance(answer, KvtaxError) else answer.to_dict()
        for name, answer in answers
    ]
    return {"schema": SCHEMA, "budgets": rows}
