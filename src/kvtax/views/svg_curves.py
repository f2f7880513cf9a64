"""Curves in SVG: grid, lines with points, and the name and last value of each at its end."""

from __future__ import annotations

from kvtax.views.chart_layout import Span, end_label, last_shown, pieces, place_ticks, spread, x_span, y_span
from kvtax.views.charts import Curves
from kvtax.views.colours import MARKERS
from kvtax.views.svg_parts import Svg, text_width

_HEIGHT, _LEAST_HEIGHT_OF_LABEL = 260, 16
_LEAST_SHARE = 0.5
"""Of the width, for the lines; labels that would leave less stand in a legend below."""


class _Field:
    """The rectangle of the lines, and where values stand in it."""

    def __init__(self, chart: Curves, svg: Svg, left: float, right: float, height: float) -> None:
        self.left, self.right = left, svg.width - right
        self.top, self.bottom = svg.y + 14, svg.y + 14 + height
        self.across: Span = x_span(chart)
        self.down: Span = y_span(chart)

    def x(self, value: float) -> float:
        """Of a place on the axis below."""
        return self.left + self.across.share(value) * (self.right - self.left)

    def y(self, value: float) -> float:
        """Of a value."""
        return self.bottom - self.down.share(value) * (self.bottom - self.top)


def draw_curves(chart: Curves, svg: Svg) -> None:
    """All of it, below what is there.

    Args:
        chart: what is drawn.
        svg: where.
    """
    if not any(pieces(chart, curve) for curve in chart.curves):
        svg.words("there is nothing to draw", "f", 12)
        return
    labels = [end_label(chart, curve) for curve in chart.curves]
    ticks = y_span(chart).ticks(6)
    left = max([text_width(chart.y.tick_text(tick), 12) for tick in ticks] or [0.0]) + 8
    right = max(map(text_width, labels)) + 22
    beside = right <= svg.width * (1 - _LEAST_SHARE) - left
    svg.words(chart.y.title, "f", 12)
    height = max(_HEIGHT, (len(labels) if beside else 0) * _LEAST_HEIGHT_OF_LABEL)
    least = text_width(chart.x.text(chart.at[-1]), 12) / 2 + 2
    field = _Field(chart, svg, left, max(right, least) if beside else max(12, least), height)
    _grid(chart, svg, field, ticks)
    for number in reversed(range(len(chart.curves))):
        _curve(chart, number, svg, field)
    if beside:
        _labels_beside(chart, labels, svg, field)
    svg.y = field.bottom + 18
    if chart.x.title:
        svg.y += 17
        svg.put(chart.x.title, field.right, svg.y, "f e")
    if not beside:
        _legend(chart, labels, svg)
    svg.y += 4


def _grid(chart: Curves, svg: Svg, field: _Field, ticks: list[float]) -> None:
    for tick in ticks:
        y = field.y(tick)
        svg.line(field.left, y, field.right, y, "g")
        svg.put(chart.y.tick_text(tick), field.left - 6, y + 4, "f e")
    svg.line(field.left, field.bottom, field.right, field.bottom, "a")
    widest = max(text_width(chart.x.text(place), 12) for place in chart.at)
    for place in place_ticks(chart, (widest + 8) / (field.right - field.left)):
        svg.line(field.x(place), field.bottom, field.x(place), field.bottom + 4, "a")
        svg.put(chart.x.text(place), field.x(place), field.bottom + 18, "f m")


def _look(number: int) -> tuple[str, str]:
    """Colour and point of a curve: with many curves, a colour comes again with another point."""
    return f"var(--k{number % 6})", MARKERS[(number + number // 6) % len(MARKERS)]


def _curve(chart: Curves, number: int, svg: Svg, field: _Field) -> None:
    curve = chart.curves[number]
    colour, marker = _look(number)
    for piece in pieces(chart, curve):
        points = [(field.x(chart.at[place]), field.y(curve.values[place] or 0)) for place in piece]
        svg.path(points, colour, "c d" if curve.dotted else "c")
        for place, (x, y) in zip(piece, points, strict=True):
            said = f"{chart.y.text(curve.values[place] or 0)} at {chart.x.text(chart.at[place])}"
            svg.mark(marker, x, y, colour, f"{curve.name}: {said}" if curve.name else said)


def _labels_beside(chart: Curves, labels: list[str], svg: Svg, field: _Field) -> None:
    shown = [(number, last_shown(chart, curve)) for number, curve in enumerate(chart.curves)]
    ends = [(number, field.y(chart.curves[number].values[last] or 0)) for number, last in shown if last is not None]
    places = spread([y for _, y in ends], _LEAST_HEIGHT_OF_LABEL, field.top, field.bottom)
    for (number, _), y in zip(ends, places, strict=True):
        if len(ends) > 1:
            svg.mark(_look(number)[1], field.right + 12, y, _look(number)[0])
        svg.put(labels[number], field.right + (20 if len(ends) > 1 else 10), y + 4)


def _legend(chart: Curves, labels: list[str], svg: Svg) -> None:
    """One line for each curve, the greatest last value first."""
    order = sorted(range(len(labels)), key=lambda number: -(_last(chart, number)))
    for number in order:
        svg.y += _LEAST_HEIGHT_OF_LABEL + 3
        svg.mark(_look(number)[1], 8, svg.y - 4, _look(number)[0])
        most = int((svg.width - 20) / text_width("n"))
        svg.put(end_label(chart, chart.curves[number], most), 20, svg.y)


def _last(chart: Curves, number: int) -> float:
    last = last_shown(chart, chart.curves[number])
    return 0.0 if last is None else chart.curves[number].values[last] or 0.0
