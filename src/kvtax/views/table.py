"""A budget as a table for a terminal or a pipe, drawn with rich."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvtax.units import format_gib, format_share
from kvtax.views.cards import HEADINGS, CardRow
from kvtax.views.notices import INFORMATIVE
from kvtax.views.rank_rows import RANK_HEADINGS
from kvtax.views.sheet import Part, Sheet

_VERDICT_STYLE = {"fits": "bold green", "over_budget": "bold yellow"}
_PART_STYLE = {
    "weights": "blue",
    "kv_pool": "green",
    "activation": "magenta",
    "cuda_graphs": "magenta",
    "runtime": "magenta",
}
_EIGHTHS = "\u258f\u258e\u258d\u258c\u258b\u258a\u2589"
_FULL = "\u2588"
_LABEL = 26
_CARD = 16
"""A longer name of a card is folded before a column goes [characters]."""
_CAN_GO = ("needed", "GiB", "tokens", "weights")
"""Columns of the table of cards that a narrow terminal can do without, the first to go first."""
_GIB = 9
_SHARE = 8


def table_text(sheet: Sheet, *, width: int, colour: bool, unicode: bool = True) -> str:
    """The table of one budget.

    Args:
        sheet: what it says.
        width: of a line [characters].
        colour: whether ANSI colours are used.
        unicode: whether block characters can be shown.
    """
    console, out = _console(width, colour)
    _print(console, sheet.title, "bold")
    _print(console, sheet.about_model, "dim")
    _print(console, sheet.about_engine, "dim")
    console.print()
    console.print(_parts_table(sheet, width, unicode))
    console.print()
    console.print(_figures_table(sheet))
    if sheet.ranks:
        console.print()
        console.print(_ranks_table(sheet))
    console.print()
    style = _VERDICT_STYLE.get(sheet.verdict, "bold red")
    verdict = _hanging()
    verdict.add_row(Text(sheet.word, style), sheet.sentence)
    console.print(verdict)
    if sheet.remedies:
        console.print()
        console.print(Text("What would help most", "bold"))
        console.print(_remedies_table(sheet))
    if sheet.prints:
        console.print()
        console.print(Text(f"What {sheet.printer}", "bold"))
        for line in sheet.prints:
            console.print(Padding(Text(line, "dim"), (0, 0, 0, 2)))
    _notices(console, sheet.notices)
    return _trimmed(out)


def _ranks_table(sheet: Sheet) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, heading in enumerate(RANK_HEADINGS):
        widest = max(len(heading), *(len(str(row[index])) for row in sheet.ranks))
        if index:
            table.add_column(heading, justify="right", no_wrap=True, min_width=widest)
        else:
            table.add_column(heading, overflow="fold")
    table.add_column("", no_wrap=True, min_width=len("tightest"))
    for *cells, tightest in sheet.ranks:
        table.add_row(*(Text(str(cell), "bold" if tightest else "") for cell in cells), "tightest" if tightest else "")
    return table


def _console(width: int, colour: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    return console, out


def _print(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style))


def _trimmed(out: io.StringIO) -> str:
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def bar(share: float, width: int, unicode: bool) -> str:
    """A bar of `share` of `width` characters; something for everything above nothing."""
    share = min(max(share, 0.0), 1.0)
    if not unicode:
        return "#" * (round(share * width) or (1 if share > 0.002 else 0))
    eighths = round(share * width * 8) or (1 if share > 0.002 else 0)
    return _FULL * (eighths // 8) + (_EIGHTHS[eighths % 8 - 1] if eighths % 8 else "")


def _parts_table(sheet: Sheet, width: int, unicode: bool) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True, min_width=_LABEL, max_width=_LABEL, overflow="crop")
    table.add_column("GiB", justify="right", no_wrap=True, min_width=_GIB)
    table.add_column("of card", justify="right", no_wrap=True, min_width=_SHARE)
    space = max(min(width - _LABEL - _GIB - _SHARE - 6, 60), 8)
    table.add_column("", no_wrap=True, width=space)
    for part in sheet.parts:
        table.add_row(*_part_cells(part, sheet, space, unicode))
    table.add_row(Text("card", "bold"), Text(format_gib(sheet.total_bytes), "bold"), Text("100.0 %", "bold"), "")
    return table


def _part_cells(part: Part, sheet: Sheet, space: int, unicode: bool) -> tuple[Text, Text, Text, Text]:
    share = part.bytes / sheet.total_bytes if sheet.total_bytes else 0.0
    tone = _PART_STYLE.get(part.key, "")
    if part.bytes < 0:
        tone = "red"
    dim = "dim" if part.level else ""
    return (
        Text("  " * part.level + part.label, dim),
        Text(format_gib(part.bytes), dim or ("red" if part.bytes < 0 else "")),
        Text(format_share(share), dim or ("red" if part.bytes < 0 else "")),
        Text("" if part.level else bar(share, space, unicode), tone),
    )


def _figures_table(sheet: Sheet) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=_LABEL, max_width=_LABEL, overflow="crop")
    table.add_column(justify="right", no_wrap=True, min_width=_GIB)
    table.add_column(overflow="fold")
    strong = sheet.concurrency
    for figure in sheet.figures:
        table.add_row(figure.label, figure.number, _with_remark(figure.unit, figure.remark))
    table.add_row()
    table.add_row(
        Text(strong.label, "bold"), Text(strong.number, "bold"), _with_remark(strong.unit, strong.remark, "bold")
    )
    return table


def _with_remark(unit: str, remark: str, style: str = "") -> Text:
    return Text.assemble((unit, style), *((("   " if unit else ""), (remark, "dim")) if remark else ()))


def _remedies_table(sheet: Sheet) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for remedy in sheet.remedies:
        table.add_row(
            Text("  " + remedy.flags, "bold"),
            Text(remedy.gives, "green" if remedy.fits else ""),
            Text(remedy.cost, "dim"),
        )
    return table


def _notices(console: Console, notices: Sequence[tuple[str, str, str]]) -> None:
    if not notices:
        return
    console.print()
    table = _hanging()
    for code, message, hint in notices:
        plain = "dim" if code in INFORMATIVE else ""
        text = Text.assemble((f"{message} ({hint})" if hint else message, plain), (f" [{code}]", "dim"))
        table.add_row(Text("note", plain or "yellow"), text)
    console.print(table)


def _hanging() -> Table:
    """A word, and lines of text that stay to the right of it."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


# ---- several cards ----


def cards_text(
    title: str, legend: str, rows: Sequence[CardRow], *, width: int, colour: bool, unicode: bool = True
) -> str:
    """One line for each card.

    Args:
        title: what is sized.
        legend: what the columns mean.
        rows: one per card.
        width: of a line [characters].
        colour: whether ANSI colours are used.
        unicode: whether block characters can be shown.
    """
    console, out = _console(width, colour)
    needs = {
        heading: max(map(len, column)) + 2
        for heading, *column in zip(
            ("card", *HEADINGS, "verdict"),
            ("card", *HEADINGS, "verdict"),
            *((row.gpu, *row.cells, row.word) for row in rows),
            strict=True,
        )
    }
    folded = needs["card"] - min(needs["card"], _CARD + 2)
    for heading in _CAN_GO:  # a narrow terminal gets fewer columns, never half a number
        if sum(needs.values()) - 2 - folded > width:
            del needs[heading]
    _print(console, title, "bold")
    _print(console, legend if "needed" in needs else legend.partition(";")[0], "dim")
    console.print()
    table = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("card", overflow="fold")
    for heading in HEADINGS:
        if heading in needs:
            table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    space = min(width - sum(needs.values()) - 2, 40)
    if space >= 8:
        table.add_column("weights, KV", no_wrap=True)
    for row in rows:
        cells = [
            Text(row.gpu),
            *(Text(cell) for heading, cell in zip(HEADINGS, row.cells, strict=True) if heading in needs),
            Text(row.word, _VERDICT_STYLE.get(row.verdict, "red")),
        ]
        table.add_row(*cells, *([_stacked(row, space, unicode)] if space >= 8 else []))
    console.print(table)
    _notices(console, [notice for row in rows for notice in row.notices])
    return _trimmed(out)


def _stacked(row: CardRow, width: int, unicode: bool) -> Text:
    """Weights and pool one after the other."""
    weights = min(round(row.weights_share * width), width)
    pool = max(min(round(row.pool_share * width), width - weights), 0)
    full, lighter = (_FULL, "\u2592") if unicode else ("#", "=")
    return Text.assemble((full * weights, "blue"), (lighter * pool, "green"))
