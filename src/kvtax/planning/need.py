"""What a deployment has to carry: requests of a length at once, or a mix of lengths."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kvtax.budgets import Budget
from kvtax.deployment import read_field
from kvtax.errors import InputError
from kvtax.units import format_tokens

MOST_CLASSES = 64


class Class(NamedTuple):
    """Requests of one length: how many at once, and how long each grows [tokens]."""

    concurrency: int
    tokens: int


class Need(NamedTuple):
    """What has to be carried.

    Args:
        concurrency: requests of max_model_len at once; None is one, or what `mix` says.
        max_model_len: the longest request; None is the model's own limit [tokens].
        mix: requests of several lengths at once.
    """

    concurrency: int | None = None
    max_model_len: int | None = None
    mix: tuple[Class, ...] = ()

    @property
    def requests(self) -> int:
        """All requests at once."""
        return sum(one.concurrency for one in self.mix) or self.concurrency or 1

    def __str__(self) -> str:
        """In words."""
        if self.mix:
            return " + ".join(f"{one.concurrency:,} of {format_tokens(one.tokens)}" for one in self.mix) + " tokens"
        length = (
            "the model's longest context"
            if self.max_model_len is None
            else f"{format_tokens(self.max_model_len)} tokens"
        )
        return f"{self.requests:,} request{'s' * (self.requests != 1)} of {length}"


def read_mix(text: str) -> tuple[Class, ...]:
    """A mix of requests as it is typed.

    >>> read_mix("36x4k,4x32k")
    (Class(concurrency=36, tokens=4096), Class(concurrency=4, tokens=32768))

    Raises:
        InputError: not a mix, or too many lengths.
    """
    found = []
    for word in text.split(",", MOST_CLASSES + 1):
        count, cross, tokens = word.strip().lower().partition("x")
        if not cross:
            raise InputError(
                f"{word[:64]!r} is not REQUESTSxTOKENS",
                code="invalid-input",
                hint="write it so: 36x4k,4x32k",
                where="traffic",
            )
        found.append((count, tokens))
    return make_mix(found)


def make_mix(classes: Iterable[tuple[Any, Any]]) -> tuple[Class, ...]:
    """A mix from pairs of a number and a length.

    Raises:
        InputError: a number or a length that cannot be, or too many lengths.
    """
    found = tuple(
        Class(read_field("concurrency", count)[1], read_field("max_model_len", tokens)[1]) for count, tokens in classes
    )
    if len(found) > MOST_CLASSES:
        raise InputError(f"a mix has at most {MOST_CLASSES} lengths", code="invalid-input", where="traffic")
    return found


def need_fields(need: Need, *, allocates: bool) -> dict[str, Any]:
    """The fields of a deployment that has to carry it.

    Args:
        need: what is asked.
        allocates: the engine gives each request a slot of the greatest length: then the mix counts as that many of the longest.
    """
    if not need.mix:
        return {"concurrency": need.concurrency, "max_model_len": need.max_model_len}
    longest = max(one.tokens for one in need.mix)
    length = longest if need.max_model_len is None else max(longest, need.max_model_len)
    return {"concurrency": need.requests if allocates else None, "max_model_len": length}


def share_needed(budget: Budget, need: Need) -> float:
    """sum(concurrency / max_concurrency at that length): the share of the pool that a need takes; 1 is all of it.

    Of an engine that allocates what is asked: what it allocates of what the card has for it.

    Args:
        budget: of `need_fields`.
        need: what has to be carried.

    Returns:
        The share; infinite where nothing is left for KV.
    """
    if budget.prepared.plan.ALLOCATES:
        room = budget.kv_pool_bytes + budget.unallocated_bytes
        return budget.kv_pool_bytes / room if room > 0 else float("inf")
    share = 0.0
    for one in need.mix or (Class(need.requests, budget.max_model_len),):
        same = one.tokens == budget.max_model_len
        most = budget.max_concurrency if same else Budget(budget.prepared, one.tokens, None).max_concurrency
        if most <= 0:
            return float("inf")
        share += one.concurrency / most
    return share


def carries(budget: Budget, need: Need) -> bool:
    """Whether a deployment carries a need: it fits, as `kvtax budget` calls it, and the mix takes no more than its pool."""
    return budget.fits and (not need.mix or budget.prepared.plan.ALLOCATES or share_needed(budget, need) <= 1)
