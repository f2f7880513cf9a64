"""How long and how many: the longest requests of a number, and the most requests of a length, that a deployment carries."""

from __future__ import annotations

from collections.abc import Callable

from kvtax.budgets import Budget


def longest_length(base: Budget, concurrency: int | None, most: int) -> int:
    """The longest max_model_len up to `most` at which `concurrency` requests fit, by bisection; 0 where none does [tokens].

    Args:
        base: a budget of any length.
        concurrency: requests at once; None is one.
        most: no longer than this [tokens].
    """
    return _greatest(most, lambda length: Budget(base.prepared, length, concurrency).fits)


def round_length(base: Budget, concurrency: int | None, length: int) -> int:
    """The same in whole KiB of tokens where that fits, too: lengths as people write them [tokens]."""
    rounded = length // 1024 * 1024
    return rounded if rounded and Budget(base.prepared, rounded, concurrency).fits else length


def longest_context(budget: Budget) -> int:
    """The longest context at which the requests asked for fit, up to the model's own limit; 0 where none does [tokens]."""
    if budget.concurrency is None:
        return budget.longest_context()
    return longest_length(budget, budget.concurrency, budget.prepared.plan.default_max_model_len())


def most_requests(base: Budget, max_model_len: int, most: int) -> int:
    """The most requests of a length, up to `most`, that fit at once, by bisection; 0 where none does.

    Args:
        base: a budget of any length.
        max_model_len: of each request [tokens].
        most: no more than this.
    """
    return _greatest(most, lambda count: Budget(base.prepared, max_model_len, count).fits)


def _greatest(most: int, holds: Callable[[int], bool]) -> int:
    """The greatest number up to `most` that holds, where all smaller ones do; 0 where none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


MOST_SLOTS = 4096


def room_requests(budget: Budget) -> float:
    """Requests of max_model_len that there is room for: the engine's own count, or the slots that could be allocated at most.

    Args:
        budget: of an engine that takes what is left, or of one that allocates what is asked.
    """
    if not budget.prepared.plan.ALLOCATES or budget.verdict == "refused":
        return budget.max_concurrency
    return float(most_requests(budget, budget.max_model_len, MOST_SLOTS))
