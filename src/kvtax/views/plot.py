"""Curves for a terminal, both axes logarithmic: eight dots to a character in braille, or one character for a point in ASCII."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from kvtax.views.page import Plot

HEIGHT = 8
_MOST_WIDTH, _LEAST_WIDTH = 64, 12
_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def plot_lines(plot: Plot, *, width: int, unicode: bool) -> list[str]:
    """The curves between their axes, with the lengths below, the least value at the left and the last ones at the right.

    Args:
        plot: at least two points; values above zero.
        width: of a line [characters].
        unicode: whether braille can be shown.

    >>> from kvtax.views.page import Plot
    >>> plot_lines(Plot("", (1, 2), ("1", "2"), ((1, 2),), "1 B", ("2 B",)), width=24, unicode=False)[0]
    '    |              * 2 B'
    """
    margin = len(plot.start_label)
    columns = min(width - margin - 3 - max(map(len, plot.end_labels)), _MOST_WIDTH)
    if columns < _LEAST_WIDTH:
        return []
    across, down = (2, 4) if unicode else (1, 1)
    scale = _Scale(plot, HEIGHT * down)
    grid = _draw(plot, scale, columns * across)
    cells = _as_braille(grid, columns) if unicode else ["".join(row) for row in grid]
    side, corner, floor = ("\u2502", "\u2514", "\u2500") if unicode else ("|", "+", "-")
    ends: dict[int, str] = {}
    for curve, label in zip(plot.curves, plot.end_labels, strict=True):
        ends.setdefault(scale.row(curve[-1]) // down, label)
    lines = []
    for number, line in enumerate(cells):
        label = plot.start_label if number == HEIGHT - 1 else ""
        lines.append(f"{label:>{margin}} {side}{line} {ends.get(number, '')}".rstrip())
    lines.append(f"{'':{margin}} {corner}{floor * columns}")
    lines.append(f"{'':{margin}}  {_axis(plot, columns)}".rstrip())
    return lines


class _Scale:
    """From a value to a row of dots, the greatest at the top."""

    def __init__(self, plot: Plot, rows: int) -> None:
        self.rows = rows
        self._low = log2(min(min(curve) for curve in plot.curves))
        self._high = log2(max(max(curve) for curve in plot.curves))

    def row(self, value: float) -> int:
        """The row of a value."""
        return self.rows - 1 - round((log2(value) - self._low) / ((self._high - self._low) or 1.0) * (self.rows - 1))


def _draw(plot: Plot, scale: _Scale, columns: int) -> list[list[str]]:
    """A mark for each dot of a curve; curves after the first are dotted and do not cover it."""
    grid = [[" "] * columns for _ in range(scale.rows)]
    for number, curve in reversed(list(enumerate(plot.curves))):
        before = 0
        for column in range(columns):
            value = _between(plot.x, curve, column / max(columns - 1, 1))
            row = scale.row(value)
            if number == 0:
                for each in range(row, max(row + 1, before)):
                    grid[each][column] = "*"
            elif column % 3 == 0:
                grid[row][column] = "."
            before = row
    return grid


def _between(x: Sequence[int], y: Sequence[int], at: float) -> float:
    """The curve at a share of the logarithmic axis, straight between its points in tokens and bytes."""
    first, last = log2(x[0]), log2(x[-1])
    place = 2 ** (first + at * (last - first))
    for left, right, low, high in zip(x, x[1:], y, y[1:], strict=False):
        if place <= right:
            return float(low + (high - low) * (place - left) / (right - left))
    return float(y[-1])


def _as_braille(grid: Sequence[Sequence[str]], columns: int) -> list[str]:
    lines = []
    for top in range(0, len(grid), 4):
        line = ""
        for column in range(columns):
            code = 0
            for down in range(4):
                for across in range(2):
                    if grid[top + down][column * 2 + across] != " ":
                        code |= _DOTS[down][across]
            line += chr(_BRAILLE + code) if code else " "
        lines.append(line)
    return lines


def _axis(plot: Plot, columns: int) -> str:
    """The labels below their points, as many as there is room for; the last one always."""
    first, last = log2(plot.x[0]), log2(plot.x[-1])
    end = columns - len(plot.x_labels[-1])
    text = [" "] * columns
    free = 0
    for value, label in list(zip(plot.x, plot.x_labels, strict=True))[:-1]:
        start = round((log2(value) - first) / ((last - first) or 1.0) * (columns - 1))
        start = max(start - len(label) // 2, 0)
        if start >= free and start + len(label) + 1 < end:
            text[start : start + len(label)] = label
            free = start + len(label) + 2
    text[end:] = plot.x_labels[-1]
    return "".join(text)
