"""Two budgets and why they differ: by part of the memory, by changed field, by release of the engine, by release of kvtax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from kvtax.budgets import Budget, budget
from kvtax.engines.base import Rule
from kvtax.errors import KvtaxError
from kvtax.hardware.gpu import Gpu
from kvtax.planning.causes import Causes, Figures, causes, figures_of
from kvtax.sources.models import ModelEntry
from kvtax.sources.saved_budget import SavedBudget, read_saved


class Side(NamedTuple):
    """One of the two.

    Args:
        name: as it was called.
        figures: that count: those of the file where it was saved.
        fields: what was asked; None where that is not known.
        budget: as it comes out today; None where it cannot be sized.
        saved: the file, where it is one.
    """

    name: str
    figures: Figures
    fields: Mapping[str, Any] | None
    budget: Budget | None
    saved: SavedBudget | None = None

    @property
    def since_saved(self) -> int:
        """What today's answer differs by from the saved one, in the pool [bytes]."""
        return 0 if self.budget is None else self.budget.kv_pool_bytes - self.figures.kv_pool_bytes


class Step(NamedTuple):
    """What a release of the engine changed.

    Args:
        version: as it is printed.
        rules: that hold from it on, or no longer where the way leads back.
        before: figures of the release before.
        after: figures of this one.
    """

    version: str
    rules: tuple[Rule, ...]
    before: Figures
    after: Figures

    @property
    def kv_pool_bytes(self) -> int:
        """Change of the pool of one card [bytes]."""
        return self.after.kv_pool_bytes - self.before.kv_pool_bytes


class Diff(NamedTuple):
    """Two budgets and the causes of their difference.

    Args:
        before: A.
        after: B.
        changes: fields that differ, with the value of B; None is the engine's default.
        causes: of the difference of the figures.
        steps: releases of the engine between them that changed a figure.
    """

    before: Side
    after: Side
    changes: Mapping[str, Any]
    causes: Causes
    steps: tuple[Step, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form (schema kvtax.diff/1)."""
        from kvtax.views.diff_page import diff_to_dict

        return diff_to_dict(self)

    def _repr_html_(self) -> str:
        from kvtax.views.diff_page import diff_page
        from kvtax.views.page_html import page_fragment_html

        return page_fragment_html(diff_page(self))


def make_side(
    name: str,
    fields: Mapping[str, Any],
    *,
    models: Sequence[ModelEntry] = (),
    gpus: Sequence[Gpu] = (),
) -> Side:
    """A side from the fields of a deployment.

    Args:
        name: what it is called.
        fields: as `budget` takes them.
        models: entries of one's own.
        gpus: cards of one's own.

    Raises:
        KvtaxError: it cannot be sized.
    """
    made = budget(models=models, gpus=gpus, **fields)
    return Side(name, figures_of(made), made.asked, made)


def saved_side(saved: SavedBudget, *, models: Sequence[ModelEntry] = (), gpus: Sequence[Gpu] = ()) -> Side:
    """A side from a file that `kvtax budget --json` wrote: its figures count, and are held against today's.

    Args:
        saved: what the file says.
        models: entries of one's own.
        gpus: cards of one's own.
    """
    figures = Figures(
        saved.per_gpu,
        saved.bytes_per_request,
        saved.capacity_tokens,
        saved.max_concurrency,
        saved.at_context,
        saved.verdict,
    )
    if saved.asked is None:
        return Side(saved.name, figures, None, None, saved)
    try:
        now = budget(models=models, gpus=gpus, **saved.asked)
    except KvtaxError:
        return Side(saved.name, figures, saved.asked, None, saved)
    return Side(saved.name, figures, now.asked, now, saved)


def diff(
    before: Side | Budget | Mapping[str, Any] | str,
    after: Side | Budget | Mapping[str, Any] | str,
    *,
    models: Sequence[ModelEntry] = (),
    gpus: Sequence[Gpu] = (),
) -> Diff:
    """Why one budget differs from another.

    Args:
        before: A: a budget, the fields of a deployment, or the path of a file that `kvtax budget --json` wrote.
        after: B, likewise.
        models: entries of one's own, looked at before the catalogue.
        gpus: cards of one's own.

    Returns:
        Parts that add up to the difference of the pool; shares of the fields and steps of the engine as they come out today.

    Raises:
        KvtaxError: one of them cannot be sized or read.

    >>> found = diff({"model": "llama-3-8b", "gpu": "l4"}, {"model": "llama-3-8b", "gpu": "l4", "kv_cache_dtype": "fp8"})
    >>> dict(found.changes), found.causes.request_bytes
    ({'kv_cache_dtype': 'fp8'}, (1073741824, 536870912))
    """
    one, other = (_as_side(each, name, models, gpus) for each, name in ((before, "A"), (after, "B")))
    changes = _changes(one.fields, other.fields)
    if one.budget is None or other.budget is None or one.fields is None:
        return Diff(one, other, changes, causes(one.figures, other.figures), ())
    start = one.fields

    def compute(some: Mapping[str, Any]) -> Figures:
        return figures_of(budget(models=models, gpus=gpus, **{**start, **some}))

    found = causes(figures_of(one.budget), figures_of(other.budget), changes, compute)
    shown = causes(one.figures, other.figures)
    steps = _steps(one.budget, other.budget, models, gpus)
    return Diff(one, other, changes, shown._replace(shares=found.shares, in_order=found.in_order), steps)


def _as_side(
    given: Side | Budget | Mapping[str, Any] | str, name: str, models: Sequence[ModelEntry], gpus: Sequence[Gpu]
) -> Side:
    if isinstance(given, Side):
        return given
    if isinstance(given, Budget):
        return Side(name, figures_of(given), given.asked, given)
    if isinstance(given, str):
        return saved_side(read_saved(given), models=models, gpus=gpus)
    return make_side(name, given, models=models, gpus=gpus)


def _changes(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields that differ, with their later values."""
    if before is None or after is None:
        return {}
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: after.get(name) for name in names}


def _steps(before: Budget, after: Budget, models: Sequence[ModelEntry], gpus: Sequence[Gpu]) -> tuple[Step, ...]:
    """The releases between two versions of one engine that change a figure of the first deployment."""
    plan, other = before.prepared.plan, after.prepared.plan
    if plan.NAME != other.NAME or plan.version == other.version:
        return ()
    low, high = sorted((plan.version, other.version))
    forward = plan.version == low
    between = sorted({rule.since for rule in plan.RULES if low < rule.since <= high} | {high})
    points = [low, *between]
    pairs = list(pairwise(points))
    found = []
    for older, newer in pairs if forward else reversed(pairs):
        first, second = (older, newer) if forward else (newer, older)
        try:
            figures = [
                figures_of(
                    budget(models=models, gpus=gpus, **{**before.asked, "engine_version": plan.version_words(version)})
                )
                for version in (first, second)
            ]
        except KvtaxError:
            continue
        if figures[0] != figures[1]:
            rules = tuple(rule for rule in plan.RULES if rule.since == newer)
            found.append(Step(plan.version_words(second), rules, figures[0], figures[1]))
    return tuple(found)
