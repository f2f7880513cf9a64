"""What if: a deployment, changes to it, and what each one brings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from kvtax.budgets import Budget, budget
from kvtax.deployment import read_field
from kvtax.errors import KvtaxError
from kvtax.hardware.gpu import Gpu
from kvtax.planning.causes import Causes, causes, figures_of
from kvtax.planning.changes import Change
from kvtax.planning.grid import Axis, check_size, expand, read_axes
from kvtax.planning.levers import every_lever
from kvtax.planning.variants import Variant, base_fields, variant, whole_change
from kvtax.sources.models import ModelEntry


class Outcome(NamedTuple):
    """One change and what comes of it.

    Args:
        set: changed fields with their new values, also those that only follow; None is the engine's default.
        budget: with the change made; None where there is an error.
        error: why there is no budget.
        causes: why the pool differs from that of the base.
        lever: what is given up, for a change that was not asked for.
    """

    set: Mapping[str, Any]
    budget: Budget | None
    error: KvtaxError | None = None
    causes: Causes | None = None
    lever: Change | None = None

    @property
    def fits(self) -> bool:
        """Whether there is a budget that fits."""
        return self.budget is not None and self.budget.fits


class WhatIf(NamedTuple):
    """A base and its changes.

    Args:
        base: the deployment as it is.
        outcomes: in the order asked for; levers best first.
        useless: levers that were tried and bring nothing, as typed.
        ranked: the changes are every lever that helps: none was asked for.
    """

    base: Budget
    outcomes: tuple[Outcome, ...]
    useless: tuple[str, ...] = ()
    ranked: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The JSON form (schema kvtax.whatif/1)."""
        from kvtax.views.whatif_page import whatif_to_dict

        return whatif_to_dict(self)

    def _repr_html_(self) -> str:
        from kvtax.views.page_html import page_fragment_html
        from kvtax.views.whatif_page import whatif_page

        return page_fragment_html(whatif_page(self))


def whatif(
    changes: Sequence[Mapping[str, Any]] = (),
    vary: Mapping[str, Iterable[Any]] | Sequence[str] | None = None,
    *,
    explain: bool = False,
    models: Sequence[ModelEntry] = (),
    gpus: Sequence[Gpu] = (),
    **fields: Any,
) -> WhatIf:
    """What changes would do to a deployment.

    Args:
        changes: each made alone, and all together; of two for one field, each goes with the others.
        vary: a grid: every combination of the values of some fields, made on top of each change.
        explain: give each field its share of the difference, too.
        models: entries of one's own, looked at before the catalogue.
        gpus: cards of one's own.
        fields: of the base, as `budget` takes them.

    Returns:
        The base and an outcome for each change; without a change every lever that helps, the best first.

    Raises:
        KvtaxError: the base cannot be sized, or a change cannot be understood; a change that cannot be made is an outcome.

    >>> found = whatif([{"kv_cache_dtype": "fp8"}], model="llama-3-8b", gpu="h100-sxm", max_model_len=8192)
    >>> found.base.kv_bytes_per_token, found.outcomes[0].budget.kv_bytes_per_token
    (131072, 65536)
    """
    base = budget(models=models, gpus=gpus, **fields)
    given = {name for name, value in fields.items() if value is not None}
    start = base_fields(base, given)
    wanted = [dict(read_field(name, value) if value is not None else (name, None) for name, value in one.items())
              for one in changes]  # fmt: skip
    axes = read_axes(vary or ())
    if not wanted and not axes:
        return _levers(base, start, explain, models, gpus)
    outcomes = []
    for change in all_changes(wanted, axes):
        full = whole_change(start, change)
        outcomes.append(_outcome(base, start, variant(start, full, models=models, gpus=gpus), explain, models, gpus))
    return WhatIf(base, tuple(outcomes))


def all_changes(wanted: Sequence[Mapping[str, Any]], axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """Each change alone and all together, each at every point of the grid.

    >>> all_changes([{"dtype": "float16"}, {"gpu": "l4"}, {"gpu": "t4"}], [])[3:]
    [{'dtype': 'float16', 'gpu': 'l4'}, {'dtype': 'float16', 'gpu': 't4'}]

    Raises:
        InputError: there would be too many.
    """
    alone = [dict(change) for change in wanted] or [{}]
    rivals: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for change in wanted:
        rivals.setdefault(tuple(sorted(change)), []).append(change)
    if len(rivals) > 1:
        check_size([*(Axis(" and ".join(names), tuple(found)) for names, found in rivals.items()), *axes])
        alone += [
            {name: value for change in chosen for name, value in change.items()} for chosen in product(*rivals.values())
        ]
    check_size([Axis("changes", tuple(alone)), *axes])
    return [{**change, **point} for change in alone for point in expand(axes)]


def _outcome(
    base: Budget,
    start: Mapping[str, Any],
    made: Variant,
    explain: bool,
    models: Sequence[ModelEntry],
    gpus: Sequence[Gpu],
    lever: Change | None = None,
) -> Outcome:
    if made.budget is None:
        return Outcome(made.change, None, made.error, None, lever)
    before, after = figures_of(base), figures_of(made.budget)
    if not explain:
        return Outcome(made.change, made.budget, None, causes(before, after), lever)

    def compute(some: Mapping[str, Any]) -> Any:
        return figures_of(budget(models=models, gpus=gpus, **{**start, **some}))

    found = causes(before, after, made.change, compute)
    return Outcome(made.change, made.budget, None, found, lever)


def _levers(
    base: Budget, start: Mapping[str, Any], explain: bool, models: Sequence[ModelEntry], gpus: Sequence[Gpu]
) -> WhatIf:
    found = every_lever(base, models=models, gpus=gpus)
    outcomes = [
        _outcome(base, start, Variant(lever.change.fields, lever.budget), explain, models, gpus, lever.change)
        for lever in found.found
    ]
    return WhatIf(base, tuple(outcomes), found.useless, ranked=True)
