"""One deployment at many lengths of request: budgets, each the one that is made for that length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvtax.budgets import Budget
from kvtax.planning.anatomy import lengths_up_to


def lengths_for(budgets: Sequence[Budget]) -> tuple[int, ...]:
    """Lengths at which deployments are compared: from 1k to the longest limit by doubling, and each length that is asked for [tokens].

    Args:
        budgets: to compare.
    """
    limits = {_limit(budget) for budget in budgets}
    asked = {budget.max_model_len for budget in budgets}
    return tuple(sorted({*lengths_up_to(max(limits)), *limits, *asked})) if budgets else ()


def at_lengths(budget: Budget, lengths: Iterable[int]) -> tuple[Budget | None, ...]:
    """The same deployment at other lengths of request.

    Args:
        budget: of the deployment.
        lengths: of the longest request [tokens].

    Returns:
        A budget for each length; None beyond the model's limit, where it was not asked for.
    """
    limit = _limit(budget)
    return tuple(Budget(budget.prepared, length, budget.concurrency) if length <= limit else None for length in lengths)


def _limit(budget: Budget) -> int:
    """The longest request that is shown: the model's limit, or a longer one that is asked for [tokens]."""
    own = budget.prepared.architecture.max_position_embeddings
    return max(own or budget.prepared.plan.default_max_model_len(), budget.max_model_len)
