"""A page: facts, grids and charts, in words and formatted numbers. What inspect, models and gpus show; the formats only draw it.

Every cell keeps its number beside its text, so that CSV has the exact value and people have a short one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvtax.terms import Notice
from kvtax.views.charts import Bars, Curves, HeatMap

Value = int | float | str | bool | None


class Cell(NamedTuple):
    """One cell.

    Args:
        text: what people read.
        value: behind it; None: the text itself.
        tone: `dim`, `strong`, `good`, `bad` or none.
        heat: how strongly a cell of a heat map is tinted, from 0 to 1; None: not at all.
    """

    text: str
    value: Value = None
    tone: str = ""
    heat: float | None = None


class Column(NamedTuple):
    """One column.

    Args:
        title: heading for people.
        key: heading for programs; empty for a column that they do not get.
        right: numbers stand at the right.
        fold: long text goes on in the next line; other columns are as wide as they need to be.
        bar: the value of a cell is a share from 0 to 1, drawn as a bar where there is room.
        from_width: a narrower line leaves the column out [characters].
        least: no narrower than this, so that tables below each other line up [characters].
    """

    title: str
    key: str = ""
    right: bool = False
    fold: bool = False
    bar: bool = False
    from_width: int = 0
    least: int = 0


class Row(NamedTuple):
    """One row; `details` are lines below it, over all columns."""

    cells: tuple[Cell, ...]
    details: tuple[str, ...] = ()
    key: str = ""


class Grid(NamedTuple):
    """A table with a heading, and remarks below it; `key` names it for programs."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    remarks: tuple[str, ...] = ()


class Fact(NamedTuple):
    """A labelled line; one without text is for programs only."""

    key: str
    label: str
    text: str
    value: Value = None


class Facts(NamedTuple):
    """A list of labelled lines."""

    key: str
    title: str
    facts: tuple[Fact, ...]


Block = Facts | Grid | Curves | Bars | HeatMap


class Page(NamedTuple):
    """A whole answer."""

    title: str
    blocks: tuple[Block, ...]
    notices: tuple[Notice, ...] = ()


def number_cell(text: str, value: Value, tone: str = "") -> Cell:
    """A cell of a number; a dash where it is not known."""
    return Cell("-", None, "dim") if value is None else Cell(text, value, tone)


def grids(page: Page) -> Sequence[Grid]:
    """The tables of a page."""
    return [block for block in page.blocks if isinstance(block, Grid)]
