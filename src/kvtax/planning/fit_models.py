"""Which models of the catalogue a card carries, in which of their quantisations, and up to which context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.budgets import Budget
from kvtax.deployment import find_engine
from kvtax.engines.base import Plan
from kvtax.engines.registry import plan_class
from kvtax.errors import InputError, KvtaxError
from kvtax.hardware.gpu import Gpu
from kvtax.planning.gguf_choices import DEFAULT_TOKENS
from kvtax.planning.lengths import longest_context
from kvtax.planning.need import Need, carries, make_mix, need_fields
from kvtax.planning.quantizations import Format, usual_formats
from kvtax.planning.summaries import find_entries
from kvtax.planning.variants import variant
from kvtax.sources.models import ModelEntry
from kvtax.sources.resolve import find

KEYS = ("parameters", "context", "requests")
"""What models can be ranked by: their size, the longest context, requests at once."""


class ModelChoice(NamedTuple):
    """A model that carries the need.

    Args:
        entry: of the catalogue.
        budget: with the widest quantisation that does.
        format: that quantisation.
        longest: the longest context in it, up to the model's own limit [tokens].
        others: narrower quantisations that do, too; only where every one was asked for.
    """

    entry: ModelEntry
    budget: Budget
    format: Format
    longest: int
    others: tuple[tuple[Format, Budget], ...] = ()


class FitModels(NamedTuple):
    """Models that carry a need, ranked.

    Args:
        need: what each has to carry.
        choices: best first.
        by: the key that they are ranked by.
        too_large: models of which no quantisation does.
        too_short: models whose own limit is below the length asked for.
        not_run: models that the engine does not run, or that are no model to serve alone.
    """

    need: Need
    choices: tuple[ModelChoice, ...]
    by: str
    too_large: tuple[str, ...]
    too_short: tuple[str, ...]
    not_run: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form (schema kvtax.fit/1)."""
        from kvtax.views.fit_models_page import fit_models_to_dict

        return fit_models_to_dict(self)

    def _repr_html_(self) -> str:
        from kvtax.views.fit_models_page import fit_models_page
        from kvtax.views.page_html import page_fragment_html

        return page_fragment_html(fit_models_page(self))


def fit_models(
    search: Sequence[str] = (),
    *,
    traffic: Iterable[tuple[Any, Any]] = (),
    by: str = "parameters",
    every: bool = False,
    models: Sequence[ModelEntry] = (),
    gpus: Sequence[Gpu] = (),
    **fields: Any,
) -> FitModels:
    """The models of the catalogue that a card carries, each in the widest quantisation that does.

    Args:
        search: words that a model's name must have.
        traffic: requests of several lengths at once: pairs of a number and a length.
        by: one of KEYS.
        every: look at the narrower quantisations, too.
        models: entries of one's own, too.
        gpus: cards of one's own.
        fields: of the deployment, as `budget` takes them, without a model; max_model_len is 8,192 where it is left out, or the model's limit.

    Returns:
        The models, best first.

    Raises:
        InputError: a key that is none.
        KvtaxError: the card is not known.
    """
    if by not in KEYS:
        raise InputError(f"models are ranked by {', '.join(KEYS)}, not by {by!r:.64}", code="invalid-input", where="by")
    fixed = {name: value for name, value in fields.items() if value is not None}
    need = _need(fixed, make_mix(traffic))
    found: list[ModelChoice] = []
    left: dict[str, list[str]] = {"too_large": [], "too_short": [], "not_run": []}
    plan = plan_class(find_engine(fixed.get("engine") or "vllm"))
    for entry in _entries(find_entries(search, models), models, quantized=not plan.OWN_QUANTIZATION):
        one = _size(entry, fixed, need, every, models, gpus)
        if isinstance(one, str):
            left[one].append(entry.id)
        else:
            found.append(one)
    ranked = tuple(sorted(found, key=lambda choice: _rank(choice, by), reverse=True))
    return FitModels(need, ranked, by, *(tuple(left[name]) for name in ("too_large", "too_short", "not_run")))


def _need(fixed: Mapping[str, Any], mix: Any) -> Need:
    checked = make_mix([(fixed.get("concurrency", 1), fixed.get("max_model_len", DEFAULT_TOKENS))])[0]
    return Need(checked.concurrency if "concurrency" in fixed else None, checked.tokens, mix)


def _entries(entries: Sequence[ModelEntry], models: Sequence[ModelEntry], *, quantized: bool) -> list[ModelEntry]:
    """The entries whose configs are understood; where files are made of 16-bit weights, without quantised twins of others."""
    known: list[tuple[ModelEntry, Architecture]] = []
    for entry in entries:
        try:
            known.append((entry, find(entry.id, models).architecture))
        except KvtaxError:
            continue
    whole = {_shape(architecture) for _, architecture in known if architecture.quantization is None}
    return [
        entry
        for entry, architecture in known
        if quantized or architecture.quantization is None or _shape(architecture) not in whole
    ]


def _shape(architecture: Architecture) -> tuple[str, int, int, int]:
    return (
        architecture.name,
        architecture.num_hidden_layers,
        architecture.hidden_size,
        architecture.component_parameters().get("embedding", 0),
    )


def _size(
    entry: ModelEntry,
    fixed: Mapping[str, Any],
    need: Need,
    every: bool,
    models: Sequence[ModelEntry],
    gpus: Sequence[Gpu],
) -> ModelChoice | str:
    """The widest quantisation of a model that carries the need, or why there is none."""
    plan = plan_class(find_engine(fixed.get("engine") or "vllm"))
    architecture = find(entry.id, models).architecture
    asked = need_fields(need, allocates=plan.ALLOCATES)
    limit = architecture.max_position_embeddings
    if limit is not None and asked["max_model_len"] > limit:
        if "max_model_len" in fixed or need.mix:
            return "too_short"
        asked["max_model_len"] = limit
    asked = {name: value for name, value in asked.items() if value is not None}
    own = fixed.get("quantization")
    formats = usual_formats(plan, architecture) if own is None else (Format(own, 0),)
    why = "not_run"
    found: list[tuple[Format, Budget]] = []
    for each in _worth_a_try(formats, plan):
        change = {"model": entry.id, **asked, "quantization": each.name}
        made = variant(fixed, change, models=models, gpus=gpus).budget
        if made is None or made.verdict == "refused" or not _served(made):
            continue
        why = "too_large"
        if carries(made, need):
            found.append((each, made))
            if not every and each is not formats[-1]:
                break
        elif plan.OWN_QUANTIZATION and each is formats[-1]:
            break  # the same graph over larger weights does not fit either
    if not found:
        return why
    found.sort(key=lambda pair: formats.index(pair[0]))
    widest, budget = found[0]
    return ModelChoice(entry, budget, widest, longest_context(budget), tuple(found[1:]) if every else ())


def _worth_a_try(formats: Sequence[Format], plan: type[Plan]) -> Sequence[Format]:
    """The widest first; where there are many of one kind, the narrowest before them, which tells whether any can fit."""
    return (formats[-1], *formats[:-1]) if plan.OWN_QUANTIZATION else formats


def _served(made: Budget) -> bool:
    """Whether it is a model that is served alone."""
    return all(notice.code != "draft-alone" for notice in made.prepared.notices)


def _rank(choice: ModelChoice, by: str) -> tuple[float, ...]:
    parameters = choice.budget.prepared.architecture.parameters
    first = {"parameters": parameters, "context": choice.longest, "requests": choice.budget.max_concurrency}[by]
    return first, parameters, choice.longest
