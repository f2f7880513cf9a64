"""A budget as Markdown, for a pull request's comment or a step summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvtax.terms import Notice
from kvtax.units import format_gib, format_share
from kvtax.views.cards import HEADINGS, CardRow
from kvtax.views.rank_rows import RANK_HEADINGS
from kvtax.views.safe import markdown
from kvtax.views.sheet import Sheet


def markdown_text(sheet: Sheet) -> str:
    """Headline, verdict, the division of the card, the figures, remedies and notices."""
    return "\n".join(_lines(sheet)) + "\n"


def _lines(sheet: Sheet) -> Iterator[str]:
    yield f"### {markdown(sheet.title)}"
    yield ""
    yield f"**{sheet.word}**: {markdown(sheet.sentence)}"
    yield ""
    yield f"{markdown(sheet.about_model)}; {markdown(sheet.about_engine)}"
    yield ""
    yield "| | GiB | of card |"
    yield "|:--|--:|--:|"
    for part in sheet.parts:
        label = f"&nbsp;&nbsp;{markdown(part.label)}" if part.level else f"**{markdown(part.label)}**"
        yield f"| {label} | {format_gib(part.bytes)} | {format_share(part.bytes / max(sheet.total_bytes, 1))} |"
    yield f"| **card** | {format_gib(sheet.total_bytes)} | {format_share(1.0)} |"
    yield ""
    yield "| | | |"
    yield "|:--|--:|:--|"
    strong = sheet.concurrency
    yield f"| **{strong.label.capitalize()}** | **{strong.number}** | {markdown(_after(strong.unit, strong.remark))} |"
    for figure in sheet.figures:
        number, unit = (f"{figure.number} %", "") if figure.unit == "%" else (figure.number, figure.unit)
        yield f"| {markdown(figure.label)} | {markdown(number)} | {markdown(_after(unit, figure.remark))} |"
    if sheet.ranks:
        yield ""
        yield f"| {' | '.join(RANK_HEADINGS)} |"
        yield "|:--|" + "--:|" * (len(RANK_HEADINGS) - 1)
        for *cells, tightest in sheet.ranks:
            cells[0] = f"{cells[0]} (tightest)" if tightest else cells[0]
            yield f"| {' | '.join(markdown(str(cell)) for cell in cells)} |"
    if sheet.prints:
        yield ""
        yield f"What {markdown(sheet.printer)}:"
        yield ""
        yield from (f"- {markdown(line)}" for line in sheet.prints)
    if sheet.remedies:
        yield ""
        yield "What would help most:"
        yield ""
        for place, remedy in enumerate(sheet.remedies, 1):
            yield f"{place}. `{remedy.flags.replace('`', '')}`: {markdown(remedy.gives)} ({markdown(remedy.cost)})"
    yield from _notices(sheet.notices)


def _after(unit: str, remark: str) -> str:
    return ", ".join(text for text in (unit, remark) if text)


def _notices(notices: Sequence[Notice]) -> Iterator[str]:
    if notices:
        yield ""
    for notice in notices:
        hint = f" ({markdown(notice.hint)})" if notice.hint else ""
        yield f"- {markdown(notice.message)}{hint} `{notice.code}`"


def markdown_cards(title: str, rows: Sequence[CardRow]) -> str:
    """A table with one row for each card."""
    lines = [
        f"### {markdown(title)}",
        "",
        f"| card | {' | '.join(HEADINGS)} | verdict |",
        "|:--|" + "--:|" * len(HEADINGS) + ":--|",
    ]
    for row in rows:
        cells = " | ".join(markdown(cell) for cell in row.cells)
        lines.append(f"| {markdown(row.gpu)} | {cells} | {markdown(row.word)} |")
    lines += _notices([notice for row in rows for notice in row.notices])
    return "\n".join(lines) + "\n"
