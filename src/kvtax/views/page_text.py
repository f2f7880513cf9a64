"""A page as text for a terminal or a pipe: aligned columns, no boxes; colours, bars and curves where they can be shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvtax.safe_text import safe
from kvtax.terms import Notice
from kvtax.views.page import Block, Cell, Column, Facts, Grid, Page, Row

_ANSI = {
    "strong": "1", "dim": "2", "good": "32", "bad": "31", "note": "33", "bar": "34", "curve": "32",
    "curve0": "34", "curve1": "33", "curve2": "32", "curve3": "35", "curve4": "36", "curve5": "31",
    "weights": "34", "activation": "35", "cuda_graph": "35", "runtime": "35", "kv_pool": "32", "unallocated": "2",
}  # fmt: skip
_SHADES = " \u2591\u2592\u2593\u2588"
_EIGHTHS = "\u258f\u258e\u258d\u258c\u258b\u258a\u2589"
_GAP = "  "
_INDENT = "     "
_LEAST_FOLD, _LEAST_BAR, _MOST_BAR = 16, 8, 36
_MOST_CHARACTERS = 2000
_UNLIMITED = 1_000_000
_MARKS = "/._-"


class Style(NamedTuple):
    """How text may look: characters of a line, colours, block characters, and whether anything is drawn at all."""

    width: int = 100
    colour: bool = False
    unicode: bool = True
    drawings: bool = True

    def paint(self, text: str, tone: str) -> str:
        """The text in the colour of a tone."""
        shown = text.rstrip()
        if not (self.colour and shown and tone in _ANSI):
            return text
        return f"\x1b[{_ANSI[tone]}m{shown}\x1b[0m{text[len(shown) :]}"

    def tint(self, text: str, heat: float) -> str:
        """The text on the colour of a heat map."""
        from kvtax.views.colours import TINT_NUMBERS, TINTS_UNDER_LIGHT_TEXT

        number = min(int(heat * len(TINT_NUMBERS)), len(TINT_NUMBERS) - 1)
        letters = 231 if number < TINTS_UNDER_LIGHT_TEXT else 16
        return f"\x1b[38;5;{letters};48;5;{TINT_NUMBERS[number]}m{text}\x1b[0m"


PLAIN = Style(_UNLIMITED, colour=False, unicode=False, drawings=False)
"""For other programs and for reading aloud: nothing folded, nothing drawn."""


def page_text(page: Page, style: Style) -> str:
    """The whole page.

    Args:
        page: what is shown.
        style: how it may look.
    """
    lines = [style.paint(line, "strong") for line in fold(safe(page.title), style.width)] if page.title else []
    for block in page.blocks:
        drawn = list(_block(block, style))
        if drawn and lines and not (isinstance(block, Facts) and not block.title):
            lines.append("")
        lines += drawn
    if page.notices and lines:
        lines.append("")
    for notice in page.notices:
        lines += _notice(notice, style)
    text = "".join(line.rstrip() + "\n" for line in lines)
    return text if style.unicode else text.encode("ascii", "backslashreplace").decode("ascii")


def _block(block: Block, style: Style) -> Iterable[str]:
    if isinstance(block, Facts):
        return _facts(block, style)
    if isinstance(block, Grid):
        return grid_lines(block, style)
    if not style.drawings:
        return ()
    from kvtax.views.chart_text import chart_lines

    return chart_lines(block, style)


# ---- facts and notices ----


def _facts(block: Facts, style: Style) -> Iterable[str]:
    if block.title:
        yield style.paint(safe(block.title), "strong")
    shown = [fact for fact in block.facts if fact.text]
    label_width = max((len(fact.label) for fact in shown), default=0)
    for fact in shown:
        folded = fold(safe(fact.text, _MOST_CHARACTERS), style.width - label_width - 2)
        for number, line in enumerate(folded):
            label = fact.label if number == 0 else ""
            yield style.paint(label.ljust(label_width), "dim") + _GAP + line


def _notice(notice: Notice, style: Style) -> Iterable[str]:
    hint = f" ({notice.hint})" if notice.hint else ""
    lines = fold(safe(f"note {notice.message}{hint} [{notice.code}]", _MOST_CHARACTERS), style.width, "     ")
    return [style.paint("note", "note") + lines[0][4:], *lines[1:]]


# ---- grids ----


def grid_lines(grid: Grid, style: Style) -> Iterable[str]:
    """A table as lines.

    Args:
        grid: what is shown.
        style: how it may look.
    """
    shown = [number for number in range(len(grid.columns)) if _is_shown(grid, number, style)]
    columns = [grid.columns[number]._replace(title=safe(grid.columns[number].title)) for number in shown]
    rows = [(row, [_shown_cell(row.cells[number], style) for number in shown]) for row in grid.rows]
    widths = _widths(columns, [cells for _, cells in rows], style.width)
    title = safe(grid.title)
    if title and columns[0].title != title:
        yield style.paint(title, "strong")
    heading = [_aligned(column.title, column, width) for column, width in zip(columns, widths, strict=True)]
    if columns[0].title == title:
        heading[0] = style.paint(heading[0], "strong")
    if any(column.title for column in columns):
        yield heading[0] + "".join(_GAP + style.paint(text, "dim") for text in heading[1:])
    for row, cells in rows:
        yield from _row(row, cells, columns, widths, style)
    for remark in grid.remarks:
        for line in fold(safe(remark, _MOST_CHARACTERS), style.width):
            yield style.paint(line, "dim")


def _is_shown(grid: Grid, number: int, style: Style) -> bool:
    """Whether a column has room, and something to show."""
    column = grid.columns[number]
    if style.width < column.from_width or (column.bar and not style.drawings):
        return False
    return number == 0 or column.bar or any(row.cells[number].text for row in grid.rows)


def _shown_cell(cell: Cell, style: Style) -> Cell:
    """A cell made safe; without colour, a shade beside the number says what the tint would."""
    text = safe(cell.text, _MOST_CHARACTERS)
    if cell.heat is not None and style.drawings and style.unicode and not style.colour:
        text += " " + _SHADES[min(int(cell.heat * len(_SHADES)), len(_SHADES) - 1)]
    return cell._replace(text=text)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> list[int]:
    """As wide as each column needs; columns that may fold give way, and bars take what is left."""
    widths = [
        0 if column.bar else max([len(column.title), column.least, *(len(cells[number].text) for cells in rows)])
        for number, column in enumerate(columns)
    ]
    bars = [number for number, column in enumerate(columns) if column.bar]
    room = width - len(_GAP) * (len(columns) - 1) - sum(widths)
    for number in bars:
        widths[number] = min(room, _MOST_BAR) if room >= _LEAST_BAR else 0
        room -= widths[number]
    for number in sorted((n for n, column in enumerate(columns) if column.fold), key=lambda n: -widths[n]):
        if room < 0:
            narrower = max(min(widths[number], _LEAST_FOLD), widths[number] + room)
            room += widths[number] - narrower
            widths[number] = narrower
    return widths


def _row(
    row: Row, cells: Sequence[Cell], columns: Sequence[Column], widths: Sequence[int], style: Style
) -> Iterable[str]:
    folded = [
        _bar(cell, width, style)
        if column.bar
        else fold(cell.text, width, "  " if column is columns[0] else "")
        if column.fold
        else [cell.text]
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    for number in range(max(map(len, folded))):
        parts = []
        for texts, cell, column, width in zip(folded, cells, columns, widths, strict=True):
            text = _aligned(texts[number] if number < len(texts) else "", column, width)
            if cell.heat is not None and style.colour and number == 0:
                parts.append(style.tint(text, cell.heat))
            else:
                parts.append(style.paint(text, "bar" if column.bar else cell.tone))
        yield _GAP.join(parts)
    for detail in row.details:
        for line in fold(safe(detail, _MOST_CHARACTERS), style.width - len(_INDENT)):
            yield style.paint(_INDENT + line, "dim")


def _aligned(text: str, column: Column, width: int) -> str:
    return text.rjust(width) if column.right else text.ljust(width)


def _bar(cell: Cell, width: int, style: Style) -> list[str]:
    share = cell.value if isinstance(cell.value, (int, float)) else 0
    return [bar(share, width, style.unicode)] if width else [""]


def bar(share: float, width: int, unicode: bool) -> str:
    """A bar of `share` of `width` characters; something for everything that is seen.

    >>> bar(0.5, 4, unicode=False)
    '##'
    """
    share = min(max(share, 0.0), 1.0)
    if not unicode:
        return "#" * (round(share * width) or (1 if share > 0.002 else 0))
    eighths = round(share * width * 8) or (1 if share > 0.002 else 0)
    return "\u2588" * (eighths // 8) + (_EIGHTHS[eighths % 8 - 1] if eighths % 8 else "")


def fold(text: str, width: int, indent: str = "") -> list[str]:
    """Text in lines of at most `width` characters: sentences broken at spaces, names after their punctuation.

    >>> fold("a model-name", 8)
    ['a model-', 'name']
    >>> fold("model.layers.weight", 14)
    ['model.layers.', 'weight']
    """
    if len(text) <= width:
        return [text]
    width = max(width, 8)
    if " " in text:
        from textwrap import wrap

        return wrap(text, width, subsequent_indent=indent) or [""]
    lines = []
    while len(text) > width:
        end = max(text.rfind(mark, 1, width) for mark in _MARKS) + 1
        end = end if end > width // 3 else width
        lines.append(text[:end])
        text = indent + text[end:]
    return [*lines, text]
