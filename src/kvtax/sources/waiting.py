"""Who is told while the network is waited for: sources print nothing themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

_listener: list[Callable[[str], AbstractContextManager[object]]] = []


def set_listener(listener: Callable[[str], AbstractContextManager[object]] | None) -> None:
    """Have `listener(what)` entered around every wait; None for nobody."""
    _listener[:] = [] if listener is None else [listener]


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Around something that may take a while."""
    if not _listener:
        yield
        return
    with _listener[0](what):
        yield
