"""A chart as lines of text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvtax.safe_text import safe
from kvtax.views.charts import AnyChart, Bars, Curves, HeatMap, heat_shares
from kvtax.views.page import Cell, Column, Grid, Row

if TYPE_CHECKING:
    from kvtax.views.page_text import Style


def chart_lines(chart: AnyChart, style: Style) -> Iterator[str]:
    """Title, drawing and remarks; nothing where the line is too narrow for the drawing.

    Args:
        chart: what is shown.
        style: how it may look.
    """
    if isinstance(chart, HeatMap):
        from kvtax.views.page_text import grid_lines

        yield from grid_lines(heat_grid(chart, "map"), style)
        return
    if isinstance(chart, Curves):
        from kvtax.views.plot import plot_lines

        drawn = plot_lines(chart, style)
    else:
        from kvtax.views.plot_bars import bars_lines

        drawn = bars_lines(chart, style)
    if drawn:
        from kvtax.views.page_text import fold

        if chart.title:
            yield from (style.paint(line, "strong") for line in fold(safe(chart.title), style.width))
        yield from drawn
        for remark in chart.remarks:
            yield from (style.paint(line, "dim") for line in fold(safe(remark, 2000), style.width))


def chart_text(charts: AnyChart | tuple[AnyChart, ...], style: Style) -> str:
    """Charts below each other, as text.

    Args:
        charts: one or several.
        style: how they may look.
    """
    from kvtax.views.page import Page
    from kvtax.views.page_text import page_text

    several = (charts,) if isinstance(charts, Curves | Bars | HeatMap) else charts
    return page_text(Page("", several), style)


def heat_grid(chart: HeatMap, key: str) -> Grid:
    """A heat map as a table whose cells are tinted.

    Args:
        chart: numbers and names.
        key: names the table for programs.
    """
    shares = heat_shares(chart.cells)
    columns = (
        Column(chart.rows_title, "row", fold=True),
        *(Column(name, name, right=True) for name in chart.columns),
    )
    rows = tuple(
        Row(
            (
                Cell(name),
                *(
                    Cell(cell.text, cell.value, "" if cell.value else "dim", heat=share)
                    for cell, share in zip(cells, tints, strict=True)
                ),
            )
        )
        for name, cells, tints in zip(chart.rows, chart.cells, shares, strict=True)
    )
    return Grid(key, chart.title, columns, rows, chart.remarks)
