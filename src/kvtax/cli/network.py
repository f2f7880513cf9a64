"""What a command line says about requests, and the sign of life while one is waited for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

PATIENCE_SECONDS = 0.5
"""A wait shorter than this shows nothing."""


def settle_network(values: Mapping[str, Any]) -> None:
    """Take `--offline` as HF_HUB_OFFLINE=1, and show a spinner on a terminal where a wait grows long.

    Args:
        values: of the command.
    """
    from kvtax.sources.waiting import set_listener

    if values.get("offline"):
        os.environ["HF_HUB_OFFLINE"] = "1"
    terminal = sys.stderr is not None and sys.stderr.isatty()
    set_listener(_spin if terminal and not values.get("quiet") else None)


def _spin(what: str) -> Callable[[], None]:
    """Show a spinner with words on stderr, from half a second on until what is given back is called."""
    import threading

    over = threading.Event()

    def show() -> None:
        if over.wait(PATIENCE_SECONDS):
            return
        from rich.console import Console
        from rich.text import Text

        with Console(stderr=True).status(Text(f"{what} ...")):
            over.wait()

    thread = threading.Thread(target=show, name="kvtax-spinner", daemon=True)
    thread.start()

    def end() -> None:
        over.set()
        thread.join(timeout=2)

    return end
