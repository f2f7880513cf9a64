"""A matrix of budgets as a page and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvtax.budgets import Budget
from kvtax.planning.grid import Axis, show_value
from kvtax.planning.lengths import longest_context
from kvtax.planning.matrix import Matrix
from kvtax.planning.variants import Variant
from kvtax.units import format_count, format_gib, format_requests, format_tokens
from kvtax.views.charts import HeatMap, MapCell, heat_shares
from kvtax.views.json_form import fields_to_dict
from kvtax.views.page import Cell, Column, Grid, Page, Row
from kvtax.views.variant_words import VERDICT_TONES, error_dict, reason_lines

SCHEMA = "kvtax.concurrency/1"
TITLES = {
    "max": "Requests at once",
    "tokens": "Tokens of the KV pool",
    "longest": "Longest context",
    "pool": "KV pool, GiB of one card",
    "verdict": "Verdict",
}
_SHORT = {"out_of_memory": "no memory", "refused": "refused", "kv_too_small": "kv too small"}
_GAP = 2
_SHADE = 2
"""What a cell takes beside its text where it is shaded and not coloured [characters]."""
_MOST_REASONS = 12


def matrix_page(found: Matrix, show: str = "max", *, interval: bool = False, width: int = 1 << 30) -> Page:
    """One table, or several below each other where the columns have no room side by side.

    Args:
        found: what is shown.
        show: one of TITLES.
        interval: add the range that holds 90 % of real starts.
        width: characters of a line.
    """
    found = _turned(found, show, interval, width)
    heats = heat_shares(matrix_chart(found, show).cells)
    grids = []
    for columns in _portions(found, show, interval, width):
        rows = tuple(
            Row(
                (
                    _heading(found.rows, value),
                    *(_cell(cells[place], show, interval)._replace(heat=heat[place]) for place in columns),
                )
            )
            for value, cells, heat in zip(found.rows.values, found.cells, heats, strict=True)
        )
        heads = (Column(found.rows.name, found.rows.name), *(_column(found.columns, place) for place in columns))
        grids.append(Grid("cells", "", heads, rows))
    grids[-1] = grids[-1]._replace(remarks=tuple(_remarks(found, show, interval)))
    return Page(_title(found, show), tuple(grids))


def matrix_grid(found: Matrix, show: str = "max", *, interval: bool = False) -> Grid:
    """The whole table for CSV, with exact values; intervals in columns of their own."""
    heads = [Column(found.rows.name, found.rows.name)]
    for place, value in enumerate(found.columns.values):
        heads.append(_column(found.columns, place))
        if interval:
            word = show_value(found.columns.name, value)
            heads += [Column("low", f"{word} low"), Column("high", f"{word} high")]
    rows = []
    for value, cells in zip(found.rows.values, found.cells, strict=True):
        row = [_heading(found.rows, value)]
        for cell in cells:
            row.append(_cell(cell, show, False))
            if interval:
                low, high = (None, None) if cell.budget is None else _bounds(cell.budget, show)
                row += [Cell("", low), Cell("", high)]
        rows.append(Row(tuple(row)))
    return Grid("cells", "", tuple(heads), tuple(rows))


def matrix_chart(found: Matrix, show: str = "max") -> HeatMap:
    """The matrix as a heat map.

    Args:
        found: what is shown.
        show: one of TITLES.
    """
    cells = tuple(tuple(_map_cell(cell, show) for cell in cells) for cells in found.cells)
    rows, columns = (tuple(_name(axis, value) for value in axis.values) for axis in (found.rows, found.columns))
    return HeatMap(_title(found, show), found.rows.name, found.columns.name, rows, columns, cells)


def _map_cell(cell: Variant, show: str) -> MapCell:
    shown = _cell(cell, show, False)
    number = isinstance(shown.value, (int, float)) and (
        show == "longest" or (cell.budget is not None and runs(cell.budget))
    )
    return MapCell(shown.text if number else "-", float(shown.value or 0) if number else None)


# ---- how it is laid out ----


def _turned(found: Matrix, show: str, interval: bool, width: int) -> Matrix:
    """The matrix, or its transpose where that alone has room, or where there is but one row."""
    lies, stands = (len(_portions(each, show, interval, width)) for each in (found, found.transposed()))
    if (lies > 1 and stands < lies) or (len(found.rows.values) == 1 and len(found.columns.values) > 1):
        return found.transposed()
    return found


def _portions(found: Matrix, show: str, interval: bool, width: int) -> list[list[int]]:
    """Columns that have room beside each other."""
    first = max(len(_name(found.rows, value)) for value in (*found.rows.values, None))
    portions: list[list[int]] = [[]]
    room = width - first
    for place, value in enumerate(found.columns.values):
        cells = (len(_cell(cells[place], show, interval).text) for cells in found.cells)
        wide = _GAP + _SHADE + max(len(_name(found.columns, value)), *cells, 0)
        if portions[-1] and wide > room:
            portions.append([])
            room = width - first
        portions[-1].append(place)
        room -= wide
    return portions


def _name(axis: Axis, value: Any) -> str:
    return axis.name if value is None else show_value(axis.name, value)


def _column(axis: Axis, place: int) -> Column:
    word = show_value(axis.name, axis.values[place])
    return Column(word, word, right=True)


def _heading(axis: Axis, value: Any) -> Cell:
    word = show_value(axis.name, value)
    return Cell(word, value if isinstance(value, (int, float, bool)) else word)


# ---- cells ----


def figure(budget: Budget, show: str) -> int | float | str:
    """The figure that a cell shows, exactly."""
    if show == "tokens":
        return budget.capacity_tokens
    if show == "longest":
        return longest_context(budget)
    if show == "pool":
        return budget.kv_pool_bytes
    return budget.verdict if show == "verdict" else budget.max_concurrency


def runs(budget: Budget) -> bool:
    """Whether the engine starts at all: then figures mean something."""
    return budget.verdict not in ("refused", "out_of_memory")


def _cell(cell: Variant, show: str, interval: bool) -> Cell:
    budget = cell.budget
    if budget is None:
        return Cell("error", None, "bad")
    tone = VERDICT_TONES.get(budget.verdict, "bad")
    if show == "verdict":
        return Cell(_SHORT.get(budget.verdict, budget.verdict.replace("_", " ")), budget.verdict, tone)
    if not runs(budget) and show != "longest":
        return Cell(_SHORT[budget.verdict], 0, tone)
    value = figure(budget, show)
    text = _text(value, show)
    if interval and show in ("max", "pool"):
        low, high = _bounds(budget, show)
        text += f" ({_text(low, show)}-{_text(high, show)})"
    if show == "longest":
        tone = "good" if value else "bad"
    return Cell(text, value, tone)


def _text(value: Any, show: str) -> str:
    if show == "max":
        return format_requests(value)
    if show == "pool":
        return format_gib(value, 1)
    return format_tokens(value) if show == "longest" else format_count(value)


def _bounds(budget: Budget, show: str) -> tuple[float, float]:
    low, high = budget.interval["kv_pool_bytes" if show == "pool" else "max_concurrency"]
    return low, high


# ---- words ----


def _title(found: Matrix, show: str) -> str:
    words = [TITLES[show]]
    budget = next((cell.budget for cell in found.variants if cell.budget is not None), None)
    if budget is None:
        return words[0]
    axes = (found.rows.name, found.columns.name)
    if "max_model_len" not in axes and show != "longest" and budget.max_model_len_given:
        words[0] += f" of {budget.max_model_len:,} tokens"
    elif "max_model_len" not in axes and show == "max":
        words[0] += " of the model's own longest context"
    if budget.concurrency is not None and "concurrency" not in axes:
        words.append(f"{budget.concurrency:,} requests")
    words += [
        str(found.fields[name])
        for name in ("model", "gpu")
        if isinstance(found.fields.get(name), str) and name not in axes
    ]
    if "engine" not in axes:
        words.append(budget.prepared.plan.label)
    return ", ".join(words)


def _remarks(found: Matrix, show: str, interval: bool) -> Iterator[str]:
    if interval and show in ("max", "pool"):
        yield "in brackets: the range that holds 90 % of real starts"
    if show == "max" and any(cell.budget and cell.budget.deployment.data_parallel_size > 1 for cell in found.variants):
        yield "requests of one copy"
    reasons: dict[str, list[str]] = {}
    for row, cells in zip(found.rows.values, found.cells, strict=True):
        for column, cell in zip(found.columns.values, cells, strict=True):
            for line in _reasons(cell):
                names = (show_value(axis.name, value) for axis, value in ((found.rows, row), (found.columns, column)))
                reasons.setdefault(line, []).append(" x ".join(names))
    for line, places in list(reasons.items())[:_MOST_REASONS]:
        where = places[0] if len(places) == 1 else f"{len(places)} cells, as {places[0]}"
        yield f"{where}: {line}"
    if len(reasons) > _MOST_REASONS:
        yield f"and {len(reasons) - _MOST_REASONS} other reasons: --json has them"


def _reasons(cell: Variant) -> Sequence[str]:
    """Why a cell has no figure; that memory is too small is seen in it."""
    if cell.error is not None:
        return reason_lines(None, cell.error)
    if cell.budget is None or cell.budget.verdict != "refused" or cell.budget.answer.reason is None:
        return ()
    return (cell.budget.answer.reason.message,)


# ---- JSON ----


def matrix_to_dict(found: Matrix, show: str = "max") -> dict[str, Any]:
    """The same as `kvtax.concurrency/1`: the cells row by row."""
    from kvtax.budget_result import catalogue_stamp

    return {
        "schema": SCHEMA,
        **catalogue_stamp(),
        "rows": _axis(found.rows),
        "columns": _axis(found.columns),
        "cells": [_cell_to_dict(found, cell, show) for cell in found.variants],
    }


def _axis(axis: Axis) -> dict[str, Any]:
    return {"field": axis.name, "values": list(fields_to_dict({str(n): v for n, v in enumerate(axis.values)}).values())}


def _cell_to_dict(found: Matrix, cell: Variant, show: str) -> dict[str, Any]:
    document: dict[str, Any] = {"set": fields_to_dict(cell.change)}
    if cell.budget is None:
        asked = fields_to_dict({**found.fields, **cell.change})
        names = ("model", "gpu", "engine", "max_model_len")
        return {**document, **{name: asked.get(name) for name in names}, "max": None, "interval": None,
                "error": error_dict(cell.error)}  # fmt: skip
    budget = cell.budget
    document |= {
        "model": budget.model.id,
        "gpu": budget.gpu.id,
        "engine": budget.deployment.engine,
        "engine_version": budget.prepared.plan.version_text,
        "max_model_len": budget.max_model_len,
        "concurrency": budget.concurrency,
        "max": budget.max_concurrency,
        "interval": budget.interval,
        "verdict": budget.verdict,
        "capacity_tokens": budget.capacity_tokens,
        "kv_pool_bytes": budget.kv_pool_bytes,
        "notices": [notice.to_dict() for notice in budget.notices],
    }
    if show == "longest":
        document["longest_context"] = longest_context(budget)
    return document
