"""Text made safe for each format that people read: its own punctuation stays visible and does nothing."""

from __future__ import annotations

from kvtax.safe_text import csv_text, safe

__all__ = ["csv_text", "html", "markdown"]

_MARKDOWN = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]<>|#~"} | {"@": "@\u2060", "&": "&amp;"})


def markdown(text: str) -> str:
    """Text for a Markdown cell or line: its own punctuation stays visible and does nothing; nobody is mentioned."""
    return safe(text).translate(_MARKDOWN)


def html(text: str) -> str:
    """Text for HTML, in an element or in a quoted attribute."""
    from html import escape

    return escape(safe(text, 2000), quote=True)
