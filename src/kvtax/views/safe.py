"""Text from files and command lines made safe to show: nothing in it can move a cursor, hide a word or open a link."""

from __future__ import annotations

MAXIMUM_CHARACTERS = 256


def safe(text: str, maximum: int = MAXIMUM_CHARACTERS) -> str:
    r"""One line of printable characters: what is not printable (controls, bidi marks, zero-width, surrogates) shows as its code.

    >>> print(safe("a\x1b[31mb"))
    a\x1b[31mb
    """
    if len(text) > maximum:
        text = text[: maximum - 3] + "..."
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _code(letter) for letter in text)


def _code(letter: str) -> str:
    number = ord(letter)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


_MARKDOWN = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]<>|#~"} | {"@": "@\u2060", "&": "&amp;"})


def markdown(text: str) -> str:
    """Text for a Markdown cell or line: its own punctuation stays visible and does nothing; nobody is mentioned."""
    return safe(text).translate(_MARKDOWN)


def csv_text(text: str) -> str:
    """A text cell that no spreadsheet takes for a formula."""
    text = safe(text, 2000)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def html(text: str) -> str:
    """Text for HTML, in an element or in a quoted attribute."""
    from html import escape

    return escape(safe(text, 2000), quote=True)
