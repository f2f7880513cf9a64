"""A page: facts, grids and a plot, in words and formatted numbers. What inspect, models and gpus show; the formats only draw it.

Every cell keeps its number beside its text, so that CSV has the exact value and people have a short one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvtax.terms import Notice

Value = int | float | str | bool | None


class Cell(NamedTuple):
    """One cell: what people read, the value behind it (None: the text itself), and a tone (`dim`, `strong`, `good`, `bad`)."""

    text: str
    value: Value = None
    tone: str = ""


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


class Plot(NamedTuple):
    """Curves over one axis of lengths, both axes logarithmic.

    Args:
        title: what is plotted.
        x: of each point, rising [tokens].
        x_labels: one for each point.
        curves: values of each curve, the main one first; the others are dotted [bytes].
        start_label: the least value.
        end_labels: the last value of each curve.
    """

    title: str
    x: tuple[int, ...]
    x_labels: tuple[str, ...]
    curves: tuple[tuple[int, ...], ...]
    start_label: str
    end_labels: tuple[str, ...]


class Facts(NamedTuple):
    """A list of labelled lines."""

    key: str
    title: str
    facts: tuple[Fact, ...]


class Page(NamedTuple):
    """A whole answer."""

    title: str
    blocks: tuple[Facts | Grid | Plot, ...]
    notices: tuple[Notice, ...] = ()


def number_cell(text: str, value: Value, tone: str = "") -> Cell:
    """A cell of a number; a dash where it is not known."""
    return Cell("-", None, "dim") if value is None else Cell(text, value, tone)


def grids(page: Page) -> Sequence[Grid]:
    """The tables of a page."""
    return [block for block in page.blocks if isinstance(block, Grid)]
