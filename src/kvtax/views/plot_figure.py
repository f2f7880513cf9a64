"""Charts drawn with matplotlib. Only `plot_files` asks for it; where things stand is decided in `chart_layout` as for all drawings."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from kvtax.safe_text import safe
from kvtax.views.chart_layout import (
    Span,
    bars_span,
    end_label,
    last_shown,
    pieces,
    place_ticks,
    spread,
    y_span,
)
from kvtax.views.charts import AnyChart, Bars, Curves, HeatMap, heat_shares
from kvtax.views.colours import LIGHT, MARKERS, tint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDE, NARROW = 7.5, 3.75
"""Widths of a figure [inches]: 720 and 360 CSS pixels."""
SETTINGS: Any = {
    "text.parse_math": False,  # a name with $ is no formula
    "text.usetex": False,
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 9.0,
    "text.color": LIGHT.text,
    "axes.labelcolor": LIGHT.faint,
    "axes.facecolor": "none",
    "axes.edgecolor": LIGHT.faint,
    "xtick.color": LIGHT.faint,
    "ytick.color": LIGHT.faint,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": LIGHT.grid,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.image_inline": True,
    "path.simplify": False,
}
"""What differs from matplotlib's own defaults; nobody's matplotlibrc counts."""
_MARKS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D", "cross": "P", "ring": "o"}
_LABEL_INCHES, _CURVES_INCHES, _BAR_INCHES, _ROW_INCHES = 0.165, 2.7, 0.34, 0.32
_COLUMN_INCHES, _NARROW_COLUMN_INCHES, _LETTER_INCHES = 0.78, 0.46, 0.076
_MOST_NAME, _MOST_LABEL, _MOST_NOTE, _MOST_TITLE = 36, 40, 24, 48
_MOST_NARROW_NAME, _MOST_NARROW_LABEL = 18, 34
"""Longer texts are cut, so that the drawing keeps its room [characters]."""


def draw_figure(charts: Sequence[AnyChart], source: str, width: float = WIDE) -> Figure:
    """Charts below each other.

    Args:
        charts: at least one.
        source: the line at the foot.
        width: of the figure, more where a heat map needs it [inches].
    """
    from matplotlib.figure import Figure

    widest = max([width, *(_map_width(chart, width) for chart in charts if isinstance(chart, HeatMap))])
    heights = [_height(chart, widest) for chart in charts]
    figure = Figure(figsize=(widest, sum(heights)), layout="constrained", facecolor=LIGHT.background)
    layout: Any = figure.get_layout_engine()
    layout.set(h_pad=0.08)
    parts = figure.subfigures(len(charts), 1, height_ratios=heights, squeeze=False)[:, 0]
    for number, (chart, part) in enumerate(zip(charts, parts, strict=True)):
        part.set_facecolor("none")
        remarks = [*chart.remarks, *([source] if number == len(charts) - 1 else [])]
        _title(part, chart.title, remarks, widest)
        axes = part.subplots()
        if isinstance(chart, Curves):
            _draw_curves(chart, axes, widest, heights[number])
        elif isinstance(chart, Bars):
            _draw_bars(chart, axes, widest)
        else:
            _draw_map(chart, axes, narrow=width < WIDE)
    return figure


def _map_width(chart: HeatMap, width: float) -> float:
    """That a heat map needs [inches]."""
    most, column = (_MOST_NAME, _COLUMN_INCHES) if width >= WIDE else (_MOST_NARROW_NAME, _NARROW_COLUMN_INCHES)
    longest = max((min(len(name), most) for name in chart.rows), default=0)
    return 0.6 + _LETTER_INCHES * longest + column * len(chart.columns)


def _height(chart: AnyChart, width: float) -> float:
    """Of one chart with its title, legend and remarks [inches]."""
    more = 0.9 + 0.16 * (len(_lines(chart.title, width, 11)) + len(chart.remarks))
    if isinstance(chart, Curves):
        legend = 0 if width >= WIDE or len(chart.curves) < 2 else _LABEL_INCHES * len(chart.curves)
        return more + max(_CURVES_INCHES, _LABEL_INCHES * len(chart.curves)) + legend
    if isinstance(chart, Bars):
        return more + _BAR_INCHES * max(len(chart.bars), 1) * (1 if width >= WIDE else 1.5) + 0.75
    return more + _ROW_INCHES * (len(chart.rows) + (1 if width >= WIDE else 3))


def _lines(text: str, width: float, size: float) -> list[str]:
    """A text in lines that the figure has room for."""
    return wrap(safe(text, 2000), int(width * 72 / (size * 0.62)))


def _title(part: Any, title: str, remarks: Sequence[str], width: float) -> None:
    part.suptitle("\n".join(_lines(title, width, 11)), x=0.01, ha="left", fontsize=11, fontweight="bold")
    foot = [line for remark in remarks for line in _lines(remark, width, 7.5)]
    if foot:
        part.supxlabel("\n".join(foot), x=0.01, ha="left", fontsize=7.5, color=LIGHT.faint)


# ---- curves ----


def _look(number: int) -> dict[str, Any]:
    """Colour and point of a curve: with many curves, a colour comes again with another point."""
    colour = LIGHT.curves[number % len(LIGHT.curves)]
    marker = MARKERS[(number + number // len(MARKERS)) % len(MARKERS)]
    inside = "none" if marker == "ring" else colour
    return {"color": colour, "marker": _MARKS[marker], "markerfacecolor": inside, "markersize": 5}


def _draw_curves(chart: Curves, axes: Any, width: float, height: float) -> None:
    if not any(pieces(chart, curve) for curve in chart.curves):
        axes.set_axis_off()
        axes.text(0.0, 0.5, "there is nothing to draw")
        return
    span = y_span(chart)
    room = (
        Span(span.axis, span.low / 1.06, span.high * 1.06)
        if span.axis.logarithmic
        else span._replace(high=span.high * 1.04)
    )
    axes.set_xscale("log" if chart.x.logarithmic else "linear")
    axes.set_yscale("log" if chart.y.logarithmic else "linear")
    for number in reversed(range(len(chart.curves))):
        curve = chart.curves[number]
        for piece in pieces(chart, curve):
            x, y = [chart.at[place] for place in piece], [curve.values[place] for place in piece]
            axes.plot(x, y, linestyle=":" if curve.dotted else "-", linewidth=1.6, clip_on=False, **_look(number))
    axes.set_xlim(chart.at[0], chart.at[-1])
    axes.set_ylim(room.low, room.high)
    places = place_ticks(chart, 0.085 if width >= WIDE else 0.17)
    axes.set_xticks(places, [chart.x.text(place) for place in places])
    ticks = room.ticks(6)
    axes.set_yticks(ticks, [chart.y.tick_text(tick) for tick in ticks])
    axes.minorticks_off()
    axes.grid(visible=True, axis="y")
    axes.set_xlabel(safe(chart.x.title, _MOST_TITLE), loc="right")
    axes.set_ylabel(safe(chart.y.title, _MOST_TITLE))
    if width >= WIDE or len(chart.curves) == 1:
        _end_labels(chart, axes, room, height)
    else:
        _curve_legend(chart, axes)


def _end_labels(chart: Curves, axes: Any, room: Span, height: float) -> None:
    """Name and last value beside each curve's end, none over another."""
    shown = [
        (number, last) for number, curve in enumerate(chart.curves) if (last := last_shown(chart, curve)) is not None
    ]
    shares = [room.share(chart.curves[number].values[last] or 0) for number, last in shown]
    gap = _LABEL_INCHES / (height - 1.15)
    for (number, _), share in zip(shown, spread(shares, gap, 0.0, 1.0), strict=True):
        text = end_label(chart, chart.curves[number], _MOST_LABEL)
        if len(shown) > 1:
            axes.plot([1.03], [share], transform=axes.transAxes, linestyle="", clip_on=False, **_look(number))
        axes.text(1.05 if len(shown) > 1 else 1.02, share, text, transform=axes.transAxes, va="center")


def _curve_legend(chart: Curves, axes: Any) -> None:
    """Name and last value of each curve above the field, where there is no room beside it."""
    from matplotlib.lines import Line2D

    order = sorted(range(len(chart.curves)), key=lambda number: -_last(chart, number))
    lines = [Line2D([], [], linestyle=":" if chart.curves[number].dotted else "-", **_look(number)) for number in order]
    labels = [end_label(chart, chart.curves[number], _MOST_NARROW_LABEL) for number in order]
    axes.legend(lines, labels, loc="lower left", bbox_to_anchor=(0, 1.02), borderaxespad=0, borderpad=0)


def _last(chart: Curves, number: int) -> float:
    last = last_shown(chart, chart.curves[number])
    return 0.0 if last is None else chart.curves[number].values[last] or 0.0


# ---- bars ----


def _draw_bars(chart: Bars, axes: Any, width: float) -> None:
    from matplotlib.patches import Rectangle

    span, keys = bars_span(chart), [kind.key for kind in chart.kinds]
    apart = width < WIDE  # on a phone names and notes stand above the bars
    for row, bar in enumerate(chart.bars):
        reached = 0.0
        for segment in bar.segments:
            axes.barh(
                row,
                segment.value,
                left=reached,
                height=0.6 if not apart else 0.45,
                color=_colour(segment.key, keys),
                linewidth=0,
            )
            reached += segment.value
        tall = 0.3 if not apart else 0.225
        axes.add_patch(
            Rectangle(
                (0, row - tall), bar.whole, 2 * tall, fill=False, edgecolor=LIGHT.faint, linewidth=0.8, clip_on=False
            )
        )
        if bar.limit is not None:
            axes.plot(
                [bar.limit] * 2,
                [row - tall - 0.12, row + tall + 0.12],
                color=LIGHT.text,
                linewidth=1.6,
                solid_capstyle="butt",
            )
        if apart:
            axes.text(0, row - 0.33, safe(bar.name, _MOST_NAME - _MOST_NARROW_NAME), va="bottom")
            axes.text(
                1,
                row - 0.33,
                safe(bar.note, _MOST_NARROW_NAME),
                va="bottom",
                ha="right",
                transform=axes.get_yaxis_transform(),
            )
        else:
            axes.text(1.02, row, safe(bar.note, _MOST_NOTE), va="center", transform=axes.get_yaxis_transform())
    axes.set_xlim(0, span.high)
    axes.set_ylim(len(chart.bars) - 0.4, -0.9 if apart else -0.6)
    axes.set_yticks(
        [] if apart else range(len(chart.bars)),
        [] if apart else [safe(bar.name, _MOST_NAME) for bar in chart.bars],
        color=LIGHT.text,
    )
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    ticks = span.ticks(6 if not apart else 3)
    axes.set_xticks(ticks, [chart.x.tick_text(tick) for tick in ticks])
    axes.set_xlabel(safe(chart.x.title, _MOST_TITLE), loc="right")
    _bar_legend(chart, axes, keys, 4 if not apart else 2)


def _colour(key: str, keys: Sequence[str]) -> str:
    """The colour of a part, by its meaning; by its place where it has none of its own."""
    return LIGHT.segments.get(key) or LIGHT.curves[keys.index(key) % len(LIGHT.curves)]


def _bar_legend(chart: Bars, axes: Any, keys: Sequence[str], columns: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks: list[Any] = [Patch(color=_colour(kind.key, keys)) for kind in chart.kinds]
    names = [safe(kind.name, _MOST_NAME) for kind in chart.kinds]
    if chart.limit_name and any(bar.limit is not None for bar in chart.bars):
        marks.append(Line2D([], [], linestyle="", marker="|", markersize=11, markeredgewidth=1.6, color=LIGHT.text))
        names.append(safe(chart.limit_name, _MOST_NAME))
    axes.legend(
        marks, names, ncols=columns, loc="lower left", bbox_to_anchor=(0, 1.02), borderaxespad=0, borderpad=0,
        handlelength=1, columnspacing=1.2,
    )  # fmt: skip


# ---- heat map ----


def _draw_map(chart: HeatMap, axes: Any, *, narrow: bool) -> None:
    from matplotlib.patches import Rectangle

    for row, (cells, shares) in enumerate(zip(chart.cells, heat_shares(chart.cells), strict=True)):
        for column, (cell, share) in enumerate(zip(cells, shares, strict=True)):
            ground, letters = ("none", LIGHT.faint) if share is None else tint(share)
            edge = LIGHT.grid if share is None else "none"
            axes.add_patch(Rectangle((column + 0.03, row + 0.04), 0.94, 0.92, facecolor=ground, edgecolor=edge))
            size = 7.5 if narrow else 9.0
            axes.text(
                column + 0.5, row + 0.5, safe(cell.text, 16), ha="center", va="center", color=letters, fontsize=size
            )
    axes.set_xlim(0, len(chart.columns))
    axes.set_ylim(len(chart.rows), 0)
    names = [safe(name, _MOST_NARROW_NAME if narrow else _MOST_NAME) for name in chart.rows]
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xticks([number + 0.5 for number in range(len(chart.columns))], [safe(name, 14) for name in chart.columns])
    axes.set_yticks([number + 0.5 for number in range(len(chart.rows))], names)
    axes.tick_params(length=0, labelcolor=LIGHT.text)
    axes.tick_params(axis="x", labelrotation=60 if narrow else 0)
    axes.set_xlabel(safe(chart.columns_title, _MOST_NARROW_NAME), loc="left")
    axes.set_ylabel(safe(chart.rows_title, _MOST_NARROW_NAME))
    for spine in axes.spines.values():
        spine.set_visible(False)
