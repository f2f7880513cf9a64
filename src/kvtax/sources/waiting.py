"""Who is told while the network is waited for: sources print nothing themselves."""

from __future__ import annotations

from collections.abc import Callable

Listener = Callable[[str], Callable[[], None]]
"""Takes what is waited for when a wait begins, gives what is to be called when it is over."""
_listeners: list[Listener] = []


def set_listener(listener: Listener | None) -> None:
    """Tell `listener` of every wait; None: nobody."""
    _listeners[:] = [] if listener is None else [listener]


class waiting:  # noqa: N801  read as a sentence: with waiting("for the hub")
    """Around something that may take a while.

    Args:
        what: in words.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._over: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        self._over = [listener(self._what) for listener in _listeners]

    def __exit__(self, *_: object) -> None:
        for over in self._over:
            over()
