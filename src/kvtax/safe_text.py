"""Text from files and strangers made safe to show: nothing in it can move a cursor, hide a word or open a link."""

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


def csv_text(text: str) -> str:
    """A text cell that no spreadsheet takes for a formula."""
    text = safe(text, 2000)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _code(letter: str) -> str:
    number = ord(letter)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
