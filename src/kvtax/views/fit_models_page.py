"""The models that a card carries as a page and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvtax.planning.fit_models import FitModels, ModelChoice
from kvtax.units import format_count, format_gib, format_parameters, format_requests, format_tokens
from kvtax.views.fit_page import SCHEMA, need_to_dict
from kvtax.views.page import Cell, Column, Grid, Page, Row

MOST_ROWS = 40
"""Models that a page shows where no number is asked for."""
_COLUMNS = (
    Column("model", "model", fold=True),
    Column("size", "parameters", right=True),
    Column("quantisation", "quantization"),
    Column("weights", "weights_bytes", right=True, from_width=90),
    Column("requests", "max_concurrency", right=True),
    Column("longest", "longest_context", right=True),
    Column("narrower", "narrower", fold=True),
)
_KEYS = {"parameters": "parameters", "context": "longest context", "requests": "requests at once"}


def fit_models_page(found: FitModels, *, most: int = MOST_ROWS) -> Page:
    """A row for each model, best first.

    Args:
        found: what is shown.
        most: rows.
    """
    rows = tuple(_row(choice) for choice in found.choices[:most])
    grid = Grid("choices", "", _COLUMNS, rows, tuple(_remarks(found, most)))
    return Page(_title(found), (grid,))


def fit_models_grid(found: FitModels) -> Grid:
    """Every model with exact values, for CSV."""
    return Grid("choices", "", _COLUMNS, tuple(map(_row, found.choices)))


def _title(found: FitModels) -> str:
    if not found.choices:
        return f"No model of the catalogue carries {found.need} here"
    budget = found.choices[0].budget
    count = budget.prepared.gpu_count
    cards = budget.gpu.name if count == 1 else f"{count} x {budget.gpu.name}"
    return f"{len(found.choices)} models carry {found.need} on {cards}, {budget.prepared.plan.label}"


def _row(choice: ModelChoice) -> Row:
    budget, architecture = choice.budget, choice.budget.prepared.architecture
    own = (
        architecture.quantization.name if choice.format.name is None and architecture.quantization is not None else None
    )
    name = choice.format.name or own or architecture.dtype
    others = " ".join(each.name or "" for each, _ in choice.others)
    return Row(
        (
            Cell(choice.entry.id, None),
            Cell(format_parameters(architecture.parameters), architecture.parameters),
            Cell(name if own is None else f"{own} (its own)", name),
            Cell(format_gib(budget.weights_bytes, 1), budget.weights_bytes),
            Cell(format_requests(budget.max_concurrency), budget.max_concurrency),
            Cell(format_tokens(choice.longest), choice.longest),
            Cell(others, others, "dim"),
        )
    )


def _remarks(found: FitModels, most: int) -> Iterator[str]:
    yield f"ranked by {_KEYS[found.by]}; quantisation: the widest that fits; weights in GiB of one card"
    yield "longest: the context at which what was asked still fits, up to the model's own limit"
    if len(found.choices) > most:
        yield f"{len(found.choices) - most} more: --most {len(found.choices)} shows all"
    left = (
        (found.too_large, "are too large"),
        (found.too_short, "have a shorter limit than asked for"),
        (found.not_run, "do not run in this engine or on this card"),
    )
    words = [f"{format_count(len(names))} {why}" for names, why in left if names]
    if words:
        yield "of the others " + ", ".join(words)


def fit_models_to_dict(found: FitModels) -> dict[str, Any]:
    """The same as `kvtax.fit/1`, a choice for each model.

    Args:
        found: what is shown.
    """
    from kvtax.budget_result import catalogue_stamp

    return {
        "schema": SCHEMA,
        **catalogue_stamp(),
        "need": need_to_dict(found.need),
        "by": found.by,
        "tried": len(found.choices) + len(found.too_large) + len(found.too_short) + len(found.not_run),
        "choices": [_choice(choice) for choice in found.choices],
        "too_large": list(found.too_large),
        "too_short": list(found.too_short),
        "not_run": list(found.not_run),
    }


def _choice(choice: ModelChoice) -> dict[str, Any]:
    document = choice.budget.to_dict()
    return {
        "model": choice.entry.id,
        "deployment": document["deployment"],
        "budget": document,
        "launch": None,
        "price_per_hour": None,
        "longest_context": choice.longest,
        "narrower": [
            {"quantization": each.name, "weights_bytes": made.weights_bytes, "max_concurrency": made.max_concurrency}
            for each, made in choice.others
        ],
    }
