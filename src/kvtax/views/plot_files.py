"""Charts as files for documents: SVG, PNG, or one HTML page that loads nothing and runs nothing.

Drawn with matplotlib, the optional extra `plot`. Of the three that were measured it alone makes pages without scripts (20 to 60 KB a
chart, not 0.9 to 5 MB); like altair and unlike plotly it needs no browser for a PNG and gives the same bytes each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvtax.errors import InputError
from kvtax.safe_text import safe
from kvtax.views.charts import AnyChart

FORMATS = ("svg", "png", "html")
_DOTS_PER_INCH = 160
_STYLE = (
    "body{margin:1em auto;max-width:60em;padding:0 .6em;background:var(--ground);color:var(--text)}"
    ".plot svg{max-width:100%;height:auto;display:block}.phone{display:none}"
    "@media(max-width:600px){.desk{display:none}.phone{display:block}}"
)


def plot_format(path: str) -> str:
    """The format that the end of a file's name says.

    Args:
        path: of the file.

    Raises:
        InputError: it says none that is known (`plot-format`).
    """
    end = path.rpartition(".")[2].lower() if "." in path else ""
    if end not in FORMATS:
        said = f"{end[:16]!r} is no format of a plot" if end else "the name of the plot has no ending"
        raise InputError(said, code="plot-format", hint="name it .svg, .png or .html", where=path[:200])
    return end


def find_extra() -> bool:
    """Whether the library that draws is installed."""
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


def check_extra() -> None:
    """Say so where the library that draws is not installed.

    Raises:
        InputError: it is not (`plot-extra-missing`).
    """
    if not find_extra():
        raise InputError(
            "plots are drawn with matplotlib, which is not installed",
            code="plot-extra-missing",
            hint="pip install 'kvtax[plot]'",
        )


def write_plot(charts: AnyChart | Sequence[AnyChart], path: str) -> None:
    """Charts below each other in one file, written whole or not at all.

    Args:
        charts: one or several.
        path: of the file; its end says the format: .svg, .png or .html.

    Raises:
        InputError: the format is not known, the file cannot be written, or the library that draws is not installed.
    """
    from kvtax.whole_file import WholeFile

    form = plot_format(path)
    check_extra()
    file = WholeFile(path)
    try:
        file.write(plot_bytes(charts, form))
    finally:
        file.close()


def plot_bytes(charts: AnyChart | Sequence[AnyChart], form: str) -> bytes:
    """Charts below each other as the content of a file: the same bytes each time.

    Args:
        charts: one or several.
        form: svg, png or html.

    Raises:
        InputError: the library that draws is not installed.
    """
    from kvtax.views.charts import Bars, Curves, HeatMap

    several = [charts] if isinstance(charts, Curves | Bars | HeatMap) else list(charts)
    check_extra()
    if form == "html":
        return _html(several).encode()
    return _drawn(several, form, source_line())


def source_line() -> str:
    """What stands at the foot of a plot: who computed it, from which catalogue."""
    from kvtax.budget_result import catalogue_stamp

    stamp = catalogue_stamp()
    return f"kvtax {stamp['kvtax']}, catalogue {stamp['catalogue']}"


def _drawn(charts: Sequence[AnyChart], form: str, source: str, *, narrow: bool = False, salt: str = "kvtax") -> bytes:
    """The drawing as a file; `salt` makes the names of its elements, which differ between drawings of one page."""
    import warnings
    from io import BytesIO

    import matplotlib as mpl

    from kvtax.views.plot_figure import NARROW, SETTINGS, WIDE, draw_figure

    none: dict[str, Any] = {"Software": None} if form == "png" else dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with mpl.rc_context(), warnings.catch_warnings():
        # a name in letters that the font lacks is drawn as boxes, and one that leaves no room for the rest is drawn over it
        warnings.filterwarnings("ignore", "Glyph|constrained_layout")
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        mpl.rcParams["svg.hashsalt"] = salt
        figure = draw_figure(charts, source, NARROW if narrow else WIDE)
        out = BytesIO()
        ground = "auto" if salt == "kvtax" else "none"
        figure.savefig(out, format=form, dpi=_DOTS_PER_INCH, metadata=none, facecolor=ground)
    return out.getvalue()


# ---- one page ----


def _html(charts: Sequence[AnyChart]) -> str:
    """A page with each drawing in two widths, of which it shows one; the colours follow the reader's ground."""
    from kvtax.views.colours import DARK, LIGHT
    from kvtax.views.html import html_page

    light = "".join(f"{name}:{colour};" for name, colour in _names(LIGHT).items())
    dark = "".join(f"{name}:{colour};" for name, colour in _names(DARK).items())
    style = f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{_STYLE}"
    drawings = []
    for number, chart in enumerate(charts):
        source = source_line() if number == len(charts) - 1 else ""
        for kind, narrow in (("desk", False), ("phone", True)):
            salt = f"kvtax-{number}-{kind}"
            svg = _inline(_drawn([chart], "svg", source, narrow=narrow, salt=salt), salt)
            drawings.append(f'<div class="{kind}">{svg}</div>')
    return html_page(safe(charts[0].title, 200), f'<style>{style}</style><div class="plot">{"".join(drawings)}</div>')


def _names(ground: Any) -> dict[str, str]:
    """The colours of a ground under the names that the page gives them."""
    found = {"--ground": ground.background, "--text": ground.text, "--faint": ground.faint, "--grid": ground.grid}
    found |= {f"--k{number}": colour for number, colour in enumerate(ground.curves)}
    return found | {f"--{key.replace('_', '-')}": colour for key, colour in ground.segments.items()}


def _inline(svg: bytes, salt: str) -> str:
    """A drawing as an element of a page: names of its own, and colours by name."""
    import re

    from kvtax.views.colours import LIGHT

    text = svg.decode()
    text = text[text.index("<svg") :]
    ends = f"-{salt}"
    colours = {colour: name for name, colour in reversed(_names(LIGHT).items()) if name != "--ground"}

    def renamed(tag: re.Match[str]) -> str:
        found = re.sub(
            r'(?<= id=")([^"]+)|(?<=href="#)([^"]+)|(?<=url\(#)([^)]+)', lambda name: name.group() + ends, tag.group()
        )
        return re.sub(
            r"#[0-9a-f]{6}\b",
            lambda colour: f"var({colours[colour.group()]})" if colour.group() in colours else colour.group(),
            found,
        )

    return re.sub(r"<[^>]*>", renamed, text)
