"""A deployment with some of its fields changed, and the budget of that: what what-if, matrices, fit and diff are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kvtax.budgets import Budget, budget
from kvtax.errors import KvtaxError
from kvtax.hardware.gpu import Gpu
from kvtax.sources.models import ModelEntry

STALE = {
    "gpu": ("vram", "free_memory"),
    "engine": ("engine_version",),
    "model": ("weights_bytes",),
    "quantization": ("weights_bytes",),
    "dtype": ("weights_bytes",),
    "tensor_parallel_size": ("weights_bytes", "free_memory"),
    "pipeline_parallel_size": ("weights_bytes", "free_memory"),
    "expert_parallel": ("weights_bytes",),
}
"""What was read off a start, or said of one card or engine, holds for that one alone: a change of the field on the left sets it back."""


class Variant(NamedTuple):
    """Changed fields and the budget that they give, or why there is none.

    Args:
        change: fields with their new values; None is the engine's default.
        budget: as `kvtax budget` gives it for these fields; None where there is an error.
        error: why there is no budget.
    """

    change: Mapping[str, Any]
    budget: Budget | None = None
    error: KvtaxError | None = None

    @property
    def fits(self) -> bool:
        """Whether there is a budget that fits."""
        return self.budget is not None and self.budget.fits


def whole_change(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A change with the fields of the base that it makes stale set back to their defaults.

    >>> whole_change({"vram": 1 << 30}, {"gpu": "l4"})
    {'gpu': 'l4', 'vram': None}
    """
    stale = {
        field: None
        for name, value in change.items()
        for field in STALE.get(name, ())
        if base.get(name) != value and base.get(field) is not None and field not in change
    }
    return {**change, **stale}


def base_fields(base: Budget, given: Iterable[str] = ()) -> dict[str, Any]:
    """The fields of a budget that further ones start from; the engine only where it was chosen.

    Args:
        base: a budget.
        given: the fields that were given for it; the engine of others follows from the model.
    """
    return {name: value for name, value in base.asked.items() if name != "engine" or name in given}


def variant(
    fields: Mapping[str, Any],
    change: Mapping[str, Any],
    *,
    models: Sequence[ModelEntry] = (),
    gpus: Sequence[Gpu] = (),
) -> Variant:
    """The budget of a deployment with some fields changed.

    Args:
        fields: of the base.
        change: fields with their new values.
        models: entries of one's own.
        gpus: cards of one's own.
    """
    try:
        return Variant(change, budget(models=models, gpus=gpus, **{**fields, **change}))
    except KvtaxError as error:
        return Variant(change, None, error)
