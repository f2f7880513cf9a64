"""Ranks that differ from each other, a row each: stages of a pipeline, cards of different size."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvtax.safe_text import safe
from kvtax.units import format_count, format_gib, format_requests

if TYPE_CHECKING:
    from kvtax.budgets import Budget

_MOST_RANKS = 16


class RankRow(NamedTuple):
    """One rank beside others that differ from it; sizes in GiB."""

    name: str
    layers: str
    total: str
    weights: str
    kv_pool: str
    unallocated: str
    requests: str
    tightest: bool


RANK_HEADINGS = ("", "layers", "GiB", "weights", "KV", "left", "requests")


def rank_rows(budget: Budget) -> tuple[RankRow, ...]:
    """A row for each rank where they differ, up to sixteen."""
    rows = []
    for rank in budget.ranks[:_MOST_RANKS]:
        memory = rank.memory
        rows.append(
            RankRow(
                safe(rank.name, 64),
                format_count(rank.layers),
                format_gib(memory.total_bytes),
                format_gib(memory.weights_bytes),
                format_gib(memory.kv_pool_bytes),
                format_gib(memory.unallocated_bytes),
                format_requests(rank.pool.max_concurrency),
                memory == budget.memory,
            )
        )
    return tuple(rows)
