"""A page as Markdown: headings, lists and tables."""

from __future__ import annotations

from collections.abc import Iterator

from kvtax.views.page import Facts, Grid, Page
from kvtax.views.safe import markdown


def page_markdown(page: Page) -> str:
    """Facts as a list, each grid as a table, notices as a list."""
    text = "\n".join(_lines(page)).lstrip("\n")
    return f"{text}\n" if text else ""


def _lines(page: Page) -> Iterator[str]:
    if page.title:
        yield f"### {markdown(page.title)}"
    for block in page.blocks:
        if isinstance(block, Facts):
            yield ""
            if block.title:
                yield from (f"**{markdown(block.title)}**", "")
            yield from (f"- {markdown(fact.label)}: {markdown(fact.text)}" for fact in block.facts if fact.text)
        elif isinstance(block, Grid):
            yield ""
            yield from _table(block)
    if page.notices:
        yield ""
    for notice in page.notices:
        hint = f" ({markdown(notice.hint)})" if notice.hint else ""
        yield f"- {markdown(notice.message)}{hint} `{markdown(notice.code)}`"


def _table(grid: Grid) -> Iterator[str]:
    numbers = [number for number, column in enumerate(grid.columns) if not column.bar]
    columns = [grid.columns[number] for number in numbers]
    detailed = any(row.details for row in grid.rows)
    if columns[0].title != grid.title and grid.title:
        yield from (f"**{markdown(grid.title)}**", "")
    headings = [markdown(column.title) for column in columns] + ([""] if detailed else [])
    yield f"| {' | '.join(headings)} |"
    yield "|" + "".join("--:|" if column.right else ":--|" for column in columns) + (":--|" if detailed else "")
    for row in grid.rows:
        cells = [markdown(row.cells[number].text) for number in numbers]
        if detailed:
            cells.append(markdown("; ".join(row.details)))
        yield f"| {' | '.join(cells)} |"
    if grid.remarks:
        yield ""
    yield from (markdown(remark) for remark in grid.remarks)
