"""A heat map in SVG: a box with its number for each cell."""

from __future__ import annotations

from kvtax.views.charts import HeatMap, heat_shares
from kvtax.views.colours import tint
from kvtax.views.svg_parts import Svg, cut, text_width

_ROW, _LEAST_COLUMN = 26, 44


def draw_map(chart: HeatMap, svg: Svg) -> None:
    """All of it, below what is there; wide maps go on in further blocks of columns.

    Args:
        chart: what is drawn.
        svg: where.
    """
    left = min(max(map(text_width, (*chart.rows, chart.rows_title)), default=0.0) + 12, svg.width * 0.45)
    texts = [cell.text for row in chart.cells for cell in row]
    need = max([_LEAST_COLUMN, *(text_width(text) + 14 for text in (*texts, *chart.columns))])
    room = svg.width - left
    most = max(int(room / min(need, room)), 1)
    shares = heat_shares(chart.cells)
    svg.y += 8
    svg.words(f"{chart.rows_title} by {chart.columns_title}", "f", 12)
    for first in range(0, len(chart.columns), most):
        numbers = list(range(first, min(first + most, len(chart.columns))))
        width = room / min(most, len(chart.columns))
        svg.y += 20
        for place, number in enumerate(numbers):
            svg.put(cut(chart.columns[number], width - 4, 12), left + (place + 0.5) * width, svg.y, "f m")
        svg.y += 7
        for name, cells, tints in zip(chart.rows, chart.cells, shares, strict=True):
            svg.put(cut(name, left - 10), left - 10, svg.y + 17, "e")
            for place, number in enumerate(numbers):
                x = left + place * width
                _cell(svg, cells[number].text, tints[number], x, width)
            svg.y += _ROW
    svg.y += 4


def _cell(svg: Svg, text: str, share: float | None, x: float, width: float) -> None:
    middle, foot = x + width / 2, svg.y + 17
    if share is None:
        svg.frame(x + 1, svg.y + 1, width - 2, _ROW - 2)
        svg.put(cut(text, width), middle, foot, "f m")
        return
    ground, letters = tint(share)
    svg.box(x + 1, svg.y + 1, width - 2, _ROW - 2, ground)
    svg.put_on(cut(text, width), middle, foot, letters)
