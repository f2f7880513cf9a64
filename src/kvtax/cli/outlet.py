"""Where a result goes and how it looks: the format, the colours, the width, and a file written whole or not at all.

A command does four things with this module:

    outlet = open_outlet(values)                        # before the work: a file that cannot be written is said at once
    look = choose_look(values, outlet, FORMATS)
    text = ...                                          # a renderer of `views`
    outlet.write(text)
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvtax.cli.exits import UsageError
from kvtax.errors import InputError

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
        self._shown = path or ""
        try:
            self.path = None if path in (None, "-") else os.path.realpath(os.path.expanduser(str(path)))
        except (OSError, ValueError) as error:
            raise self._cannot(error) from None
        self._temporary: str | None = None
        if self.path is not None:
            self._check(self.path)

    def _check(self, path: str) -> None:
        try:
            mode = os.stat(path).st_mode if os.path.exists(path) else None
            if mode is not None and stat.S_ISDIR(mode):
                raise InputError("is a directory", code="cannot-write", where=self._shown)
            if mode is not None and not stat.S_ISREG(mode):
                return  # a pipe or a device is written to as it is
            if mode is not None and not os.access(path, os.W_OK):
                raise InputError("may not be written", code="cannot-write", where=self._shown)
            folder, name = os.path.split(path)
            self._temporary = os.path.join(folder, f".{name[:64]}.{os.urandom(6).hex()}.tmp")
            os.close(os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            if mode is not None:
                os.chmod(self._temporary, stat.S_IMODE(mode))
        except (OSError, ValueError) as error:
            self._temporary = None
            raise self._cannot(error) from None

    def _cannot(self, error: Exception) -> InputError:
        reason = getattr(error, "strerror", None) or "not a path"
        return InputError(f"cannot be written: {reason}", code="cannot-write", where=self._shown)

    @property
    def is_terminal(self) -> bool:
        """Whether a person sees it at once."""
        return self.path is None and _is_terminal(sys.stdout)

    def write(self, text: str) -> None:
        """The whole result.

        Raises:
            InputError: the file cannot be written.
        """
        if self.path is None:
            sys.stdout.write(text)
            return
        try:
            with open(
                self._temporary or self.path, "w", encoding="utf-8", errors="backslashreplace", newline="\n"
            ) as file:
                file.write(text)
            if self._temporary is not None:
                os.replace(self._temporary, self.path)
                self._temporary = None
        except OSError as error:
            raise self._cannot(error) from None

    def close(self) -> None:
        """Leave nothing half-written behind."""
        if self._temporary is not None:
            import contextlib

            with contextlib.suppress(OSError):
                os.unlink(self._temporary)
            self._temporary = None

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
    return Look(name, colour, _width(outlet), outlet.path is not None or _shows_blocks(sys.stdout))


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
