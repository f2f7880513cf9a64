"""Why two budgets differ: which parts of the memory changed, and how much each changed field brought.

Parts add up: total = weights + activation + cuda_graph + runtime + kv_pool + unallocated, so the change of the pool is the sum of the
others' changes. Fields are given their Shapley shares: what a field brings, averaged over every order in which the changes can be made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import factorial
from typing import Any, NamedTuple

from kvtax.budget_result import Budget
from kvtax.errors import KvtaxError

MOST_FIELDS = 6
"""Up to 2^6 budgets are computed for the shares of fields; more changes are attributed in the order given."""
_POOL_PARTS = (
    ("total_bytes", 1, "card"),
    ("unallocated_bytes", -1, "unallocated"),
    ("weights_bytes", -1, "weights"),
    ("activation_bytes", -1, "activation"),
    ("cuda_graph_bytes", -1, "CUDA graphs"),
    ("runtime_bytes", -1, "runtime"),
)


class Figures(NamedTuple):
    """The figures of a budget that are compared, of one card.

    Args:
        per_gpu: as in the JSON of a budget [bytes].
        bytes_per_request: set aside for one request [bytes].
        capacity_tokens: of the pool [tokens].
        max_concurrency: requests of at_context tokens [requests].
        at_context: length of a request [tokens].
        verdict: of the budget.
    """

    per_gpu: Mapping[str, int]
    bytes_per_request: int
    capacity_tokens: int
    max_concurrency: float
    at_context: int
    verdict: str

    @property
    def kv_pool_bytes(self) -> int:
        """Of one card [bytes]."""
        return self.per_gpu["kv_pool_bytes"]


def figures_of(budget: Budget) -> Figures:
    """The figures of a budget."""
    return Figures(
        budget.per_gpu,
        budget.kv_bytes_per_request,
        budget.capacity_tokens,
        budget.max_concurrency,
        budget.max_model_len,
        budget.verdict,
    )


class Part(NamedTuple):
    """One part of the memory before and after; `sign`: whether more of it makes the pool larger (1) or smaller (-1)."""

    name: str
    before_bytes: int
    after_bytes: int
    sign: int

    @property
    def effect_bytes(self) -> int:
        """sign * (after - before): what it brings to the pool [bytes]."""
        return self.sign * (self.after_bytes - self.before_bytes)


class Share(NamedTuple):
    """What one change, or changes that only make sense together, brings to the pool and to the concurrency."""

    fields: tuple[str, ...]
    kv_pool_bytes: int
    max_concurrency: float


class Causes(NamedTuple):
    """Why the pool and the concurrency changed.

    Args:
        parts: of the memory that changed; their effects add up to the change of the pool.
        request_bytes: set aside for one request before and after [bytes].
        shares: of the changed fields, the largest first; empty where they cannot be told apart.
        in_order: the shares rest on one order of the changes, not on all.
    """

    parts: tuple[Part, ...]
    request_bytes: tuple[int, int]
    shares: tuple[Share, ...] = ()
    in_order: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON has them."""
        return {
            "kv_pool_bytes": {part.name: part.effect_bytes for part in self.parts},
            "bytes_per_request": list(self.request_bytes),
            "fields": [
                {
                    "fields": list(share.fields),
                    "kv_pool_bytes": share.kv_pool_bytes,
                    "max_concurrency": share.max_concurrency,
                }
                for share in self.shares
            ],
        }


def pool_parts(before: Figures, after: Figures) -> tuple[Part, ...]:
    """The parts of the memory that changed, the largest effect first; effects add up to the change of the pool."""
    parts = [Part(name, before.per_gpu[key], after.per_gpu[key], sign) for key, sign, name in _POOL_PARTS]
    return tuple(sorted((part for part in parts if part.effect_bytes), key=lambda part: -abs(part.effect_bytes)))


def causes(
    before: Figures,
    after: Figures,
    changes: Mapping[str, Any] | None = None,
    compute: Callable[[Mapping[str, Any]], Figures] | None = None,
) -> Causes:
    """Why `after` differs from `before`.

    Args:
        before: figures.
        after: figures.
        changes: fields with their new values; None: not known.
        compute: the figures with some of the changes made.
    """
    parts, requests = pool_parts(before, after), (before.bytes_per_request, after.bytes_per_request)
    if not changes or compute is None:
        return Causes(parts, requests)
    groups = _groups(list(changes))
    if len(groups) == 1:
        whole = Share(groups[0], after.kv_pool_bytes - before.kv_pool_bytes, _difference(before, after))
        return Causes(parts, requests, (whole,))

    def partly(chosen: Sequence[tuple[str, ...]]) -> Figures:
        return compute({name: changes[name] for group in chosen for name in group})

    all_orders = len(groups) <= MOST_FIELDS
    try:
        shares = _shapley(groups, partly) if all_orders else _in_order(groups, partly)
    except KvtaxError:  # some of the changes are not possible without the others
        try:
            shares, all_orders = _in_order(groups, partly), False
        except KvtaxError:
            return Causes(parts, requests)
    return Causes(parts, requests, _largest_first(shares), not all_orders)


def _difference(before: Figures, after: Figures) -> float:
    return after.max_concurrency - before.max_concurrency


def _largest_first(shares: Sequence[Share]) -> tuple[Share, ...]:
    return tuple(sorted(shares, key=lambda share: (-abs(share.max_concurrency), -abs(share.kv_pool_bytes))))


_TOGETHER = (frozenset(("gpu", "vram", "free_memory")), frozenset(("engine", "engine_version")))
"""Fields that only make sense together: the size of a card with the card, a version with its engine."""


def _groups(names: Sequence[str]) -> list[tuple[str, ...]]:
    """The changed fields, those together that only make sense together; fields of an engine go with a change of the engine."""
    if "engine" in names:
        from kvtax.deployment import COMMON_FIELDS
        from kvtax.engines.registry import PLANS, plan_class

        everywhere = frozenset.intersection(*(plan_class(engine).FIELDS for engine in PLANS)) | COMMON_FIELDS
        with_engine = tuple(name for name in names if name not in everywhere or name in _TOGETHER[1])
        return [with_engine, *_groups([name for name in names if name not in with_engine])]
    found: list[tuple[str, ...]] = []
    for name in names:
        kin = next((group for group in _TOGETHER if name in group), frozenset((name,)))
        members = tuple(each for each in names if each in kin)
        if members not in found:
            found.append(members)
    return found


def _shapley(groups: Sequence[tuple[str, ...]], partly: Callable[[Sequence[tuple[str, ...]]], Figures]) -> list[Share]:
    """share(i) = sum over subsets S without i of |S|! (n - |S| - 1)! / n! * (value(S + i) - value(S))."""
    count = len(groups)
    places = range(count)
    known = {
        chosen: partly([groups[place] for place in chosen])
        for size in range(count + 1)
        for chosen in combinations(places, size)
    }
    shares = []
    for place in places:
        pool, requests = Fraction(), 0.0
        for chosen in known:
            if place in chosen:
                continue
            weight = Fraction(factorial(len(chosen)) * factorial(count - len(chosen) - 1), factorial(count))
            before, after = known[chosen], known[tuple(sorted((*chosen, place)))]
            pool += weight * (after.kv_pool_bytes - before.kv_pool_bytes)
            requests += float(weight) * _difference(before, after)
        shares.append((groups[place], pool, requests))
    return _whole_bytes(shares)


def _whole_bytes(shares: Sequence[tuple[tuple[str, ...], Fraction, float]]) -> list[Share]:
    """Shares in whole bytes whose sum is the whole change: what rounding leaves goes to the last."""
    rounded = [round(pool) for _, pool, _ in shares]
    rounded[-1] += int(sum((pool for _, pool, _ in shares), Fraction())) - sum(rounded)
    return [Share(fields, pool, requests) for (fields, _, requests), pool in zip(shares, rounded, strict=True)]


def _in_order(groups: Sequence[tuple[str, ...]], partly: Callable[[Sequence[tuple[str, ...]]], Figures]) -> list[Share]:
    """What each change brings on top of those before it."""
    shares, before = [], partly(())
    for number, group in enumerate(groups, 1):
        after = partly(groups[:number])
        shares.append(Share(group, after.kv_pool_bytes - before.kv_pool_bytes, _difference(before, after)))
        before = after
    return shares
