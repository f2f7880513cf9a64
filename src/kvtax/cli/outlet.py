"""Where a result goes and how it looks: the format, the colours, the width, and a file written whole or not at all.

A command does four things with this module:

    outlet = open_outlet(values)                        # before the work: a file that cannot be written is said at once
    look = choose_look(values, outlet, FORMATS)
    text = ...                                          # a renderer of `views`
    outlet.write(text)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvtax.cli.exits import UsageError
from kvtax.whole_file import WholeFile

WIDTH_WITHOUT_TERMINAL = 100
_LEAST_WIDTH = 60
"""A narrower terminal folds the lines of this width: columns of one letter each are worse."""
_SPELLINGS = {"md": "markdown", "text": "plain"}
_DRAWING = "\u2588\u258f\u258c"


class Look(NamedTuple):
    """How a result is shown.

    Args:
        format: table, plain, json, markdown, csv or html.
        colour: whether ANSI colours are used.
        width: of a line [characters].
        unicode: whether block characters can be shown.
    """

    format: str
    colour: bool
    width: int
    unicode: bool


class Outlet:
    """Standard output, or a file that is replaced once the whole result is there.

    Args:
        path: of the file; None or `-` for standard output.

    Raises:
        InputError: the file cannot be written (`cannot-write`).
    """

    def __init__(self, path: str | None) -> None:
        self._file = None if path in (None, "-") else WholeFile(str(path))

    @property
    def is_file(self) -> bool:
        """Whether it is a file."""
        return self._file is not None

    @property
    def is_terminal(self) -> bool:
        """Whether a person sees it at once."""
        return self._file is None and _is_terminal(sys.stdout)

    def write(self, text: str) -> None:
        """The whole result.

        Raises:
            InputError: the file cannot be written.
        """
        if self._file is None:
            sys.stdout.write(text)
        else:
            self._file.write(text)

    def close(self) -> None:
        """Leave nothing half-written behind."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Outlet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_outlet(values: Mapping[str, Any]) -> Outlet:
    """The outlet that --output names."""
    return Outlet(values.get("output"))


def choose_format(values: Mapping[str, Any], formats: Sequence[str]) -> str:
    """The format that --format or --json names; the first of `formats` where neither does.

    Raises:
        UsageError: an unknown format, or two different ones.
    """
    asked = values.get("format")
    name = _SPELLINGS.get(asked, asked) if asked else None
    if name is not None and name not in formats:
        raise UsageError(f"there is no format {name[:64]!r}", hint="formats: " + ", ".join(formats))
    if values.get("json"):
        if name not in (None, "json"):
            raise UsageError(f"--json and --format {name} exclude each other")
        return "json"
    return name or formats[0]


def choose_look(values: Mapping[str, Any], outlet: Outlet, formats: Sequence[str]) -> Look:
    """Format, colours and width for this run.

    --color comes first, then NO_COLOR and FORCE_COLOR (both count when not empty), then whether a terminal is there.
    Width: that of the terminal, else COLUMNS, else 100.

    Raises:
        UsageError: an unknown format or colour mode.
    """
    name = choose_format(values, formats)
    when = values.get("color") or "auto"
    if when not in ("auto", "always", "never"):
        raise UsageError(f"--color is auto, always or never, not {when[:64]!r}")
    terminal = outlet.is_terminal and os.environ.get("TERM") != "dumb"
    if when == "auto":
        environment = os.environ.get
        colour = False if environment("NO_COLOR") else True if environment("FORCE_COLOR") else terminal
    else:
        colour = when == "always"
    return Look(name, colour, _width(outlet), outlet.is_file or _shows_blocks(sys.stdout))


def _width(outlet: Outlet) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and len(columns) < 6 and int(columns) > 0:
        return max(int(columns), _LEAST_WIDTH)
    if outlet.is_terminal:
        try:
            return max(os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH_WITHOUT_TERMINAL, _LEAST_WIDTH)
        except (OSError, ValueError):
            pass
    return WIDTH_WITHOUT_TERMINAL


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def _shows_blocks(stream: Any) -> bool:
    try:
        _DRAWING.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
