"""Stacked bars in SVG: one for each choice, with a frame, a line at the limit, an axis and a legend."""

from __future__ import annotations

from kvtax.views.chart_layout import Span, bars_span
from kvtax.views.charts import Bar, Bars
from kvtax.views.svg_parts import Svg, cut, text_width

_BAR, _STEP = 18, 30


def draw_bars(chart: Bars, svg: Svg) -> None:
    """All of it, below what is there.

    Args:
        chart: what is drawn.
        svg: where.
    """
    _legend(chart, svg)
    names, notes = [bar.name for bar in chart.bars], [bar.note for bar in chart.bars]
    left, right = max(map(text_width, names), default=0.0) + 10, max(map(text_width, notes), default=0.0) + 10
    apart = left + right > svg.width * 0.5  # on a phone names and notes stand above the bars
    start, end = (0.0, svg.width - 2.0) if apart else (left, svg.width - right)
    span, names_of = bars_span(chart), {kind.key: kind.name for kind in chart.kinds}
    svg.y += 8
    for bar in chart.bars:
        if apart:
            svg.y += 16
            room = svg.width - text_width(bar.note) - 10
            svg.put(cut(bar.name, room), 0, svg.y)
            svg.put(bar.note, svg.width, svg.y, "e")
            svg.y += 9
        _bar(bar, names_of, chart, svg, span, start, end)
        if not apart:
            svg.put(bar.name, left - 10, svg.y + 13, "e")
            svg.put(bar.note, end + 10, svg.y + 13)
        svg.y += _BAR + 6 if apart else _STEP
    _axis(chart, svg, span, start, end)


def _bar(bar: Bar, names: dict[str, str], chart: Bars, svg: Svg, span: Span, start: float, end: float) -> None:
    reached, room = 0.0, end - start
    for segment in bar.segments:
        x = start + span.share(reached) * room
        width = span.share(segment.value) * room
        said = f"{bar.name}: {names.get(segment.key, segment.key)} {chart.x.text(segment.value)}"
        svg.box(x, svg.y, width, _BAR, colour_of(segment.key, list(names)), said)
        reached += segment.value
    svg.frame(start, svg.y, span.share(bar.whole) * room, _BAR)
    if bar.limit is not None:
        x = start + span.share(bar.limit) * room
        svg.line(x, svg.y - 4, x, svg.y + _BAR + 4, "l")


def colour_of(key: str, keys: list[str]) -> str:
    """The colour of a part, by its meaning; by its place where it has none of its own."""
    from kvtax.views.colours import LIGHT

    return f"var(--{key.replace('_', '-')})" if key in LIGHT.segments else f"var(--k{keys.index(key) % 6})"


def _axis(chart: Bars, svg: Svg, span: Span, start: float, end: float) -> None:
    svg.line(start, svg.y, end, svg.y, "a")
    widest = text_width(chart.x.tick_text(span.high), 12)
    for tick in span.ticks(max(int((end - start) / (widest + 16)), 1)):
        x = start + span.share(tick) * (end - start)
        svg.line(x, svg.y, x, svg.y + 4, "a")
        place = "f" if x < widest / 2 else "f e" if x > svg.width - widest / 2 else "f m"
        svg.put(chart.x.tick_text(tick), x, svg.y + 18, place)
    svg.y += 18
    if chart.x.title:
        svg.y += 17
        svg.put(chart.x.title, end, svg.y, "f e")
    svg.y += 4


def _legend(chart: Bars, svg: Svg) -> None:
    keys = [kind.key for kind in chart.kinds]
    entries = [(kind.name, colour_of(kind.key, keys)) for kind in chart.kinds]
    if chart.limit_name and any(bar.limit is not None for bar in chart.bars):
        entries.append((chart.limit_name, ""))
    x = 0.0
    svg.y += 20
    for name, colour in entries:
        width = text_width(name, 12) + 34
        if x and x + width > svg.width:
            x = 0.0
            svg.y += 18
        if colour:
            svg.box(x, svg.y - 10, 12, 12, colour)
        else:
            svg.line(x + 6, svg.y - 12, x + 6, svg.y + 3, "l")
        svg.put(name, x + 18, svg.y, "f")
        x += width
    svg.y += 4
