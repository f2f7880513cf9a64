"""Where things stand in a chart: shares of an axis, ticks, and labels that do not cover each other. All drawings share it."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log2, log10
from typing import NamedTuple

from kvtax.safe_text import safe
from kvtax.units import GIB, KIB, MIB
from kvtax.views.charts import BYTES, Axis, Bars, Curve, Curves

_STEPS = (1, 2, 5, 10)
_POWERS = (1, 2, 5, 10, 20)


class Span(NamedTuple):
    """The part of an axis that is shown."""

    axis: Axis
    low: float
    high: float

    def share(self, value: float) -> float:
        """Where a value stands, from 0 at the start to 1 at the end."""
        if self.axis.logarithmic:
            low, value, high = log2(self.low), log2(value), log2(self.high)
        else:
            low, high = self.low, self.high
        return (value - low) / (high - low) if high > low else 0.5

    def ticks(self, most: int) -> list[float]:
        """At most `most` round numbers within it, rising."""
        found = _ratio_ticks(self, most) if self.axis.logarithmic else _even_ticks(self, most)
        return [tick for tick in found if self.low <= tick <= self.high]


def x_span(chart: Curves) -> Span:
    """From the first place to the last one."""
    return Span(chart.x, chart.at[0], chart.at[-1])


def y_span(chart: Curves, room: float = 1.0) -> Span:
    """All values of all curves; from zero where equal distances are equal differences.

    Args:
        chart: of curves.
        room: factor of the greatest value that is left free above it.
    """
    values = [value for curve in chart.curves for value in curve.values if value is not None]
    shown = [value for value in values if chart.y.can_show(value)]
    if not shown:
        return Span(chart.y, 0.5, 1.0)
    low = min(shown) if chart.y.logarithmic else min(0.0, *shown)
    high = max(shown) * room
    if high <= low:  # one value alone stands in the middle
        return Span(chart.y, low / 2, low * 2) if chart.y.logarithmic else Span(chart.y, low, low + 1.0)
    return Span(chart.y, low, high)


def bars_span(chart: Bars) -> Span:
    """From zero to the end of the longest bar or frame."""
    ends = [max(bar.whole, sum(segment.value for segment in bar.segments), bar.limit or 0.0) for bar in chart.bars]
    return Span(chart.x, 0.0, max([*ends, 1.0]))


def _even_ticks(span: Span, most: int) -> list[float]:
    unit = 1.0
    if span.axis.quantity == BYTES:
        unit = next((size for size in (GIB, MIB, KIB) if span.high >= size), 1)
    width = (span.high - span.low) / unit / max(most, 1)
    if width <= 0:
        return []
    power = 10.0 ** floor(log10(width))
    step = next(each for each in _STEPS if each * power >= width * 0.999999) * power * unit
    if span.axis.quantity != BYTES:
        step = max(step, 1.0) if span.high >= most else step
    return [number * step for number in range(ceil(span.low / step), floor(span.high / step) + 1)]


def _ratio_ticks(span: Span, most: int) -> list[float]:
    if span.axis.quantity == BYTES:
        return _powers(span, 2, most)
    if log10(span.high / span.low) * 3 <= most:
        first, last = floor(log10(span.low)), ceil(log10(span.high))
        return [step * 10.0**power for power in range(first, last + 1) for step in _STEPS[:3]]
    return _powers(span, 10, most)


def _powers(span: Span, base: int, most: int) -> list[float]:
    """Powers of a base, every second, fifth or tenth where they are many."""
    first, last = log10(span.low) / log10(base), log10(span.high) / log10(base)
    for step in _POWERS:
        found = [
            float(base) ** power for power in range(ceil(first - 1e-9), floor(last + 1e-9) + 1) if power % step == 0
        ]
        if len(found) <= most:
            return found
    return found[:most]


def place_ticks(chart: Curves, least_gap: float) -> list[float]:
    """The places of the axis below that get a label: as many as stand apart by a share of it, the last one always.

    Args:
        chart: of curves.
        least_gap: between two labels [share of the axis].
    """
    span, found = x_span(chart), list[float]()
    for place in reversed(chart.at):
        if not found or span.share(found[-1]) - span.share(place) >= least_gap:
            found.append(place)
    return found[::-1]


def last_shown(chart: Curves, curve: Curve) -> int | None:
    """The number of the last place at which a curve has a point; None where it has none."""
    shown = [number for number, value in enumerate(curve.values) if chart.y.can_show(value)]
    return shown[-1] if shown else None


def end_label(chart: Curves, curve: Curve, most: int = 200) -> str:
    """What stands at the end of a curve: its name and last value, and where that is, if the others go on.

    Args:
        chart: of curves.
        curve: one of them.
        most: that it may have; a longer name is cut, the value never [characters].
    """
    last = last_shown(chart, curve)
    value = "" if last is None else f" {chart.y.text(curve.values[last] or 0)}"
    if last is not None and last < len(chart.at) - 1:
        value += f" at {chart.x.text(chart.at[last])}"
    return (safe(curve.name, max(most - len(value), 4)) + value).strip()


def pieces(chart: Curves, curve: Curve) -> list[list[int]]:
    """Numbers of the places that a line joins: a curve is broken where it has no value."""
    found: list[list[int]] = [[]]
    for number, value in enumerate(curve.values):
        if chart.y.can_show(value):
            found[-1].append(number)
        elif found[-1]:
            found.append([])
    return [piece for piece in found if piece]


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places moved as little as needed so that any two are a gap apart, all between low and high where there is room.

    Args:
        places: as wished, in any order.
        gap: between neighbours.
        low: least place.
        high: greatest place.

    Returns:
        The new places, in the order of the wished ones.

    >>> spread([0.0, 0.0, 10.0], 2.0, 0.0, 12.0)
    [0.0, 2.0, 10.0]
    """
    order = sorted(range(len(places)), key=lambda number: (places[number], number))
    moved = [0.0] * len(places)
    free = low
    for number in order:
        moved[number] = max(places[number], free)
        free = moved[number] + gap
    end = high
    for number in reversed(order):
        moved[number] = min(moved[number], end)
        end = moved[number] - gap
    return moved
