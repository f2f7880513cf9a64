"""Models outside the catalogue that one process looks up for others, once: what was read travels, and each makes its own Model of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kvtax.errors import KvtaxError
from kvtax.sources import resolve
from kvtax.sources.found import Found
from kvtax.sources.models import ModelEntry, find_model, read_config
from kvtax.sources.places import place_elsewhere, place_of
from kvtax.sources.resolve import Model


class Gathered(NamedTuple):
    """What was read of one name: the files, a user's own entry with its config, or why neither can be had. It can be pickled."""

    found: Found | None = None
    entry: ModelEntry | None = None
    error: KvtaxError | None = None


def gather(name: str, extra: Sequence[ModelEntry] = ()) -> Gathered | None:
    """What lies behind a name that is not in the shipped catalogue; None for one that is, and which every process can read.

    Args:
        name: of a model, as `resolve.find` takes it.
        extra: entries of one's own.
    """
    try:
        place = place_of(name)
        if place is None:
            try:
                entry = find_model(name, extra)
            except KvtaxError as error:
                place = place_elsewhere(name, error)
            else:
                return _of_entry(entry) if entry in extra else None
        return Gathered(found=place.read())
    except KvtaxError as error:
        return Gathered(error=error.with_traceback(None))


def _of_entry(entry: ModelEntry) -> Gathered:
    if entry.facts:
        from kvtax.sources.found_json import read_facts

        return Gathered(found=read_facts(entry.facts), entry=entry)
    return Gathered(entry=entry._replace(config=read_config(entry), overrides=None))


def make_model(name: str, gathered: Gathered) -> Model:
    """The Model of what was read.

    Raises:
        KvtaxError: it could not be had, or is not understood.
    """
    from kvtax.sources.found_model import model_of

    if gathered.error is not None:
        raise gathered.error
    if gathered.found is None:
        assert gathered.entry is not None  # noqa: S101  one of the three is there
        return resolve.of_entry(name, gathered.entry, (gathered.entry,))
    model = model_of(gathered.found)
    return model if gathered.entry is None else resolve.of_facts(name, gathered.entry, model)


@contextlib.contextmanager
def standing_in(models: Mapping[str, Model | KvtaxError]) -> Iterator[None]:
    """While it lasts, these names are found as given and looked up nowhere."""
    before = dict(resolve.GIVEN)
    resolve.GIVEN.update(models)
    try:
        yield
    finally:
        resolve.GIVEN.clear()
        resolve.GIVEN.update(before)
