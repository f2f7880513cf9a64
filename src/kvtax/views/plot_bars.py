"""Stacked bars for a terminal: one line for each choice, parts told apart by their shade, an axis and a legend below."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvtax.safe_text import safe
from kvtax.views.chart_layout import Span, bars_span
from kvtax.views.charts import Bar, Bars

if TYPE_CHECKING:
    from kvtax.views.page_text import Style

_SHADES = {
    "weights": "\u2588#",
    "activation": "\u259aa",
    "cuda_graph": "\u259eg",
    "runtime": "\u2593r",
    "kv_pool": "\u2592=",
    "unallocated": "\u2591.",
}
_OTHER_SHADES = ("\u2588#", "\u2592=", "\u2593%", "\u2591.", "\u259a+")
_LIMIT, _END = "\u2503|", "\u258f]"
_MOST_NAME, _MOST_NOTE, _LEAST_BAR, _MOST_BAR = 26, 20, 16, 64


def bars_lines(chart: Bars, style: Style) -> list[str]:
    """The bars with their axis and legend.

    Args:
        chart: at least one bar.
        style: how it may look.

    Returns:
        The lines; none where the line is too narrow.
    """
    names = [safe(bar.name, _MOST_NAME) for bar in chart.bars]
    notes = [safe(bar.note, _MOST_NOTE) for bar in chart.bars]
    margin, right = max(map(len, names), default=0), max(map(len, notes), default=0)
    columns = min(style.width - margin - right - 5, _MOST_BAR)
    if columns < _LEAST_BAR or not chart.bars:
        return []
    span = bars_span(chart)
    lines = []
    for bar, name, note in zip(chart.bars, names, notes, strict=True):
        drawn = _bar(chart, bar, span, columns, style)
        lines.append(f"{name:<{margin}}  {drawn}  {style.paint(note, bar.tone)}".rstrip())
    lines.append(f"{'':{margin}}  {_axis(span, columns)}".rstrip())
    return [*lines, *_legend(chart, style)]


def _shade(chart: Bars, key: str, style: Style) -> str:
    keys = [kind.key for kind in chart.kinds]
    pair = _SHADES.get(key) or _OTHER_SHADES[keys.index(key) % len(_OTHER_SHADES)]
    return pair[0 if style.unicode else 1]


def _bar(chart: Bars, bar: Bar, span: Span, columns: int, style: Style) -> str:
    """The parts one after the other; the marks of limit and end stand over them."""
    cells, reached = [(" ", "")] * (columns + 1), 0.0
    for segment in bar.segments:
        start, end = (round(span.share(value) * columns) for value in (reached, reached + segment.value))
        cells[start:end] = [(_shade(chart, segment.key, style), segment.key)] * (end - start)
        reached += segment.value
    stack, whole = round(span.share(reached) * columns), round(span.share(bar.whole) * columns)
    if whole != stack:
        cells[whole] = (_END[not style.unicode], "bad" if reached > bar.whole else "dim")
    if bar.limit is not None:
        cells[min(round(span.share(bar.limit) * columns), columns)] = (_LIMIT[not style.unicode], "strong")
    runs: list[tuple[str, str]] = []
    for letter, tone in cells:
        if runs and runs[-1][1] == tone:
            runs[-1] = (runs[-1][0] + letter, tone)
        else:
            runs.append((letter, tone))
    return "".join(style.paint(text, tone) for text, tone in runs)


def _axis(span: Span, columns: int) -> str:
    """Round numbers below their places."""
    text, free = [" "] * (columns + 12), 0
    for tick in span.ticks(max(columns // 12, 2)):
        label = span.axis.tick_text(tick)
        start = max(round(span.share(tick) * columns) - len(label) // 2, 0)
        if start >= free:
            text[start : start + len(label)] = label
            free = start + len(label) + 2
    return "".join(text)


def _legend(chart: Bars, style: Style) -> Iterator[str]:
    """What each shade and mark is, in as many lines as it takes."""
    entries = [(_shade(chart, kind.key, style), kind.key, safe(kind.name)) for kind in chart.kinds]
    if chart.limit_name and any(bar.limit is not None for bar in chart.bars):
        entries.append((_LIMIT[not style.unicode], "strong", safe(chart.limit_name)))
    if chart.whole_name and any(sum(part.value for part in bar.segments) != bar.whole for bar in chart.bars):
        entries.append((_END[not style.unicode], "dim", safe(chart.whole_name)))
    line, length = "", 0
    for letter, tone, name in entries:
        if length and length + len(name) + 4 > style.width:
            yield line
            line, length = "", 0
        line += ("  " if length else "") + style.paint(letter, tone) + " " + name
        length += len(name) + (4 if length else 2)
    if line:
        yield line
