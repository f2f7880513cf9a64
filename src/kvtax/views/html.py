"""A budget as HTML: a fragment for a notebook, or a page that needs nothing from elsewhere and runs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvtax.terms import Notice
from kvtax.units import format_gib, format_share
from kvtax.views.cards import HEADINGS, CardRow
from kvtax.views.rank_rows import RANK_HEADINGS
from kvtax.views.safe import html
from kvtax.views.sheet import Sheet, make_sheet

if TYPE_CHECKING:
    from kvtax.budgets import Budget

_COLOURS = {
    "weights": "#4477aa",
    "kv_pool": "#228833",
    "activation": "#aa3377",
    "cuda_graphs": "#aa3377",
    "runtime": "#aa3377",
}
_VERDICTS = {"fits": "good", "over_budget": "short"}
STYLE = (
    ".kvtax{font:14px/1.4 system-ui,sans-serif;max-width:56em}.kvtax table{border-collapse:collapse;margin:.6em 0}"
    ".kvtax td,.kvtax th{padding:.1em .8em .1em 0;text-align:left;border:0;background:none}.kvtax .n{text-align:right;"
    "font-variant-numeric:tabular-nums}.kvtax .s td{opacity:.7}.kvtax .b{min-width:6em;width:16em}.kvtax .b div{height:.8em}"
    ".kvtax th.n{white-space:nowrap}.kvtax .r{opacity:.7}.kvtax pre{font-size:12px;overflow-x:auto}.kvtax .w{overflow-x:auto}"
    ".kvtax .good{color:#1a7f37}.kvtax .short{color:#9a6700}.kvtax .bad{color:#cf222e}@media(prefers-color-scheme:dark){"
    ".kvtax .good{color:#3fb950}.kvtax .short{color:#d29922}.kvtax .bad{color:#ff7b72}}"
)
"""What a fragment needs, in a `style` element."""


def budget_to_html(budget: Budget) -> str:
    """The fragment that a notebook shows."""
    return sheet_to_html(make_sheet(budget))


def sheet_to_html(sheet: Sheet) -> str:
    """A fragment."""
    return f'<div class="kvtax"><style>{STYLE}</style>' + "".join(_pieces(sheet)) + "</div>\n"


def html_page(title: str, fragment: str, explanation: str = "") -> str:
    """A whole page around a fragment, with nothing loaded and nothing run."""
    more = f'<div class="kvtax"><pre>{_lines(explanation)}</pre></div>' if explanation else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width"><style>:root{color-scheme:light dark}</style>'
        f"<title>{html(title)}</title></head>\n<body>{fragment}{more}</body></html>\n"
    )


def _lines(text: str) -> str:
    return "\n".join(map(html, text.splitlines()))


def _pieces(sheet: Sheet) -> Iterator[str]:
    yield f"<h3>{html(sheet.title)}</h3><p>{html(sheet.about_model)}; {html(sheet.about_engine)}</p>"
    yield f'<p><b class="{_VERDICTS.get(sheet.verdict, "bad")}">{html(sheet.word)}</b> {html(sheet.sentence)}</p>'
    yield '<table><tr><th></th><th class="n">GiB</th><th class="n">of card</th><th></th></tr>'
    for part in sheet.parts:
        share = part.bytes / max(sheet.total_bytes, 1)
        width = min(max(share, 0.0), 1.0) * 100
        drawn = (
            ""
            if part.level
            else f'<div style="width:{width:.1f}%;background:{_COLOURS.get(part.key, "#bbbbbb")}"></div>'
        )
        indent = "&nbsp;&nbsp;" if part.level else ""
        yield (
            f'<tr{" class=s" if part.level else ""}><td>{indent}{html(part.label)}</td><td class="n">{format_gib(part.bytes)}</td>'
            f'<td class="n">{format_share(share)}</td><td class="b">{drawn}</td></tr>'
        )
    yield f'<tr><th>card</th><th class="n">{format_gib(sheet.total_bytes)}</th><th class="n">{format_share(1.0)}</th><th></th></tr></table><table>'
    for figure in (*sheet.figures, sheet.concurrency):
        tag = "th" if figure is sheet.concurrency else "td"
        remark = f' <span class="r">{html(figure.remark)}</span>' if figure.remark else ""
        label = figure.label.capitalize() if tag == "th" else figure.label
        yield f'<tr><{tag}>{html(label)}</{tag}><{tag} class="n">{html(figure.number)}</{tag}><{tag}>{html(figure.unit)}{remark}</{tag}></tr>'
    yield "</table>"
    yield from _ranks_and_prints(sheet)
    if sheet.remedies:
        rows = (
            f"<li><code>{html(remedy.flags)}</code>: {html(remedy.gives)} ({html(remedy.cost)})</li>"
            for remedy in sheet.remedies
        )
        yield "<p>What would help most:</p><ol>" + "".join(rows) + "</ol>"
    yield notices_to_html(sheet.notices)


def _ranks_and_prints(sheet: Sheet) -> Iterator[str]:
    if sheet.ranks:
        heads = "".join(f'<th class="n">{html(heading)}</th>' for heading in RANK_HEADINGS[1:])
        yield f"<table><tr><th></th>{heads}<th></th></tr>"
        for name, *cells, tightest in sheet.ranks:
            row = "".join(f'<td class="n">{html(str(cell))}</td>' for cell in cells)
            yield f"<tr><td>{html(name)}</td>{row}<td>{'tightest' if tightest else ''}</td></tr>"
        yield "</table>"
    if sheet.prints:
        lines = "".join(f"<li><code>{html(line)}</code></li>" for line in sheet.prints)
        yield f"<p>What {html(sheet.printer)}:</p><ul>{lines}</ul>"


def notices_to_html(notices: Sequence[Notice]) -> str:
    """Notices as a list; nothing where there are none."""
    rows = (
        f"<li>{html(notice.message)}{' (' + html(notice.hint) + ')' if notice.hint else ''} <code>{html(notice.code)}</code></li>"
        for notice in notices
    )
    return f'<ul class="r">{"".join(rows)}</ul>' if notices else ""


def html_cards(title: str, rows: Sequence[CardRow]) -> str:
    """A fragment with one row for each card."""
    heads = "".join(f'<th class="n">{html(heading)}</th>' for heading in HEADINGS)
    body = []
    for row in rows:
        cells = "".join(f'<td class="n">{html(cell)}</td>' for cell in row.cells)
        tone = _VERDICTS.get(row.verdict, "bad")
        body.append(f'<tr><td>{html(row.gpu)}</td>{cells}<td class="{tone}">{html(row.word)}</td></tr>')
    notices = notices_to_html([notice for row in rows for notice in row.notices])
    table = f"<div class=w><table><tr><th>card</th>{heads}<th>verdict</th></tr>{''.join(body)}</table>"
    return f'<div class="kvtax"><style>{STYLE}</style><h3>{html(title)}</h3>{table}{notices}</div>\n'
