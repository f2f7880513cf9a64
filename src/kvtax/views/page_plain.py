"""A page as `key: value` lines, for grep, awk and eyes: exact numbers, nothing folded or drawn."""

from __future__ import annotations

from collections.abc import Iterator

from kvtax.safe_text import safe
from kvtax.views.page import Cell, Facts, Grid, Page

_MOST_CHARACTERS = 2000


def page_plain(page: Page) -> str:
    """One line for each fact, row and notice."""
    return "".join(f"{safe(line, _MOST_CHARACTERS)}\n" for line in _lines(page))


def _lines(page: Page) -> Iterator[str]:
    for block in page.blocks:
        if isinstance(block, Facts):
            yield from (f"{fact.key}: {exact(Cell(fact.text, fact.value))}" for fact in block.facts)
        elif isinstance(block, Grid):
            yield from _rows(block)
    for notice in page.notices:
        yield f"notice {notice.code}: {notice.message}" + (f" ({notice.hint})" if notice.hint else "")


def _rows(grid: Grid) -> Iterator[str]:
    for row in grid.rows:
        cells = [(column, cell) for column, cell in zip(grid.columns, row.cells, strict=True) if column.key]
        figures = ", ".join(f"{column.key} {exact(cell)}" for column, cell in cells[1:] if exact(cell))
        name = exact(cells[0][1])
        yield f"{grid.key} {name}" + (f": {figures}" if figures else "")


def exact(cell: Cell) -> str:
    """The value of a cell as a program wants it; empty where it is not known."""
    if cell.value is None:
        return "" if cell.text == "-" else cell.text
    if isinstance(cell.value, bool):
        return "yes" if cell.value else "no"
    return str(cell.value)
