"""How far a long run is: a bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

PATIENCE_SECONDS = 0.5
"""A run shorter than this shows nothing."""


class Progress:
    """A bar with rate and time left on stderr; silent where that is no terminal, or under --quiet.

    Args:
        values: of the command.
        total: of what is done; None where it is not known.
        done: at the start.
    """

    def __init__(self, values: Mapping[str, Any], total: int | None, done: int = 0) -> None:
        terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = terminal and not values.get("quiet")
        colour = values.get("color") or ("never" if os.environ.get("NO_COLOR") else "auto")
        self._plain = colour == "never"
        self._total, self._first, self._done = total, done, done
        self._start = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def advance(self, count: int) -> None:
        """So many more are done."""
        self._done += count
        if not self._shown:
            return
        if self._bar is None:
            if time.monotonic() - self._start < PATIENCE_SECONDS:
                return
            self._open()
        self._bar.update(self._task, completed=self._done, rate=f"{self._rate():,.0f}/s")

    def _rate(self) -> float:
        return (self._done - self._first) / max(time.monotonic() - self._start, 1e-9)

    def _open(self) -> None:
        from rich import progress
        from rich.console import Console

        columns: list[progress.ProgressColumn] = [
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[rate]}"),
        ]
        if self._total is not None:
            columns = [
                progress.BarColumn(None),
                progress.TaskProgressColumn(),
                *columns,
                progress.TimeRemainingColumn(),
            ]
        # that it is a terminal is known; rich would take an empty FORCE_COLOR for a no
        console = Console(stderr=True, no_color=self._plain, force_terminal=True)
        self._bar = progress.Progress(*columns, console=console, transient=True, expand=True)
        self._task = self._bar.add_task("", total=self._total, completed=self._done, rate="")
        self._bar.start()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
