"""A page as CSV: exact values, and text that no spreadsheet takes for a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from kvtax.views.page import Cell, Facts, Grid, Page, Value
from kvtax.views.safe import csv_text


def grid_csv(grid: Grid) -> str:
    """One table: a header and a row for each row."""
    numbers = [number for number, column in enumerate(grid.columns) if column.key]
    rows = [[_value(row.cells[number]) for number in numbers] for row in grid.rows]
    return _write([[grid.columns[number].key for number in numbers], *rows])


def page_csv(page: Page) -> str:
    """A page of several tables, one value to a row: section, name, field, value."""
    rows: list[Sequence[Value]] = [("section", "name", "field", "value")]
    for block in page.blocks:
        if isinstance(block, Facts):
            rows += [(block.key, fact.key, "", _value(Cell(fact.text, fact.value))) for fact in block.facts]
        elif isinstance(block, Grid):
            for row in block.rows:
                cells = [
                    (column.key, _value(cell))
                    for column, cell in zip(block.columns, row.cells, strict=True)
                    if column.key
                ]
                rows += [(block.key, cells[0][1], key, value) for key, value in cells[1:] if value != ""]
    rows += [("notice", notice.code, "", notice.message) for notice in page.notices]
    return _write(rows)


def _value(cell: Cell) -> Value:
    if cell.value is None:
        return "" if cell.text == "-" else cell.text
    return cell.value


def _write(rows: Iterable[Sequence[Value]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        writer.writerow([csv_text(value) if isinstance(value, str) else value for value in row])
    return out.getvalue()
