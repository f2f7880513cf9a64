"""What-if as a page and JSON."""

from __future__ import annotations

from typing import Any

from kvtax.budgets import Budget
from kvtax.planning.changes import NOTHING
from kvtax.planning.grid import show_change
from kvtax.planning.lengths import room_requests
from kvtax.planning.whatif import Outcome, WhatIf
from kvtax.terms import Notice
from kvtax.units import GIB, format_count, format_gib, format_requests
from kvtax.views.budget_charts import budget_charts
from kvtax.views.charts import AnyChart
from kvtax.views.json_form import fields_to_dict
from kvtax.views.page import Cell, Column, Grid, Page, Row, number_cell
from kvtax.views.variant_words import (
    cause_lines,
    deployment_title,
    error_dict,
    reason_lines,
    verdict_cell,
)

SCHEMA = "kvtax.whatif/1"
_COLUMNS = (
    Column("change", "change", fold=True),
    Column("weights", "weights_bytes", right=True, from_width=108),
    Column("KV pool", "kv_pool_bytes", right=True, from_width=92),
    Column("pool +/-", "kv_pool_difference_bytes", right=True),
    Column("tokens", "capacity_tokens", right=True),
    Column("requests", "requests", right=True),
    Column("x", "ratio", right=True),
    Column("x a card", "ratio_per_card", right=True, from_width=92),
    Column("verdict", "verdict"),
)
_NEVER = 1 << 30
_COST = Column("what it costs", "cost", fold=True)


def ratio(outcome: Budget, base: Budget, *, per_card: bool = False) -> float | None:
    """Requests at once of all copies against those of the base; of each card where asked; None where the base carries none."""

    def requests(budget: Budget) -> float:
        copies = budget.deployment.data_parallel_size
        return max(room_requests(budget), 0.0) * copies / (budget.prepared.gpu_count if per_card else 1)

    return requests(outcome) / requests(base) if requests(base) > 0 else None


def whatif_page(found: WhatIf, *, explained: bool = False) -> Page:
    """A row for the base and one for each change.

    Args:
        found: what is shown.
        explained: add why each differs.
    """
    said: set[Notice] = set(found.base.notices)
    rows = [_base_row(found)]
    rows += [_row(found, outcome, explained, said) for outcome in found.outcomes]
    title = f"What if: {deployment_title(found.base)}"
    return Page(title, (_grid(found, rows),), found.base.notices)


def whatif_grid(found: WhatIf) -> Grid:
    """The table for CSV: every column, exact values."""
    rows = [_base_row(found), *(_row(found, outcome, False, set()) for outcome in found.outcomes)]
    return _grid(found, rows)


def _grid(found: WhatIf, rows: list[Row]) -> Grid:
    columns: list[Column] = [*_COLUMNS, _COST] if found.ranked else [*_COLUMNS]
    if not _cards_differ(found):
        columns = [
            column._replace(from_width=_NEVER) if column.key == "ratio_per_card" else column for column in columns
        ]
    if found.ranked:
        columns = [_narrow(column) for column in columns]
    return Grid("changes", "", tuple(columns), tuple(rows), tuple(_remarks(found)))


def _narrow(column: Column) -> Column:
    """A column of the page of levers: the cost is worth more than the details of the memory."""
    widths = {
        "kv_pool_difference_bytes": 112,
        "capacity_tokens": 112,
        "kv_pool_bytes": 126,
        "weights_bytes": 138,
        "ratio_per_card": 100,
    }
    return column._replace(from_width=max(column.from_width, widths.get(column.key, 0)))


def _cards_differ(found: WhatIf) -> bool:
    cards = {one.budget.prepared.gpu_count for one in found.outcomes if one.budget is not None}
    return bool(cards - {found.base.prepared.gpu_count})


def _remarks(found: WhatIf) -> list[str]:
    remarks = ["sizes in GiB of one card; x: requests at once against the base"]
    budgets = [found.base, *(one.budget for one in found.outcomes if one.budget is not None)]
    if any(budget.deployment.data_parallel_size > 1 for budget in budgets):
        remarks[0] += ", of all copies; tokens and requests are those of one copy"
    if any(budget.max_model_len != found.base.max_model_len for budget in budgets):
        remarks.append("requests are of the length that each row has")
    if any(budget.prepared.plan.ALLOCATES for budget in budgets):
        remarks.append("requests of an engine that allocates its cache: as many slots as there is room for")
    if found.ranked and not found.outcomes:
        remarks.append("nothing that was tried brings more requests")
    if found.useless:
        remarks.append("tried, and brings nothing here: " + ", ".join(found.useless))
    return remarks


def _base_row(found: WhatIf) -> Row:
    return Row((Cell("as it is", "", "strong"), *_cells(found.base, found.base), *_cost(found, "")), key="base")


def _row(found: WhatIf, outcome: Outcome, explained: bool, said: set[Notice]) -> Row:
    name = outcome.lever.flags if outcome.lever is not None else show_change(outcome.set)
    cost = _cost_words(outcome)
    lines = reason_lines(outcome.budget, outcome.error, said)
    if outcome.budget is not None:
        said.update(outcome.budget.notices)
    if explained and outcome.causes is not None:
        lines += cause_lines(outcome.causes)
    cells = (Cell(name, show_change(outcome.set)), *_cells(outcome.budget, found.base), *_cost(found, cost))
    return Row(cells, tuple(lines), key=show_change(outcome.set))


def _cost_words(outcome: Outcome) -> str:
    lever = outcome.lever
    if lever is None:
        return ""
    return lever.cost if lever.paid_with == NOTHING else f"{lever.paid_with}: {lever.cost}"


def _cost(found: WhatIf, cost: str) -> tuple[Cell, ...]:
    return (Cell(cost, cost, "dim"),) if found.ranked else ()


def _cells(budget: Budget | None, base: Budget) -> tuple[Cell, ...]:
    if budget is None:
        return (*(Cell("-", None, "dim") for _ in range(7)), verdict_cell(None))
    change, same = budget.kv_pool_bytes - base.kv_pool_bytes, budget is base
    runs = budget.verdict not in ("refused", "out_of_memory")
    requests = room_requests(budget)
    more = requests - room_requests(base)

    def difference(text: str, value: float | None, better: float) -> Cell:
        """A cell in the colour of better or worse, dim for what does not run."""
        return number_cell(text, value, _tone(better) if runs else "dim")

    times = [ratio(budget, base, per_card=each) for each in (False, True)]
    return (
        Cell(format_gib(budget.weights_bytes), budget.weights_bytes),
        Cell(format_gib(budget.kv_pool_bytes), budget.kv_pool_bytes, "" if runs else "dim"),
        difference("" if same else f"{change / GIB:+,.2f}" if change else "0", change, change),
        Cell(format_count(budget.capacity_tokens), budget.capacity_tokens, "" if runs else "dim"),
        difference(format_requests(requests), requests, more),
        *(Cell("", 1.0) if same else difference(f"{each or 0:.2f}", each, (each or 0) - 1) for each in times),
        verdict_cell(budget),
    )


def _tone(change: float) -> str:
    return "good" if change > 0 else "bad" if change < 0 else ""


MOST_PLOTTED = 12
"""Choices that a chart has room for."""


def whatif_charts(found: WhatIf) -> tuple[AnyChart, ...]:
    """Where the memory goes and how concurrency falls with context, for the base and each change."""
    named = [("as it is", found.base)]
    for one in found.outcomes:
        if one.budget is not None and len(named) < MOST_PLOTTED:
            named.append((one.lever.flags if one.lever is not None else show_change(one.set), one.budget))
    return budget_charts(named)


# ---- JSON ----


def whatif_to_dict(found: WhatIf) -> dict[str, Any]:
    """The same as `kvtax.whatif/1`."""
    from kvtax.budget_result import catalogue_stamp

    return {
        "schema": SCHEMA,
        **catalogue_stamp(),
        "base": found.base.to_dict(),
        "changes": [_change(found, outcome) for outcome in found.outcomes],
        "useless": list(found.useless),
    }


def _change(found: WhatIf, outcome: Outcome) -> dict[str, Any]:
    document: dict[str, Any] = {"set": fields_to_dict(outcome.set)}
    if outcome.budget is None:
        return {**document, "error": error_dict(outcome.error)}
    document["budget"] = outcome.budget.to_dict()
    document["ratio"] = ratio(outcome.budget, found.base)
    document["ratio_per_card"] = ratio(outcome.budget, found.base, per_card=True)
    document["causes"] = None if outcome.causes is None else outcome.causes.to_dict()
    lever = outcome.lever
    document["cost"] = (
        None if lever is None else {"paid_with": lever.paid_with, "words": lever.cost, "flags": lever.flags}
    )
    return document
