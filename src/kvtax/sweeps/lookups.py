"""Models outside the catalogue, looked up once for a whole sweep and handed to the workers with the chunks that name them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from kvtax.errors import KvtaxError
from kvtax.sources.beforehand import gather
from kvtax.sources.models import ModelEntry
from kvtax.sweeps.job import Chunk, Job, field_key
from kvtax.values import Speculative, read_speculative

_MOST_HELD = 64
"""Models whose files are held; more of them are read again when they come back."""
_MOST_NAMES = 10_000


class Lookups:
    """What the names of models stand for.

    Args:
        job: whose base and grid may name models too.
        models: entries of one's own.
    """

    def __init__(self, job: Job, models: Sequence[ModelEntry] = ()) -> None:
        self._models = models
        self._words = job.words
        varied = [name for axis in job.axes for value in axis.values for name in _names({axis.name: value})]
        self._shared = tuple(dict.fromkeys([*_names(job.base), *varied]))
        self._in_catalogue: set[str] = set()
        self._failed: dict[str, tuple[str, bytes]] = {}
        self._held: dict[str, tuple[str, bytes]] = {}

    def with_models(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The same chunks, each with what its workers cannot look up themselves."""
        for chunk in chunks:
            names = dict.fromkeys(self._shared)
            for piece in chunk.pieces:
                names.update(dict.fromkeys(_names(piece.line.fields or {}, self._words)))
            found = [(name, *known) for name in names if (known := self._look_up(name)) is not None]
            yield chunk._replace(models=tuple(found)) if found else chunk

    def _look_up(self, name: str) -> tuple[str, bytes] | None:
        if name in self._in_catalogue:
            return None
        known = self._held.get(name) or self._failed.get(name)
        if known is None:
            known = self._read(name)
        return known

    def _read(self, name: str) -> tuple[str, bytes] | None:
        gathered = gather(name, self._models)
        if gathered is None:
            if len(self._in_catalogue) >= _MOST_NAMES:
                self._in_catalogue.clear()
            self._in_catalogue.add(name)
            return None
        blob = pickle.dumps(gathered)
        known = (sha256(blob).hexdigest(), blob)
        held, most = (self._held, _MOST_HELD) if gathered.error is None else (self._failed, _MOST_NAMES)
        if len(held) >= most:
            held.pop(next(iter(held)))
        held[name] = known
        return known


def _names(fields: Mapping[str, Any], words: bool = False) -> Iterator[str]:
    """The models that fields name: the one that is served, and a draft."""
    for key, value in fields.items():
        name = field_key(key)
        if name == "model" and isinstance(value, str):
            yield value.strip() if words else value
        elif name in ("speculative", "speculative_config") and value:
            try:
                draft = value if isinstance(value, Speculative) else read_speculative("speculative", value)
            except KvtaxError:
                continue
            if draft.model:
                yield draft.model
