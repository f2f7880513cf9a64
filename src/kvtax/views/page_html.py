"""A page as HTML: a fragment for a notebook, or one document that loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Iterator

from kvtax.views.chart_svg import CHART_STYLE, chart_html
from kvtax.views.colours import tint
from kvtax.views.html import STYLE, html_page, notices_to_html
from kvtax.views.page import Cell, Column, Facts, Grid, Page, Row
from kvtax.views.safe import html

_TONES = {"strong": "strong", "dim": "r", "good": "good", "bad": "bad"}
_STYLE = (
    ".kvtax h4{margin:1.2em 0 .2em}.kvtax .strong{font-weight:600}.kvtax .t td{padding:0 .8em .5em 1.4em;opacity:.7}"
    ".kvtax td.x{padding:.1em .8em;text-align:right;border-radius:2px}.kvtax .b div{background:#4477aa;min-width:1px}"
    ".kvtax td,.kvtax th{vertical-align:top}.kvtax .k{white-space:nowrap}"
)


def page_html(page: Page) -> str:
    """The whole document.

    Args:
        page: what is shown.
    """
    return html_page(page.title or "kvtax", page_fragment_html(page))


def page_fragment_html(page: Page) -> str:
    """What a notebook shows.

    Args:
        page: what is shown.
    """
    drawn = any(not isinstance(block, Facts | Grid) for block in page.blocks)
    style = STYLE + _STYLE + (CHART_STYLE if drawn else "")
    return f'<div class="kvtax"><style>{style}</style>{"".join(_pieces(page))}</div>\n'


def _pieces(page: Page) -> Iterator[str]:
    if page.title:
        yield f"<h3>{html(page.title)}</h3>"
    for block in page.blocks:
        if isinstance(block, Facts):
            yield _facts(block)
        elif isinstance(block, Grid):
            yield "".join(_grid(block))
        else:
            yield chart_html(block)
    yield notices_to_html(page.notices)


def _facts(block: Facts) -> str:
    title = f"<h4>{html(block.title)}</h4>" if block.title else ""
    rows = "".join(
        f'<tr><td class="r k">{html(fact.label)}</td><td>{html(fact.text)}</td></tr>'
        for fact in block.facts
        if fact.text
    )
    return f"{title}<table>{rows}</table>"


def _grid(grid: Grid) -> Iterator[str]:
    shown = [
        number
        for number, column in enumerate(grid.columns)
        if number == 0 or column.bar or any(row.cells[number].text for row in grid.rows)
    ]
    columns = [grid.columns[number] for number in shown]
    if grid.title and columns[0].title != grid.title:
        yield f"<h4>{html(grid.title)}</h4>"
    heads = "".join(f"<th{_classes('n' if column.right else '')}>{html(column.title)}</th>" for column in columns)
    yield '<div class="w"><table>'
    if any(column.title for column in columns):
        yield f"<tr>{heads}</tr>"
    for row in grid.rows:
        yield from _row(row, [row.cells[number] for number in shown], columns)
    yield "</table></div>"
    yield from (f'<p class="r">{html(remark)}</p>' for remark in grid.remarks)


def _row(row: Row, cells: list[Cell], columns: list[Column]) -> Iterator[str]:
    yield f"<tr>{''.join(_cell(cell, column) for cell, column in zip(cells, columns, strict=True))}</tr>"
    for detail in row.details:
        yield f'<tr class="t"><td colspan="{len(columns)}">{html(detail)}</td></tr>'


def _cell(cell: Cell, column: Column) -> str:
    if column.bar:
        share = min(max(cell.value, 0.0), 1.0) if isinstance(cell.value, int | float) else 0.0
        drawn = f'<div style="width:{share * 100:.1f}%"></div>' if share else ""
        return f'<td class="b">{drawn}</td>'
    if cell.heat is not None:
        ground, letters = tint(cell.heat)
        return f'<td class="n x" style="background:{ground};color:{letters}">{html(cell.text)}</td>'
    return f"<td{_classes('n' if column.right else '', _TONES.get(cell.tone, ''))}>{html(cell.text)}</td>"


def _classes(*names: str) -> str:
    """The attribute for those names that are not empty."""
    found = " ".join(filter(None, names))
    return f' class="{found}"' if found else ""
