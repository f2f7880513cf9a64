"""Which GGUF quantisations of a model fit a card, and how long a context each one leaves room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvtax.budgets import Budget, budget
from kvtax.errors import KvtaxError
from kvtax.hardware.gpu import Gpu
from kvtax.sources.gguf_folder import GgufChoice
from kvtax.sources.gguf_listing import GgufListing, read_choice, smallest_whole
from kvtax.sources.resolve import Model
from kvtax.terms import Notice

DEFAULT_TOKENS = 8_192
"""The context that is asked about where none is given: enough for a talk with a few files in it [tokens]."""


class Sized(NamedTuple):
    """One quantisation.

    Args:
        choice: its files.
        parameters: of the model, where known.
        budget: on the card, None without one or where it cannot be told.
        longest_context: that fits [tokens].
        problem: why it cannot be told.
    """

    choice: GgufChoice
    parameters: int | None = None
    budget: Budget | None = None
    longest_context: int | None = None
    problem: str = ""

    @property
    def bits_per_weight(self) -> float | None:
        """8 x bytes of the files / parameters [bit]."""
        if not self.parameters or self.choice.bytes is None or not self.choice.complete:
            return None
        return 8 * self.choice.bytes / self.parameters

    @property
    def verdict(self) -> str | None:
        """Of the budget."""
        return None if self.budget is None else self.budget.verdict


class Choices(NamedTuple):
    """All quantisations of a listing.

    Args:
        listing: where they are.
        sized: the smallest first.
        best: the label of the largest that fits, '' for none.
        notices: what the reader should know.
    """

    listing: GgufListing
    sized: tuple[Sized, ...]
    best: str = ""
    notices: tuple[Notice, ...] = ()

    @property
    def budget(self) -> Budget | None:
        """Of the largest that fits, else of the first that was sized: what they have in common can be read from it."""
        of_best = (one.budget for one in self.sized if one.choice.label == self.best)
        return next(of_best, None) or next((one.budget for one in self.sized if one.budget is not None), None)


def size_choices(listing: GgufListing, fields: Mapping[str, Any] | None, gpus: Sequence[Gpu] = ()) -> Choices:
    """Every quantisation with its size; on a card with the verdict of llama.cpp's rules.

    On this disk each header is read. On the hub one is, for the shape; of the others the whole file counts as weights, which is an upper bound.

    Args:
        listing: of the files.
        fields: of the deployment (gpu, vram, max_model_len, concurrency); None without a card.
        gpus: cards of one's own.

    Raises:
        KvtaxError: the card is not known, or no header can be read.
    """
    models: dict[str, Model | KvtaxError] = {}
    if listing.folder:
        for choice in listing.files.choices:
            try:
                models[choice.label] = read_choice(listing, choice)
            except KvtaxError as error:
                models[choice.label] = error
    elif fields is not None:
        first = smallest_whole(listing)
        models[first.label] = read_choice(listing, first)
    read = [model for model in models.values() if isinstance(model, Model)]
    if not read and models:
        raise next(error for error in models.values() if isinstance(error, KvtaxError))
    shape = read[0] if read else None
    sized = tuple(_sized(choice, listing, models, shape, fields, gpus) for choice in listing.files.choices)
    fitting = [one for one in sized if one.verdict == "fits"]
    best = max(fitting, key=lambda one: one.choice.bytes or 0).choice.label if fitting else ""
    found = Choices(listing, sized, best)
    return found._replace(notices=tuple(_notices(found)))


def _sized(
    choice: GgufChoice,
    listing: GgufListing,
    models: Mapping[str, Model | KvtaxError],
    shape: Model | None,
    fields: Mapping[str, Any] | None,
    gpus: Sequence[Gpu],
) -> Sized:
    own = models.get(choice.label)
    if isinstance(own, KvtaxError):
        return Sized(choice, problem=own.message.removeprefix(f"{choice.label}: "))
    model = own or shape
    parameters = listing.parameters if model is None else model.architecture.parameters
    if not choice.complete:
        return Sized(choice, parameters, problem="shards are missing")
    if fields is None or model is None:
        return Sized(choice, parameters)
    if own is None and choice.bytes is None:
        return Sized(choice, parameters, problem="its size is not known")
    limit = model.architecture.max_position_embeddings
    asked = {
        "max_model_len": min(DEFAULT_TOKENS, limit or DEFAULT_TOKENS),
        "weights_bytes": None if own is not None else choice.bytes,
        **{name: value for name, value in fields.items() if value is not None},
    }
    found = budget(gpus=gpus, **{**asked, "model": model, "engine": "llama.cpp"})
    longest = None if found.verdict == "refused" else found.longest_context()
    return Sized(choice, parameters, found, longest)


_OF_ONE_FILE = frozenset(("out-of-memory", "context-too-small", "fitted"))
"""Notices that are the reason of one verdict."""


def _notices(found: Choices) -> list[Notice]:
    listing, common = found.listing, found.budget
    bounds = [one for one in found.sized if one.budget is not None and one.budget.deployment.weights_bytes is not None]
    notices = []
    if bounds:
        notices.append(
            Notice(
                "weights-upper-bound",
                "one header was read: of the other files the whole size counts as weights on the card, an upper bound, since the token "
                "embedding stays in RAM",
                f"exact: kvtax budget {listing.id}:{bounds[-1].choice.label} --engine llama.cpp",
            )
        )
    if listing.files.projectors and not listing.folder:
        message = "the projector that a model with images needs is a file of its own and is not counted"
        notices.append(Notice("mmproj-in-repository", message, "kvtax budget --mmproj-bytes counts it"))
    notices += [Notice("not-sized", f"{one.choice.label}: {one.problem}") for one in found.sized if one.problem]
    if common is not None:
        # their hints name options of `kvtax budget`
        notices += [one._replace(hint="") for one in common.notices if one.code not in _OF_ONE_FILE]
    return list(dict.fromkeys(notices))
