"""How far real servers' pools lie from the prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvtax.budgets import Budget

SHARE_OF_CARD = 0.03
"""Half width of the interval as a share of the card's memory (placeholder until fitted below)."""


def pool_margin(budget: Budget) -> tuple[int, int]:
    """What to add to the pool for the ends of a 90 % interval [bytes]."""
    total = budget.memory.total_bytes
    width = int(total * SHARE_OF_CARD)
    return -width, width
