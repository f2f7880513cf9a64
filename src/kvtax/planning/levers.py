"""Which single changes would help a deployment, and what each one brings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvtax.budgets import Budget, budget
from kvtax.deployment import COMMON_FIELDS
from kvtax.errors import KvtaxError
from kvtax.hardware.gpu import Gpu
from kvtax.planning.changes import COMMON_CARDS, Change, all_changes, pairs, shorter_requests
from kvtax.planning.lengths import longest_length, room_requests, round_length
from kvtax.sources.models import ModelEntry

__all__ = ["COMMON_CARDS", "Change", "Lever", "every_lever", "levers"]

SHORTEST_SHARE = 16
"""A context shorter than this part of the one asked for is no help."""
_LEAST_LENGTH = 256
LEAST_GAIN = 1.005
"""A change that brings less than half a per cent more requests is not worth a line."""


class Lever(NamedTuple):
    """A change and the budget that it gives."""

    change: Change
    budget: Budget


class Levers(NamedTuple):
    """Every lever that helps, best first, and the flags of those that were tried and bring nothing."""

    found: tuple[Lever, ...]
    useless: tuple[str, ...]


def levers(
    base: Budget, limit: int = 3, *, models: Sequence[ModelEntry] = (), gpus: Sequence[Gpu] = ()
) -> tuple[Lever, ...]:
    """The changes that help most, best first; each alone, recomputed with the engine's rules.

    A change that makes it fit comes before one that only brings it nearer; among equals the one that carries more tokens at once.
    Of each kind (more ranks, a larger card, ...) the smallest change that cures is kept.

    Args:
        base: a budget that does not fit.
        limit: how many at most.
        models: entries of one's own.
        gpus: cards of one's own.
    """
    found: dict[str, Lever] = {}
    length = _length_that_fits(base)
    if length is not None and length * SHORTEST_SHARE < base.max_model_len:
        length = None
    _try([*all_changes(base), *shorter_requests(length)], base, found, models, gpus)
    if not any(lever.budget.fits for lever in found.values()):
        _try(pairs(base), base, found, models, gpus)
    return tuple(sorted(found.values(), key=lambda lever: _rank(lever.budget), reverse=True)[:limit])


def every_lever(base: Budget, *, models: Sequence[ModelEntry] = (), gpus: Sequence[Gpu] = ()) -> Levers:
    """Every change that brings something, ranked: it fits, it starts, then by requests at once.

    Of each kind the smallest change that helps and the one that brings most are kept; what the engine or the card cannot do is left out.

    Args:
        base: any budget.
        models: entries of one's own.
        gpus: cards of one's own.
    """
    tried: dict[str, list[Lever]] = {}
    useless = []
    length = base.max_model_len // 2 if base.max_model_len > 2048 else None
    for change in (*all_changes(base), *shorter_requests(length)):
        made = _made(change, base, models, gpus)
        if made is None:
            continue
        if _brings(made, base):
            tried.setdefault(change.kind, []).append(Lever(change, made))
        elif made.verdict != "refused":
            useless.append(change.flags)
    found = []
    for of_kind in tried.values():
        best = max(of_kind, key=lambda lever: _by_requests(lever.budget))
        found += [of_kind[0]] if best is of_kind[0] else [of_kind[0], best]
    return Levers(tuple(sorted(found, key=lambda lever: _by_requests(lever.budget), reverse=True)), tuple(useless))


def _made(change: Change, base: Budget, models: Sequence[ModelEntry], gpus: Sequence[Gpu]) -> Budget | None:
    """The budget under a change, None where the engine has no such field or the change cannot be."""
    if not (COMMON_FIELDS | base.prepared.plan.FIELDS).issuperset(change.fields):
        return None
    try:
        return budget(models=models, gpus=gpus, **(base.asked | change.fields))
    except KvtaxError:
        return None


def _by_requests(tried: Budget) -> tuple[bool, bool, float, int]:
    """Fits; starts; requests that there is room for; what is left for KV."""
    return tried.fits, tried.verdict in ("fits", "over_budget"), room_requests(tried), tried.kv_pool_bytes


def _brings(tried: Budget, base: Budget) -> bool:
    """Whether a change that can be made brings more requests, or starts what would not."""
    if tried.verdict in ("refused", "out_of_memory"):
        return False
    if tried.fits != base.fits:
        return tried.fits
    return room_requests(tried) > room_requests(base) * LEAST_GAIN


def _try(
    changes: Iterable[Change], base: Budget, found: dict[str, Lever], models: Sequence[ModelEntry], gpus: Sequence[Gpu]
) -> None:
    """Recompute the budget under each change; keep the best of each kind in `found`."""
    for change in changes:
        if change.kind in found and found[change.kind].budget.fits:
            continue
        tried = _made(change, base, models, gpus)
        if tried is None or not _helps(tried, base):
            continue
        if change.kind not in found or _rank(tried) > _rank(found[change.kind].budget):
            found[change.kind] = Lever(change, tried)


def _rank(tried: Budget) -> tuple[bool, bool, int, int]:
    """Fits; starts; tokens at once; what is left for KV of all cards of a copy."""
    starts = tried.verdict in ("fits", "over_budget")
    tokens = int(tried.max_concurrency * tried.max_model_len)
    deployment = tried.deployment
    return (
        tried.fits,
        starts,
        tokens,
        tried.kv_pool_bytes * deployment.tensor_parallel_size * deployment.pipeline_parallel_size,
    )


def _helps(tried: Budget, base: Budget) -> bool:
    """Whether a change is worth a line: it cures, or brings a tenth of what is missing."""
    if base.verdict == "refused":
        return tried.verdict != "refused"
    if tried.verdict == "refused":
        return False
    if tried.fits:
        return True
    missing = base.kv_demand_bytes - base.kv_pool_bytes
    return (
        tried.max_concurrency > base.max_concurrency * 1.05 or (tried.kv_pool_bytes - base.kv_pool_bytes) * 10 > missing
    )


def _length_that_fits(base: Budget) -> int | None:
    """The longest context, in whole KiB of tokens where there is one, at which the requests asked for fit; None where none does."""
    length = longest_length(base, base.concurrency, base.max_model_len - 1)
    return None if length < _LEAST_LENGTH else round_length(base, base.concurrency, length)
