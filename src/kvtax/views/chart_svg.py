"""A chart as SVG for a page or a notebook: no script, nothing loaded, the same bytes each time; colours follow the reader's ground.

Texts are placed by an upper estimate of their width, since no font is at hand. Documents with exact fonts are `plot_files`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvtax.views.charts import AnyChart, Bars, Curves, HeatMap
from kvtax.views.colours import DARK, LIGHT, Ground
from kvtax.views.safe import html
from kvtax.views.svg_parts import Svg

WIDE, NARROW = 720, 360
"""Widths of a drawing, for a desk and for a phone [CSS pixels]."""


def _variables(ground: Ground) -> str:
    curves = "".join(f"--k{number}:{colour};" for number, colour in enumerate(ground.curves))
    return curves + "".join(f"--{key.replace('_', '-')}:{colour};" for key, colour in ground.segments.items())


_DRAWN = (
    "{s} text{{font:13px system-ui,sans-serif;fill:currentColor;stroke:none}}{s} .h{{font-weight:600;font-size:15px}}"
    "{s} .f{{opacity:.75;font-size:12px}}{s} .g{{stroke:currentColor;stroke-opacity:.18;fill:none}}"
    "{s} .a{{stroke:currentColor;stroke-opacity:.55;fill:none}}{s} .l{{stroke:currentColor;stroke-width:2;fill:none}}"
    "{s} .c{{fill:none;stroke-width:2;stroke-linejoin:round}}{s} .d{{stroke-dasharray:2 4}}"
    "{s} .e{{text-anchor:end}}{s} .m{{text-anchor:middle}}"
)
CHART_STYLE = (
    f".kvtax{{{_variables(LIGHT)}}}@media(prefers-color-scheme:dark){{.kvtax{{{_variables(DARK)}}}}}"
    ".kvtax .chart{margin:.6em 0}.kvtax .chart svg{max-width:100%;height:auto;display:block}.kvtax .phone{display:none}"
    "@media(max-width:600px){.kvtax .desk{display:none}.kvtax .phone{display:block}}" + _DRAWN.format(s=".kvtax .chart")
)
"""What a page needs once for all its charts, in a `style` element."""
_ALONE = (
    f"svg{{{_variables(LIGHT)}color:{LIGHT.text};background:{LIGHT.background}}}@media(prefers-color-scheme:dark){{"
    f"svg{{{_variables(DARK)}color:{DARK.text};background:{DARK.background}}}}}" + _DRAWN.format(s="svg")
)


def chart_html(chart: AnyChart) -> str:
    """A fragment with the drawing in two widths, of which a page with CHART_STYLE shows one.

    Args:
        chart: what is shown.
    """
    wide, narrow = chart_svg(chart, WIDE), chart_svg(chart, NARROW)
    return f'<div class="chart"><div class="desk">{wide}</div><div class="phone">{narrow}</div></div>'


def chart_svg(
    charts: AnyChart | Sequence[AnyChart], width: int = WIDE, *, alone: bool = False, source: str = ""
) -> str:
    """One drawing of charts below each other.

    Args:
        charts: one or several.
        width: of the drawing [CSS pixels].
        alone: with its own style and ground, as a file needs it.
        source: a line at the foot.
    """
    several = [charts] if isinstance(charts, Curves | Bars | HeatMap) else list(charts)
    svg = Svg(width)
    for chart in several:
        svg.y += 16 if svg.y else 0
        _draw(chart, svg)
    svg.words(source, "f", 12)
    style = f"<style>{_ALONE}</style>" if alone else ""
    space = ' xmlns="http://www.w3.org/2000/svg"' if alone else ""
    size = f'width="{width}" height="{svg.height}" viewBox="0 0 {width} {svg.height}"'
    said = html("; ".join(chart.title for chart in several))
    return f'<svg{space} {size} role="img" aria-label="{said}">{style}{svg.text}</svg>'


def _draw(chart: AnyChart, svg: Svg) -> None:
    svg.words(chart.title, "h", 15)
    if isinstance(chart, Curves):
        from kvtax.views.svg_curves import draw_curves

        draw_curves(chart, svg)
    elif isinstance(chart, Bars):
        from kvtax.views.svg_bars import draw_bars

        draw_bars(chart, svg)
    else:
        from kvtax.views.svg_map import draw_map

        draw_map(chart, svg)
    for remark in chart.remarks:
        svg.words(remark, "f", 12)
