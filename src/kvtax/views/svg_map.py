"""A heat map in SVG: a box with its number for each cell."""

from __future__ import annotations

from kvtax.views.charts import HeatMap, heat_shares
from kvtax.views.colours import tint
from kvtax.views.svg_parts import Svg, cut, text_width

_ROW, _LEAST_COLUMN, _LONGEST_HEAD = 26, 44, 100


def draw_map(chart: HeatMap, svg: Svg) -> None:
    """All of it, below what is there; wide maps go on in further blocks of columns.

    Args:
        chart: what is drawn.
        svg: where.
    """
    left = min(max(map(text_width, (*chart.rows, chart.rows_title)), default=0.0) + 12, svg.width * 0.45)
    texts = [cell.text for row in chart.cells for cell in row if cell.value is not None]
    room = svg.width - left
    need = min(max([_LEAST_COLUMN, *(text_width(text) + 8 for text in texts)]), room)
    wanted = max([need, *(text_width(name, 12) + 8 for name in chart.columns)])
    slanted = wanted * len(chart.columns) > room  # names that would take too much room rise to the right
    width = room / len(chart.columns) if not slanted else need
    longest = min(wanted, _LONGEST_HEAD) * 0.77 - 0.6 * width if slanted else 0.0
    most = max(int((room - max(longest, 0.0)) / width + 1e-6), 1)
    shares = heat_shares(chart.cells)
    svg.y += 8
    svg.words(f"{chart.rows_title} by {chart.columns_title}", "f", 12)
    for first in range(0, len(chart.columns), most):
        numbers = list(range(first, min(first + most, len(chart.columns))))
        _heads(svg, [chart.columns[number] for number in numbers], left, width, slanted)
        for name, cells, tints in zip(chart.rows, chart.cells, shares, strict=True):
            svg.put(cut(name, left - 10), left - 10, svg.y + 17, "e")
            for place, number in enumerate(numbers):
                x = left + place * width
                _cell(svg, cells[number].text, tints[number], x, width)
            svg.y += _ROW
    svg.y += 4


def _heads(svg: Svg, names: list[str], left: float, width: float, slanted: bool) -> None:
    if not slanted:
        svg.y += 20
        for place, name in enumerate(names):
            svg.put(name, left + (place + 0.5) * width, svg.y, "f m")
        svg.y += 7
        return
    svg.y += min(max(text_width(name, 12) for name in names), _LONGEST_HEAD) * 0.65 + 14
    for place, name in enumerate(names):
        x = left + (place + 0.4) * width
        room = min(_LONGEST_HEAD, (svg.width - x) / 0.77)
        svg.slanted(cut(name, room, 12), x, svg.y, "f")
    svg.y += 5


def _cell(svg: Svg, text: str, share: float | None, x: float, width: float) -> None:
    middle, foot = x + width / 2, svg.y + 17
    if share is None:
        svg.frame(x + 1, svg.y + 1, width - 2, _ROW - 2)
        svg.put(cut(text, width), middle, foot, "f m")
        return
    ground, letters = tint(share)
    svg.box(x + 1, svg.y + 1, width - 2, _ROW - 2, ground)
    svg.put_on(cut(text, width), middle, foot, letters)
