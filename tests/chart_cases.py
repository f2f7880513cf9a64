"""Charts that tests of several drawings share."""

from typing import NamedTuple

import kvtax
from kvtax.budgets import Budget
from kvtax.units import format_requests
from kvtax.views.budget_charts import concurrency_chart, kv_growth_chart, memory_chart
from kvtax.views.charts import Axis, Bar, Bars, Curve, Curves, HeatMap, MapCell, Segment, SegmentKind

CARDS = ("l4", "rtx-4090", "a100-80", "h100-sxm", "h200", "b200")


class Cases(NamedTuple):
    small: list[tuple[str, Budget]]
    large: list[tuple[str, Budget]]
    charts: tuple


def make_cases() -> Cases:
    small = [(card, kvtax.budget(model="llama-3-8b", gpu=card)) for card in CARDS]
    large = [(card, kvtax.budget(model="qwen3-32b", gpu=card)) for card in CARDS]
    windows = kvtax.budget(model="gemma-3-27b", gpu="h200")
    cells = tuple(tuple(_cell(budget) for _, budget in row) for row in (small, large))
    heat = HeatMap("requests of the full context", "model", "GPU", ("llama-3-8b", "qwen3-32b"), CARDS, cells)
    return Cases(small, large, (concurrency_chart(small), memory_chart(large), kv_growth_chart(windows), heat))


def _cell(budget: Budget) -> MapCell:
    found = budget.max_concurrency
    return MapCell(format_requests(found), found) if found else MapCell("no", None)


def hostile_charts(text: str) -> tuple:
    """One chart of each kind, all of whose texts are the same."""
    x, y = Axis(text, "tokens", logarithmic=True), Axis(text, "requests", logarithmic=True)
    curves = (Curve(text, (3.0, 2.0, 1.0)), Curve(text, (None, 5.0, None)), Curve(text, (1.0, 1.0, 1.0), dotted=True))
    bar = Bar(text, (Segment("weights", 5.0), Segment("x", 2.0)), 6.0, 5.5, text, "bad")
    kinds = (SegmentKind("weights", text), SegmentKind("x", text))
    return (
        Curves(text, x, y, (1024, 2048, 4096), curves, (text,)),
        Bars(text, Axis(text, "bytes"), kinds, (bar, bar), text, text, (text,)),
        HeatMap(text, text, text, (text, text), (text,), ((MapCell(text, 1.0),), (MapCell(text, None),)), (text,)),
    )
