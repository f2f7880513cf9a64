"""Write a page in the format that was asked for: what inspect, models and gpus share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvtax.cli.options import FORMAT_OPTIONS
from kvtax.cli.outlet import Look
from kvtax.views.page import Grid, Page

PAGE_FORMATS = ("table", "plain", "json", "markdown", "csv", "html")
PAGE_OPTIONS = FORMAT_OPTIONS


def drawn(
    look: Look,
    page: Callable[[], Page],
    document: Callable[[], dict[str, Any]],
    csv_table: Grid | None = None,
) -> str:
    """The text of an answer.

    Args:
        look: format, width and colours.
        page: makes the page, for people.
        document: makes the JSON document.
        csv_table: the one table that CSV has; None: every value of the page in a row of its own.
    """
    if look.format == "json":
        from kvtax.views.json_text import json_text

        return json_text(document())
    if look.format == "csv":
        from kvtax.views.page_csv import grid_csv, page_csv

        return page_csv(page()) if csv_table is None else grid_csv(csv_table)
    if look.format == "markdown":
        from kvtax.views.page_markdown import page_markdown

        return page_markdown(page())
    if look.format == "html":
        from kvtax.views.page_html import page_html

        return page_html(page())
    if look.format == "plain":
        from kvtax.views.page_plain import page_plain

        return page_plain(page())
    from kvtax.views.page_text import Style, page_text

    return page_text(page(), Style(look.width, look.colour, look.unicode))


def nothing_found(what: str, query: str, closest: Sequence[str]) -> str:
    """One sentence for a search without a result."""
    hint = f"; the closest are {', '.join(closest)}" if closest else ""
    return f"no {what} has {query[:96]!r} in its name{hint}"
