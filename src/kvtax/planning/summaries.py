"""Models of the catalogue in a line each: what a search shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.errors import KvtaxError
from kvtax.sources.models import ModelEntry, list_models, search_models
from kvtax.sources.resolve import find

CLOSEST = 3
_CUTOFF = 0.4


class ModelSummary(NamedTuple):
    """A model and what its config says; `problem` instead of an architecture where that is not understood."""

    entry: ModelEntry
    architecture: Architecture | None
    problem: str

    @property
    def kv_bytes_per_token(self) -> int | None:
        """What one more token adds once every window is full, in 16 bit [bytes]."""
        return None if self.architecture is None else self.architecture.kv_bytes_per_token()

    @property
    def early_kv_bytes_per_token(self) -> int | None:
        """What the first token adds [bytes]."""
        return None if self.architecture is None else self.architecture.kv_bytes_per_token(at=1)

    @property
    def parameters(self) -> int | None:
        """As loaded for serving; the published total where the config is not understood."""
        return self.entry.parameters if self.architecture is None else self.architecture.parameters


def find_entries(words: Sequence[str], extra: Sequence[ModelEntry] = ()) -> list[ModelEntry]:
    """The models that have every word in their id, aliases or model type; a user's own come first."""
    mine = [entry for entry in extra if all(_has(entry, word) for word in words)]
    found = search_models(" ".join(words)) if words else list_models()
    names = {entry.id.lower() for entry in mine}
    return [*mine, *(entry for entry in found if entry.id.lower() not in names)]


def _has(entry: ModelEntry, word: str) -> bool:
    text = " ".join((entry.id, *entry.aliases, entry.model_type or "")).lower()
    return word.lower() in text


def summarise(entries: Iterable[ModelEntry], extra: Sequence[ModelEntry] = ()) -> list[ModelSummary]:
    """Each model with its architecture, or with the reason why it has none."""
    found = []
    for entry in entries:
        try:
            found.append(ModelSummary(entry, find(entry.id, extra).architecture, ""))
        except KvtaxError as error:
            found.append(ModelSummary(entry, None, str(error)))
    return found


def closest(wanted: str, names: Iterable[tuple[str, str]]) -> list[str]:
    """The three names most like what was wanted.

    Args:
        wanted: what was searched for.
        names: (spelling, the name to show for it).

    >>> closest("lama3", [("llama-3-8b", "llama-3-8b"), ("mixtral", "mixtral"), ("llama3", "llama-3-8b")])
    ['llama-3-8b']
    """
    from difflib import get_close_matches

    shown = {spelling.lower(): name for spelling, name in names}
    found: list[str] = []
    for match in get_close_matches(wanted.lower()[:96], shown, n=12, cutoff=_CUTOFF):
        if shown[match] not in found:
            found.append(shown[match])
    return found[:CLOSEST]
