"""A matrix of budgets over two axes: models x GPUs, engines x context lengths, any two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvtax.deployment import read_field
from kvtax.errors import InputError
from kvtax.hardware.gpu import Gpu
from kvtax.planning.grid import Axis, check_size, make_axis, read_axes
from kvtax.planning.variants import Variant, variant, whole_change
from kvtax.sources.models import ModelEntry

FIRST_AXES = ("model", "engine", "gpu", "max_model_len")
"""Fields that may be given several values at once; the earlier one makes the rows."""
FIGURES = ("max", "tokens", "longest", "pool", "verdict")
"""What a cell can show: requests at once, tokens of the pool, the longest context, the pool's bytes, the verdict."""


class Matrix(NamedTuple):
    """Budgets over two axes.

    Args:
        rows: the first axis.
        columns: the second one.
        cells: for each row one variant for each column.
        fields: of all deployments.
    """

    rows: Axis
    columns: Axis
    cells: tuple[tuple[Variant, ...], ...]
    fields: Mapping[str, Any]

    @property
    def variants(self) -> tuple[Variant, ...]:
        """All cells, row by row."""
        return tuple(cell for row in self.cells for cell in row)

    def transposed(self) -> Matrix:
        """Rows as columns."""
        return Matrix(self.columns, self.rows, tuple(zip(*self.cells, strict=True)), self.fields)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form (schema kvtax.concurrency/1)."""
        from kvtax.views.matrix_page import matrix_to_dict

        return matrix_to_dict(self)

    def _repr_html_(self) -> str:
        from kvtax.views.matrix_page import matrix_page
        from kvtax.views.page_html import page_fragment_html

        return page_fragment_html(matrix_page(self))


def matrix(
    vary: Mapping[str, Any] | Sequence[str] = (),
    *,
    models: Sequence[ModelEntry] = (),
    gpus: Sequence[Gpu] = (),
    **fields: Any,
) -> Matrix:
    """Budgets over two axes.

    Args:
        vary: further axes: fields and their values.
        models: entries of one's own, looked at before the catalogue.
        gpus: cards of one's own.
        fields: of all deployments, as `budget` takes them; a list of values for model, engine, gpu or max_model_len is an axis.

    Returns:
        A variant for each cell; one that cannot be sized holds its error. With one axis there is one column.

    Raises:
        InputError: three axes, an axis without values, or more cells than a table has room for.

    >>> matrix(model=["llama-3-8b", "qwen3-32b"], gpu=["l4", "h100-sxm"], max_model_len=8192).cells[1][1].budget.verdict
    'fits'
    """
    fixed, axes = _axes(fields, read_axes(vary))
    check_size(axes)
    cells = tuple(
        tuple(_cell(fixed, {axes[0].name: row, axes[1].name: column}, models, gpus) for column in axes[1].values)
        for row in axes[0].values
    )
    return Matrix(axes[0], axes[1], cells, fixed)


def _axes(fields: Mapping[str, Any], varied: Sequence[Axis]) -> tuple[dict[str, Any], tuple[Axis, Axis]]:
    """What all cells share, and the two axes."""
    fixed: dict[str, Any] = {}
    found: list[Axis] = []
    taken = {axis.name for axis in varied}
    for name, value in fields.items():
        if name in FIRST_AXES and isinstance(value, (list, tuple)):
            if name in taken and value:
                raise InputError(f"{name} is varied twice", code="field-given-twice", where=name)
            values = [read_field(name, each)[1] if name != "model" else each for each in value]
            found.append(make_axis(name, values))
        elif value is not None:
            fixed[name] = value
    found = sorted(found, key=lambda axis: FIRST_AXES.index(axis.name))
    several = [axis for axis in (*found, *varied) if len(axis.values) != 1]
    single = [axis for axis in (*found, *varied) if len(axis.values) == 1]
    if len(several) > 2:
        names = ", ".join(axis.name for axis in several)
        raise InputError(
            f"{names} have several values, and a matrix has two axes",
            code="too-many-axes",
            hint="fix one of them, or write every combination to a file: kvtax sweep --vary ...",
        )
    spare = sorted(single, key=lambda axis: FIRST_AXES.index(axis.name) if axis.name in FIRST_AXES else -1)
    while len(several) < 2:
        several.append(spare.pop(0) if spare else _single(fixed, several))
    fixed.update((axis.name, axis.values[0]) for axis in spare)
    order = {name: place for place, name in enumerate(FIRST_AXES)}
    several.sort(key=lambda axis: (order.get(axis.name, len(order)), axis.name not in order))
    return fixed, (several[0], several[1])


def _single(fixed: dict[str, Any], taken: Sequence[Axis]) -> Axis:
    """An axis of one value, for a matrix of one column or one row."""
    for name in FIRST_AXES:
        if name in fixed and all(axis.name != name for axis in taken):
            return Axis(name, (fixed.pop(name),))
    name = next(name for name in reversed(FIRST_AXES) if all(axis.name != name for axis in taken))
    return Axis(name, (None,))


def _cell(
    fields: Mapping[str, Any], change: Mapping[str, Any], models: Sequence[ModelEntry], gpus: Sequence[Gpu]
) -> Variant:
    return variant(fields, whole_change(fields, change), models=models, gpus=gpus)
