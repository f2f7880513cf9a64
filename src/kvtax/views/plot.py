"""Curves for a terminal: eight dots to a character in braille, or one character for a point in ASCII."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import floor
from typing import TYPE_CHECKING

from kvtax.safe_text import safe
from kvtax.views.chart_layout import Span, end_label, last_shown, pieces, place_ticks, spread, x_span, y_span
from kvtax.views.charts import Curves

if TYPE_CHECKING:
    from kvtax.views.page_text import Style

LEAST_HEIGHT = 8
MARKS, ASCII_MARKS, LETTERS = "\u25cf\u25a0\u25b2\u25c6\u271a\u25cb", "*o+x#@", "abcdefghijklmnopqrstuvwxyz"
"""A mark for each curve; letters where there are more curves than marks."""
_MOST_WIDTH, _LEAST_WIDTH, _MOST_LABEL = 64, 12, 34
_MOST_TICKS = 4
_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def plot_lines(chart: Curves, style: Style) -> list[str]:
    """The curves between their axes: the values at the left, the places below, name and last value of each curve at its end.

    Args:
        chart: at least two places.
        style: how it may look.

    Returns:
        The lines; none where the line is too narrow or no curve has a point.
    """
    if len(chart.at) < 2 or not any(pieces(chart, curve) for curve in chart.curves):
        return []
    labels = [_label(chart, number, style) for number in range(len(chart.curves))]
    height = max(LEAST_HEIGHT, len(labels) + 1)
    span = y_span(chart)
    sides = _side_labels(chart, span, height)
    margin = max(map(len, sides.values()), default=0)
    columns = min(style.width - margin - 3 - max(map(len, labels)), _MOST_WIDTH)
    if columns < _LEAST_WIDTH:
        return []
    canvas = _Canvas(columns, height, braille=style.unicode)
    for number in reversed(range(len(chart.curves))):
        _draw(chart, number, span, canvas, style)
    ends = _ends(chart, span, height)
    side, corner, foot = ("\u2502", "\u2514", "\u2500") if style.unicode else ("|", "+", "-")
    lines = [safe(chart.y.title)] if chart.y.title else []
    for row in range(height):
        line = f"{sides.get(row, ''):>{margin}} {side}{canvas.line(row, style)}"
        end = "" if row not in ends else " " + style.paint(labels[ends[row]], _tone(chart, ends[row]))
        lines.append(line.rstrip() if not end else line + end)
    lines.append(f"{'':{margin}} {corner}{foot * columns}")
    lines.append(f"{'':{margin}}  {_axis(chart, columns)}".rstrip())
    if chart.x.title:
        lines.append(f"{'':{margin}}  {safe(chart.x.title):>{columns}}")
    return lines


def _tone(chart: Curves, number: int) -> str:
    return f"curve{number % len(MARKS)}" if len(chart.curves) > 1 else "curve"


def _mark(chart: Curves, number: int, *, unicode: bool) -> str:
    """What stands at the points of a curve; nothing for a curve alone and for what is only compared with."""
    if sum(not curve.dotted for curve in chart.curves) < 2 or chart.curves[number].dotted:
        return ""
    marks = MARKS if unicode else ASCII_MARKS
    marks = marks if len(chart.curves) <= len(marks) else LETTERS
    return marks[number % len(marks)]


def _label(chart: Curves, number: int, style: Style) -> str:
    most = min(_MOST_LABEL, max(style.width // 3, _LEAST_WIDTH)) - 2
    return f"{_mark(chart, number, unicode=style.unicode)} {end_label(chart, chart.curves[number], most)}".strip()


def _side_labels(chart: Curves, span: Span, height: int) -> dict[int, str]:
    """The least value at the foot, and round numbers above it, by row."""
    found = {}
    if span.low == 0 or any(span.low in curve.values for curve in chart.curves):
        found[_row(span, span.low, height)] = span.axis.text(span.low)
    for tick in span.ticks(_MOST_TICKS):
        row = _row(span, tick, height)
        if all(abs(row - other) > 1 for other in found):
            found[row] = span.axis.tick_text(tick)
    return found


def _row(span: Span, value: float, rows: int) -> int:
    return rows - 1 - round(span.share(value) * (rows - 1))


def _ends(chart: Curves, span: Span, height: int) -> dict[int, int]:
    """The number of the curve whose label stands in a row: greater values higher."""
    wished = {
        number: (1 - span.share(chart.curves[number].values[last] or 0)) * (height - 1)
        for number, curve in enumerate(chart.curves)
        if (last := last_shown(chart, curve)) is not None
    }
    rows = spread(list(wished.values()), 1, 0, height - 1)
    return {floor(row + 0.5): number for row, number in zip(rows, wished, strict=True)}


class _Canvas:
    """Dots of several curves: each character belongs to the curve that was drawn last."""

    def __init__(self, columns: int, rows: int, *, braille: bool) -> None:
        self.across, self.down = (2, 4) if braille else (1, 1)
        self.columns, self.rows, self.braille = columns * self.across, rows * self.down, braille
        self._width = columns
        self._cells: dict[tuple[int, int], tuple[str, int, str]] = {}

    def dot(self, column: int, row: int, mark: str, tone: str) -> None:
        """One dot of a curve."""
        place = row // self.down, column // self.across
        bits = _DOTS[row % 4][column % 2] if self.braille else 0
        _, before, _ = self._cells.get(place, ("", 0, ""))
        self._cells[place] = (mark if not self.braille else "", before | bits, tone)

    def mark(self, column: int, row: int, mark: str, tone: str) -> None:
        """A character that stands for a point."""
        self._cells[row // self.down, column // self.across] = (mark, 0, tone)

    def line(self, row: int, style: Style) -> str:
        """One line of characters."""
        runs: list[tuple[str, str]] = []
        for column in range(self._width):
            mark, bits, tone = self._cells.get((row, column), (" ", 0, ""))
            letter = mark or chr(_BRAILLE + bits)
            if runs and tone == runs[-1][1]:
                runs[-1] = (runs[-1][0] + letter, tone)
            else:
                runs.append((letter, tone))
        return "".join(style.paint(text, tone) for text, tone in runs)


def _draw(chart: Curves, number: int, span: Span, canvas: _Canvas, style: Style) -> None:
    """A curve, straight between its points on the page; one that is only compared with is dotted."""
    curve, tone = chart.curves[number], _tone(chart, number)
    across = x_span(chart)
    mark = _mark(chart, number, unicode=style.unicode)
    for piece in pieces(chart, curve):
        points = [
            (
                across.share(chart.at[place]) * (canvas.columns - 1),
                (1 - span.share(curve.values[place] or 0)) * (canvas.rows - 1),
            )
            for place in piece
        ]
        before = None
        for column, height in _columns(points):
            row = round(height)
            if curve.dotted:
                if column % 3 == 0:
                    canvas.dot(column, row, ".", tone)
                continue
            reach = (row,) if before is None else range(min(row, before + 1), max(row + 1, before))
            for each in reach:
                canvas.dot(column, each, mark or "*", tone)
            before = row
        for place, level in points if mark else ():
            canvas.mark(round(place), round(level), mark, tone)


def _columns(points: Sequence[tuple[float, float]]) -> Iterator[tuple[int, float]]:
    """The height of a line over each column that it crosses."""
    first = points[0]
    yield round(first[0]), first[1]
    for (left, low), (right, high) in pairwise(points):
        for column in range(round(left) + 1, round(right) + 1):
            part = min(max((column - left) / (right - left), 0.0), 1.0) if right > left else 1.0
            yield column, low + (high - low) * part


def _axis(chart: Curves, columns: int) -> str:
    """The labels below their places, as many as there is room for; the last one always."""
    span, text = x_span(chart), [" "] * columns
    labels = {place: chart.x.text(place) for place in chart.at}
    widest = max(map(len, labels.values()))
    for place in place_ticks(chart, (widest + 2) / max(columns - 1, 1)):
        label = labels[place]
        start = round(span.share(place) * (columns - 1)) - (len(label) - 1) // 2
        start = max(min(start, columns - len(label)), 0)
        text[start : start + len(label)] = label
    return "".join(text)
