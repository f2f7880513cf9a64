"""Charts as data: curves over an axis, stacked bars, a map of numbers. The formats only draw them.

`chart_text` draws for a terminal, `chart_svg` for a page, `plot_files` for documents. A quantity says how a number reads; its text
is made by `units` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

from kvtax.units import format_bytes, format_count, format_requests, format_tokens

BYTES, TOKENS, REQUESTS, COUNT = "bytes", "tokens", "requests", "count"
"""What an axis measures."""


class Axis(NamedTuple):
    """One axis.

    Args:
        title: what stands along it, its unit included: `context [tokens]`.
        quantity: bytes | tokens | requests | count: how its numbers read.
        logarithmic: equal distances are equal ratios; values are above zero then.
    """

    title: str
    quantity: str = COUNT
    logarithmic: bool = False

    def text(self, value: float) -> str:
        """A value on this axis, for people."""
        if self.quantity == BYTES:
            return format_bytes(value)
        if self.quantity == TOKENS:
            return format_tokens(int(value))
        if self.quantity == REQUESTS:
            return format_requests(value)
        return format_count(value)

    def tick_text(self, value: float) -> str:
        """A round number on this axis, for people."""
        if self.quantity == BYTES and value == 0:
            return "0"
        if self.quantity in (REQUESTS, COUNT):
            return format_count(int(value)) if value == int(value) else f"{value:g}"
        return self.text(value)

    def can_show(self, value: float | None) -> bool:
        """Whether the axis has a place for a value: none for what is not there, nor for zero where ratios count."""
        return value is not None and (value > 0 or not self.logarithmic)


class Curve(NamedTuple):
    """One curve.

    Args:
        name: what stands at its end; empty for the only one.
        values: one for each place on the axis below; None where there is none.
        dotted: what it is compared with, not one of the choices.
    """

    name: str
    values: tuple[float | None, ...]
    dotted: bool = False


class Curves(NamedTuple):
    """Curves over one axis.

    Args:
        title: what is plotted.
        x: the axis below.
        y: the axis at the side.
        at: places on the axis below, rising.
        curves: the main one first.
        remarks: lines below the chart.
    """

    title: str
    x: Axis
    y: Axis
    at: tuple[float, ...]
    curves: tuple[Curve, ...]
    remarks: tuple[str, ...] = ()


class Segment(NamedTuple):
    """One part of a bar; `key` is that of its SegmentKind."""

    key: str
    value: float


class SegmentKind(NamedTuple):
    """A part that bars share: its key, and its name in the legend."""

    key: str
    name: str


class Bar(NamedTuple):
    """One choice.

    Args:
        name: of the choice.
        segments: from the start on, none below zero.
        whole: length of the frame around the bar; parts may reach beyond it.
        limit: where a line crosses it, None for none.
        note: what stands at its end.
        tone: of the note (`good`, `bad` or none).
    """

    name: str
    segments: tuple[Segment, ...]
    whole: float
    limit: float | None = None
    note: str = ""
    tone: str = ""


class Bars(NamedTuple):
    """Stacked bars, one for each choice.

    Args:
        title: what is divided.
        x: the axis along the bars.
        kinds: parts in the order of the legend.
        bars: from the top on.
        whole_name: what the frame is.
        limit_name: what the line is.
        remarks: lines below the chart.
    """

    title: str
    x: Axis
    kinds: tuple[SegmentKind, ...]
    bars: tuple[Bar, ...]
    whole_name: str = ""
    limit_name: str = ""
    remarks: tuple[str, ...] = ()


class MapCell(NamedTuple):
    """One cell: its text, and the number behind it; None where there is none (does not fit, is refused, is not known)."""

    text: str
    value: float | None


class HeatMap(NamedTuple):
    """Numbers of two axes, tinted by size.

    Args:
        title: what the numbers are, with their unit.
        rows_title: what the rows are.
        columns_title: what the columns are.
        rows: names of the rows.
        columns: names of the columns.
        cells: one tuple for each row.
        remarks: lines below.
    """

    title: str
    rows_title: str
    columns_title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[MapCell, ...], ...]
    remarks: tuple[str, ...] = ()


AnyChart = Curves | Bars | HeatMap


def heat_shares(cells: Sequence[Sequence[MapCell]]) -> list[list[float | None]]:
    """How strongly each cell is tinted: 0 for the least number above zero, 1 for the greatest, by ratio; None where there is none.

    share = ln(value / least) / ln(greatest / least)

    >>> heat_shares([[MapCell("1", 1), MapCell("10", 10), MapCell("100", 100), MapCell("-", None)]])
    [[0.0, 0.5, 1.0, None]]
    """
    numbers = [cell.value for row in cells for cell in row if cell.value is not None and cell.value > 0]
    if not numbers:
        return [[None if cell.value is None else 0.0 for cell in row] for row in cells]
    least, span = min(numbers), log(max(numbers) / min(numbers))
    return [[_heat_share(cell.value, least, span) for cell in row] for row in cells]


def _heat_share(value: float | None, least: float, span: float) -> float | None:
    if value is None:
        return None
    if value <= 0:
        return 0.0
    return log(value / least) / span if span else 1.0
