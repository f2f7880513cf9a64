"""Which cards and parallel sizes carry a need, the smallest first; and where none does, what binds and what is nearest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kvtax.budgets import Budget
from kvtax.deployment import find_engine, usual_engine
from kvtax.engines.registry import plan_class
from kvtax.errors import InputError
from kvtax.hardware.gpu import Gpu
from kvtax.planning.changes import COMMON_CARDS
from kvtax.planning.grid import Axis, check_size, expand, make_axis, read_axes
from kvtax.planning.lengths import longest_length, most_requests
from kvtax.planning.need import Class, Need, carries, make_mix, need_fields, share_needed
from kvtax.planning.variants import Variant, variant, whole_change
from kvtax.sources.models import ModelEntry
from kvtax.sources.prices import Prices

_SHORT = 256
RANKS = (1, 2, 4, 8)
"""Cards of one node that are looked at where nothing else is said."""
KEYS = ("memory", "price", "cards", "headroom")
"""What choices can be ranked by: memory of all cards, price an hour, number of cards, share of the pool that stays free."""


class Choice(NamedTuple):
    """Cards and settings that carry a need.

    Args:
        change: what was chosen.
        budget: as `kvtax budget` gives it.
        share: of the KV pool that the need takes.
        price_per_hour: of all cards; None where it is not known.
        currency: of the price.
    """

    change: Mapping[str, Any]
    budget: Budget
    share: float
    price_per_hour: float | None = None
    currency: str = ""

    @property
    def cards(self) -> int:
        """Cards of all copies."""
        return self.budget.prepared.gpu_count

    @property
    def total_bytes(self) -> int:
        """Memory of all cards [bytes]."""
        return self.budget.memory.total_bytes * self.cards

    @property
    def headroom(self) -> float:
        """Share of the pool that the need leaves free."""
        return 1 - self.share

    @property
    def sure(self) -> bool:
        """Whether the need is carried at the low end of the interval, too."""
        low: int = self.budget.interval["kv_pool_bytes"][0]
        return self.budget.prepared.plan.ALLOCATES or self.share * self.budget.kv_pool_bytes <= low


class Nearest(NamedTuple):
    """The nearest need that can be carried, and by what."""

    need: Need
    change: Mapping[str, Any]
    budget: Budget


class Limit(NamedTuple):
    """Why no choice carries a need.

    Args:
        what: `refused`, `weights`, `kv_pool`, or `not_known`.
        words: one sentence.
        nearest: needs that can be carried: fewer requests, shorter ones.
    """

    what: str
    words: str
    nearest: tuple[Nearest, ...]


class Fit(NamedTuple):
    """Choices that carry a need, ranked.

    Args:
        need: what has to be carried.
        choices: best first.
        tried: how many choices were looked at.
        by: the key that they are ranked by.
        failed: the other choices that could be looked at, in the order tried.
        limit: why there is no choice; None where there is one.
    """

    need: Need
    choices: tuple[Choice, ...]
    tried: int
    by: str
    failed: tuple[Variant, ...] = ()
    limit: Limit | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form (schema kvtax.fit/1)."""
        from kvtax.views.fit_page import fit_to_dict

        return fit_to_dict(self)

    def _repr_html_(self) -> str:
        from kvtax.views.fit_page import fit_page
        from kvtax.views.page_html import page_fragment_html

        return page_fragment_html(fit_page(self))


def fit(
    *,
    vary: Mapping[str, Any] | Sequence[str] = (),
    traffic: Iterable[tuple[Any, Any]] = (),
    by: str = "memory",
    prices: Prices | None = None,
    models: Sequence[ModelEntry] = (),
    gpus: Sequence[Gpu] = (),
    **fields: Any,
) -> Fit:
    """The cards and parallel sizes that carry a need.

    Args:
        vary: further choices: fields and their values; a field that is named here is not chosen by default.
        traffic: requests of several lengths at once: pairs of a number and a length, instead of concurrency.
        by: one of KEYS.
        prices: of cards; None: no prices.
        models: entries of one's own, looked at before the catalogue.
        gpus: cards of one's own.
        fields: of the deployment, as `budget` takes them; `gpu` may be a list, and is the common cards where it is left out.

    Returns:
        Every choice that carries it, best first.

    Raises:
        InputError: a key that is none, a price that is needed, or more choices than there is room for.
        KvtaxError: no choice can be sized at all.

    >>> found = fit(model="llama-3-8b", gpu=["l4", "a100-80gb-sxm"], concurrency=40, max_model_len=8192)
    >>> [(choice.change["gpu"], choice.cards) for choice in found.choices[:2]]
    [('a100-80gb-sxm', 1), ('l4', 4)]
    """
    if by not in KEYS:
        raise InputError(
            f"choices are ranked by {', '.join(KEYS)}, not by {by!r:.64}", code="invalid-input", where="by"
        )
    if by == "price" and prices is None:
        raise InputError(
            "there are no prices to rank by", code="no-prices", hint="--prices examples, or a file of your own"
        )
    mix = make_mix(traffic)
    need, fixed = _need(fields, mix)
    found: list[Choice] = []
    failed: list[Variant] = []
    for change in choices_of(fixed, read_axes(vary)):
        made = variant(fixed, whole_change(fixed, change), models=models, gpus=gpus)
        if made.budget is not None and carries(made.budget, need):
            found.append(_choice(made.change, made.budget, need, prices))
        else:
            failed.append(made)
    _raise_shared(found, failed)
    order = {id(choice): place for place, choice in enumerate(found)}
    ranked = tuple(sorted(found, key=lambda choice: (rank_key(choice, by), order[id(choice)])))
    limit = None if ranked else find_limit(need, failed)
    return Fit(need, ranked, len(found) + len(failed), by, tuple(failed), limit)


def _need(fields: Mapping[str, Any], mix: tuple[Class, ...]) -> tuple[Need, dict[str, Any]]:
    """What has to be carried, and the fields with it in them."""
    fixed = {name: value for name, value in fields.items() if value is not None}
    if mix and "concurrency" in fixed:
        raise InputError(
            "traffic says how many requests there are", code="invalid-input", hint="leave --concurrency out"
        )
    checked = make_mix([(fixed.get("concurrency", 1), fixed.get("max_model_len", 1))])[0]
    length = checked.tokens if "max_model_len" in fixed else None
    need = Need(checked.concurrency if "concurrency" in fixed else None, length, mix)
    plan = plan_class(_engine(fixed))
    fixed.update(
        {name: value for name, value in need_fields(need, allocates=plan.ALLOCATES).items() if value is not None}
    )
    return need, fixed


def _engine(fields: Mapping[str, Any]) -> str:
    return find_engine(fields.get("engine") or usual_engine(fields.get("model") or ""))


def choices_of(fields: Mapping[str, Any], varied: Sequence[Axis]) -> Iterator[dict[str, Any]]:
    """Every choice: cards, then the cards of a node that share the model, then what is varied.

    Raises:
        InputError: there are too many.
    """
    engines = next((axis.values for axis in varied if axis.name == "engine"), None)
    if engines is None:
        return _of_engine(fields, varied, _engine(fields))
    others = [axis for axis in varied if axis.name != "engine"]
    check_size([Axis("engine", engines), *others])
    return (
        {"engine": engine, **change}
        for engine in engines
        for change in _of_engine(fields, others, engine or _engine(fields))
    )


def _of_engine(fields: Mapping[str, Any], varied: Sequence[Axis], engine: str) -> Iterator[dict[str, Any]]:
    """The choices of one engine: cards share a model in its own way."""
    named = {axis.name for axis in varied}
    axes: list[Axis] = []
    gpu = fields.get("gpu")
    if "gpu" not in named and fields.get("vram") is None:
        cards = COMMON_CARDS if gpu is None else [gpu] if isinstance(gpu, str) else gpu
        axes.append(make_axis("gpu", cards))
    count = "tensor_parallel_size" if "tensor_parallel_size" in plan_class(find_engine(engine)).FIELDS else "gpu_count"
    if count not in named and fields.get(count) is None:
        axes.append(Axis(count, RANKS))
    axes += varied
    check_size(axes)
    return (change for change in expand(axes) if count in named or not _is_one_machine(change, count))


def _is_one_machine(change: Mapping[str, Any], count: str) -> bool:
    """Whether it takes several of a machine whose memory the GPU shares: these are no cards of one node."""
    if change.get(count, 1) == 1 or not isinstance(change.get("gpu"), str):
        return False
    from kvtax.errors import KvtaxError
    from kvtax.sources.gpus import find_gpu

    try:
        return find_gpu(change["gpu"]).unified_memory
    except KvtaxError:
        return False


def _choice(change: Mapping[str, Any], made: Budget, need: Need, prices: Prices | None) -> Choice:
    share = share_needed(made, need)
    count = made.prepared.gpu_count
    price = None if prices is None else prices.per_gpu_hour(made.gpu.id, count)
    if price is None:
        return Choice(change, made, share)
    return Choice(change, made, share, float(price.per_hour) * count, price.currency)


def rank_key(choice: Choice, by: str) -> tuple[float, ...]:
    """What a choice is ranked by: the smaller the better; equals by memory, cards, and what stays free.

    Args:
        choice: one.
        by: one of KEYS.
    """
    price = float("inf") if choice.price_per_hour is None else choice.price_per_hour
    first = {"memory": choice.total_bytes, "price": price, "cards": choice.cards, "headroom": choice.share}[by]
    return first, choice.total_bytes, choice.cards, choice.share


def _raise_shared(found: Sequence[Choice], failed: Sequence[Variant]) -> None:
    """Raise what went wrong for every choice alike: then it is not about a choice."""
    errors = [one.error for one in failed if one.error is not None]
    if not found and errors and len(errors) == len(failed) and len({(error.code, str(error)) for error in errors}) == 1:
        raise errors[0]


# ---- where nothing carries it ----


def find_limit(need: Need, failed: Sequence[Variant]) -> Limit:
    """What binds, and the nearest needs that can be carried.

    Args:
        need: that no choice carries.
        failed: every choice.
    """
    budgets = [(one.change, one.budget) for one in failed if one.budget is not None]
    starting = [(change, made) for change, made in budgets if _starts(made)]
    if starting:
        best = min((made for _, made in starting), key=lambda made: share_needed(made, need))
        return Limit("kv_pool", _pool_words(best, need), tuple(_nearest(need, starting)))
    held = [(change, made) for change, made in budgets if made.verdict == "out_of_memory"]
    if held:
        _, best = max(held, key=lambda pair: pair[1].kv_pool_bytes)
        reason = best.answer.reason
        words = reason.message if reason is not None else "the weights leave no room"
        return Limit("weights", f"no choice holds the weights: at best, {_where(best)}: {words}", ())
    if budgets:
        reasons = dict.fromkeys(made.answer.reason.message for _, made in budgets if made.answer.reason is not None)
        return Limit("refused", "the engine refuses every choice: " + "; ".join(list(reasons)[:3]), ())
    errors = dict.fromkeys(str(one.error) for one in failed)
    return Limit("not_known", "no choice can be sized: " + "; ".join(list(errors)[:3]), ())


def _starts(made: Budget) -> bool:
    """Whether the engine starts with a shorter context, if not with this one."""
    if made.verdict not in ("refused", "out_of_memory"):
        return True
    short = Budget(made.prepared, min(_SHORT, made.max_model_len), None)
    return made.prepared.plan.ALLOCATES and short.fits


def _where(made: Budget) -> str:
    count = made.prepared.gpu_count
    return made.gpu.id if count == 1 else f"{count} x {made.gpu.id}"


def _pool_words(best: Budget, need: Need) -> str:
    share = share_needed(best, need)
    if share == float("inf"):
        return f"the KV pool binds: at best, {_where(best)}, nothing is left for it"
    return f"the KV pool binds: at best, {_where(best)}, {need} take {share * 100:.4g} % of it"


def _nearest(need: Need, starting: Sequence[tuple[Mapping[str, Any], Budget]]) -> Iterator[Nearest]:
    """Fewer requests of that length; shorter requests of that number; of a mix the same in fewer."""
    if need.mix and not starting[0][1].prepared.plan.ALLOCATES:
        change, made = min(starting, key=lambda pair: share_needed(pair[1], need))
        share = share_needed(made, need)
        scaled = tuple(Class(int(one.concurrency / share), one.tokens) for one in need.mix)
        scaled = tuple(one for one in scaled if one.concurrency)
        if scaled and made.verdict == "fits":
            yield Nearest(need._replace(mix=scaled), change, made)
        return
    counts = [most_requests(made, made.max_model_len, need.requests) for _, made in starting]
    if max(counts):
        change, made = starting[counts.index(max(counts))]
        yield Nearest(
            Need(max(counts), made.max_model_len), change, Budget(made.prepared, made.max_model_len, max(counts))
        )
    wanted = need.requests
    lengths = [longest_length(made, wanted, made.max_model_len - 1) for _, made in starting]
    if max(lengths):
        change, made = starting[lengths.index(max(lengths))]
        yield Nearest(Need(wanted, max(lengths)), change, Budget(made.prepared, max(lengths), wanted))
