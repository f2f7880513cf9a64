"""What every human format of a budget shows, in words and formatted numbers; the formats only draw it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kvtax.safe_text import safe
from kvtax.terms import Notice
from kvtax.units import format_bytes, format_count, format_parameters, format_requests, format_share
from kvtax.views.rank_rows import RankRow, rank_rows

if TYPE_CHECKING:
    from kvtax.budgets import Budget
    from kvtax.planning.levers import Lever

_NAMES = {
    "routed_experts": "routed experts", "shared_experts": "shared experts", "vision": "vision tower", "audio": "audio tower",
    "lm_head": "output head", "mlp": "MLP", "norms": "norms", "embedding": "embedding", "attention": "attention", "router": "router",
    "linear_or_ssm": "recurrent layers", "mtp": "draft",
}  # fmt: skip
_ALWAYS_SHOWN = ("routed_experts", "shared_experts", "vision", "audio")
_SMALL = 0.03
_UNSEEN = 5 * 2**20
_WORDS = {
    "fits": "FITS",
    "over_budget": "OVER BUDGET",
    "kv_too_small": "KV TOO SMALL",
    "out_of_memory": "OUT OF MEMORY",
    "refused": "REFUSED",
}


class Part(NamedTuple):
    """One row of the division of a card: level 1 is a part of the level-0 row above it."""

    key: str
    label: str
    bytes: int
    level: int = 0


class Figure(NamedTuple):
    """One number below the table, with its unit and a remark."""

    key: str
    label: str
    number: str
    unit: str
    remark: str = ""


class Remedy(NamedTuple):
    """One change that would help: what to type, what it gives, what it costs."""

    flags: str
    gives: str
    cost: str
    fits: bool


class Sheet(NamedTuple):
    """A budget in words."""

    title: str
    about_model: str
    about_engine: str
    total_bytes: int
    parts: tuple[Part, ...]
    figures: tuple[Figure, ...]
    concurrency: Figure
    verdict: str
    word: str
    sentence: str
    remedies: tuple[Remedy, ...]
    notices: tuple[Notice, ...]
    ranks: tuple[RankRow, ...] = ()
    prints: tuple[str, ...] = ()
    printer: str = ""


def make_sheet(budget: Budget, levers: Sequence[Lever] = ()) -> Sheet:
    """The words of a budget.

    Args:
        budget: to show.
        levers: changes that would help.
    """
    architecture, deployment = budget.prepared.architecture, budget.deployment
    active = architecture.active_parameters
    parameters = format_parameters(architecture.parameters) + " parameters"
    if active < architecture.parameters * 0.98:
        parameters += f" ({format_parameters(active)} active)"
    quantization = deployment.quantization or getattr(architecture.quantization, "name", None)
    dtype = str(budget.settings()["dtype"].value)
    if quantization is not None and quantization.lower() == dtype.lower():  # a GGUF file's own name of its mix
        quantization = dtype
    version = budget.prepared.plan.version_text
    stopped = _stopped(budget)
    engine = f"{deployment.engine} {version}" if budget.prepared.engine_known else "no engine rule"
    parallel = f", {_parallel(budget)}" if budget.prepared.ranks > 1 or budget.prepared.gpu_count > 1 else ""
    return Sheet(
        title=safe(f"{budget.model.id} on {budget.gpu.name}"),
        about_model=safe(
            f"{parameters}, {quantization + ' weights' if quantization else ''}"
            f"{', ' if quantization and quantization != dtype else ''}{'' if quantization == dtype else dtype}"
        ),
        about_engine=safe(f"{engine}{parallel}, KV in {budget.settings()['kv_cache_dtype'].value}"),
        total_bytes=budget.memory.total_bytes,
        parts=tuple(_parts(budget)),
        figures=tuple(_figures(budget)),
        concurrency=_concurrency(budget),
        verdict=budget.verdict,
        word=_WORDS[budget.verdict],
        sentence=safe(sentence(budget)),
        remedies=tuple(_remedy(lever, budget) for lever in levers),
        notices=tuple(
            Notice(*(safe(text, 1000) for text in notice))
            for notice in budget.notices[bool(stopped) or budget.verdict == "refused" :]
        ),
        ranks=rank_rows(budget),
        prints=tuple(safe(line, 1000) for line in budget.prints or (() if budget.prepared.plan.ALLOCATES else stopped)),
        printer=f"{budget.prepared.plan.label} {'stops with' if stopped else 'prints'}",
    )


def _stopped(budget: Budget) -> tuple[str, ...]:
    """The engine's error where it does not start for want of memory, and what to change."""
    reason = budget.answer.reason
    if reason is None or budget.verdict not in ("kv_too_small", "out_of_memory"):
        return ()
    return (reason.message, f"({reason.hint})") if reason.hint else (reason.message,)


def _parallel(budget: Budget) -> str:
    deployment = budget.deployment
    sizes = (
        ("TP", deployment.tensor_parallel_size),
        ("PP", deployment.pipeline_parallel_size),
        ("DP", deployment.data_parallel_size),
    )
    said = " x ".join(f"{name} {size}" for name, size in sizes if size > 1)
    cards = f"{budget.prepared.gpu_count} cards"
    return f"{said} on {cards} (one card shown)" if said else f"{cards} (one shown)"


# ---- the division of the card ----


def _parts(budget: Budget) -> list[Part]:
    taken, known = budget.memory, budget.prepared.engine_known
    parts = [Part("weights", "weights", taken.weights_bytes), *_components(budget)]
    if known:
        plan = budget.prepared.plan
        fixed, labels = budget.deployment.kv_cache_memory_bytes is not None, plan.LABELS
        parts.append(Part("kv_pool", labels["kv_pool"] + " (fixed)" * fixed, budget.kv_pool_bytes))
        parts.append(Part("activation", labels["activation"], taken.activation_bytes))
        if taken.cuda_graph_bytes or not plan.ALLOCATES:
            parts.append(Part("cuda_graphs", labels["cuda_graphs"], taken.cuda_graph_bytes))
        parts.append(Part("runtime", labels["runtime"], budget.runtime_bytes))
        label = "overdrawn" if budget.unallocated_bytes < 0 else "unallocated"
        share = budget.settings().get("gpu_memory_utilization")
        if not fixed and budget.unallocated_bytes >= 0 and share is not None:
            label += f" (limit {share.value:g})"
        parts.append(Part("unallocated", label, budget.unallocated_bytes))
    else:
        parts.append(Part("kv_pool", "left for KV and all else", budget.kv_pool_bytes))
        other = taken.total_bytes - taken.weights_bytes - budget.kv_pool_bytes
        if other:
            parts.append(Part("runtime", "system", other))
    return parts


def _components(budget: Budget) -> list[Part]:
    """Weights by component, largest first; small ones together."""
    found = [
        (term.name.partition(".")[2], int(term.bytes)) for term in budget.terms if term.name.startswith("weights.")
    ]
    found.sort(key=lambda item: item[1], reverse=True)
    smallest = budget.memory.weights_bytes * _SMALL
    shown = [item for item in found if item[1] >= smallest or item[0] in _ALWAYS_SHOWN]
    rest = [item for item in found if item not in shown]
    if len(rest) == 1 and rest[0][1] > _UNSEEN:
        shown, rest = found, []
    parts = [Part(f"weights.{name}", _NAMES.get(name, name.replace("_", " ")), size, 1) for name, size in shown]
    if sum(size for _, size in rest) > _UNSEEN:
        parts.append(Part("weights.other", "other weights", sum(size for _, size in rest), 1))
    return parts if len(parts) > 1 else []


# ---- figures ----


def split_bytes(size: int | float) -> tuple[str, str]:
    """A size as number and unit, for two columns."""
    number, _, unit = format_bytes(size).rpartition(" ")
    return number, unit


def _figures(budget: Budget) -> list[Figure]:
    context = f"{budget.max_model_len:,}"
    figures = []
    growth, early = budget.live_bytes_per_token, budget.early_bytes_per_token
    if growth or early:
        remark = f"{format_bytes(early)} before windows are full" if early != growth else ""
        figures.append(Figure("kv_per_token", "KV per token", *split_bytes(growth), remark))
    if budget.state_bytes_per_request:
        figures.append(
            Figure("state_per_request", "fixed state per request", *split_bytes(budget.state_bytes_per_request))
        )
    live, whole = budget.live_bytes_per_request, budget.kv_bytes_per_request
    remark = ""
    if budget.ranks and whole != live:
        remark = f"{format_bytes(whole)} on the tightest card"
    elif whole != live and budget.prepared.engine_known:
        blocks = (
            f" in {_many(budget.pool.blocks_per_request, 'block')}" if budget.pool.block_size > 1 else " as allocated"
        )
        remark = format_bytes(whole) + blocks
    figures.append(Figure("kv_per_request", f"request of {context} tokens", *split_bytes(live), remark))
    if budget.capacity_tokens and budget.prepared.engine_known:
        figures.append(Figure("capacity_tokens", "pool capacity", format_count(budget.capacity_tokens), "tokens"))
    figures.append(_longest(budget))
    figures += _beside(budget)
    figures += _crossing(budget)
    figures += _batch(budget)
    return figures + _waste(budget)


def _beside(budget: Budget) -> list[Figure]:
    """What loading needs for a while, and what is kept in RAM."""
    figures = []
    if budget.memory.loading_bytes:
        figures.append(Figure("loading", "more while loading", *split_bytes(budget.memory.loading_bytes)))
    host = budget.host
    if any(host):
        words = ("weights", host.weights_bytes), ("KV", host.kv_bytes), ("buffers", host.compute_bytes)
        remark = ", ".join(f"{word} {format_bytes(size)}" for word, size in words if size)
        figures.append(Figure("host", "in RAM", *split_bytes(sum(host)), remark))
    return figures


def _crossing(budget: Budget) -> list[Figure]:
    """From which load on KV takes more of the card than the weights."""
    crossing = budget.crossover_tokens
    if crossing is None:
        return []
    requests = -(-crossing // budget.max_model_len)
    if not budget.live_bytes_per_token and not budget.early_bytes_per_token:
        return [Figure("crossover_requests", "state outweighs weights at", format_count(requests), "requests")]
    remark = f"{_many(requests, 'request')} of {budget.max_model_len:,}" if requests > 1 else "within one request"
    return [Figure("crossover_tokens", "KV outweighs weights from", format_count(crossing), "tokens", remark)]


def _waste(budget: Budget) -> list[Figure]:
    """What a server that reserves the maximum for every request would leave unused."""
    from kvtax.budgets import TYPICAL_REQUEST_TOKENS

    if budget.max_model_len <= TYPICAL_REQUEST_TOKENS or budget.naive_waste_share <= 0:
        return []
    share, _, unit = format_share(budget.naive_waste_share).partition(" ")
    remark = f"requests of {TYPICAL_REQUEST_TOKENS:,} (mean, Azure 2023)"
    return [Figure("naive_waste", "reserve-to-maximum waste", share, unit, remark)]


def _longest(budget: Budget) -> Figure:
    longest = budget.longest_context() if budget.verdict != "refused" else 0
    limit = budget.prepared.plan.default_max_model_len()
    own = budget.prepared.architecture.max_position_embeddings
    remark = "would start" if longest else "none starts"
    if longest == limit:
        remark = "the model's own limit" if longest == own or not budget.prepared.plan.ALLOCATES else "as allocated"
    return Figure("longest_context", "longest context", format_count(longest), "tokens", remark)


def _batch(budget: Budget) -> list[Figure]:
    batch = budget.compute_bound_batch
    if not batch:
        return []
    memory = budget.max_concurrency
    if memory <= 0 or budget.prepared.plan.ALLOCATES:
        remark = ""
    elif memory < batch:
        remark = f"memory runs out {batch / memory:.1f} x sooner"
    else:
        remark = f"memory holds {memory / batch:.1f} x as many"
    return [Figure("compute_bound_batch", "decode compute-bound from", format_count(round(batch)), "requests", remark)]


def _concurrency(budget: Budget) -> Figure:
    number = format_requests(budget.max_concurrency)
    remark = ""
    if budget.prepared.engine_known and budget.verdict != "refused" and budget.max_concurrency > 0:
        low, high = budget.interval["max_concurrency"]
        remark = "" if low == high else f"{format_requests(low)} to {format_requests(high)} (90 %)"
    unit = f"x {budget.max_model_len:,} tokens"
    label = "MAXIMUM CONCURRENCY" if budget.prepared.engine_known else "AT MOST, WITHOUT AN ENGINE"
    return Figure("max_concurrency", label, number, unit, remark)


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


# ---- the verdict ----


def sentence(budget: Budget) -> str:
    """The verdict in one sentence."""
    context = f"{budget.max_model_len:,} tokens"
    if budget.verdict == "refused":
        reason = budget.notices[0]
        return f"The engine refuses: {reason.message}" + (f" ({reason.hint})." if reason.hint else ".")
    if budget.verdict == "out_of_memory":
        return _why_out_of_memory(budget)
    if budget.verdict == "kv_too_small":
        if budget.kv_pool_bytes <= 0:
            return f"Weights and what the engine needs besides take {format_bytes(-budget.kv_pool_bytes)} more than its limit: nothing is left for KV."
        if budget.max_concurrency >= 1:
            return f"The pool of {format_bytes(budget.kv_pool_bytes)} is short of one request of {context}: the engine reserves a block of it."
        left = "The pool of" if budget.prepared.engine_known else "What is left,"
        comma = "" if budget.prepared.engine_known else ","
        return (
            f"{left} {format_bytes(budget.kv_pool_bytes)}{comma} holds less than one request of {context}, "
            f"which takes {format_bytes(budget.kv_bytes_per_request)}."
        )
    # people count whole requests; the line above has the engine's own figure
    holds = f"{int(budget.max_concurrency):,}"
    if budget.verdict == "over_budget" and budget.concurrency is None:
        return f"It starts, but no request of {context} fits its pool: longer ones are refused when they come."
    if budget.verdict == "over_budget":
        return f"It starts, but holds {holds} of the {budget.concurrency:,} requests of {context} asked for."
    if not budget.prepared.engine_known:
        return "Weights and requests fit the card's memory; what an engine would take besides is not known."
    if budget.concurrency is not None:
        where = "it carries" if budget.prepared.plan.ALLOCATES else "the pool holds"
        return f"{_many(budget.concurrency, 'request')} of {context} fit; {where} {holds}."
    limit = budget.prepared.architecture.max_position_embeddings
    starts = (
        "It starts"
        if limit is None or budget.max_model_len <= limit
        else "Told to go beyond the model's limit, it starts"
    )
    return f"{starts} and holds {_many(int(budget.max_concurrency), 'request')} of {context} at once."


def _why_out_of_memory(budget: Budget) -> str:
    taken, free, reason = budget.memory, budget.free_bytes, budget.answer.reason
    if budget.prepared.plan.ALLOCATES and reason is not None:
        return f"{reason.message[:1].upper()}{reason.message[1:]}" + (f" ({reason.hint})." if reason.hint else ".")
    need = taken.weights_bytes + taken.load_extra_bytes
    if need > free:
        return f"Loading takes {format_bytes(need)}, and the card has {format_bytes(free)} free."
    if need + taken.loading_bytes > free:
        more = f"{format_bytes(taken.loading_bytes)} more for a while"
        return f"The weights fit at rest, but loading takes {more}: it dies before it serves."
    need += taken.workspace_bytes
    fixed = budget.deployment.kv_cache_memory_bytes
    if fixed is None and need + taken.activation_bytes > free:
        return (
            f"A step needs {format_bytes(need + taken.activation_bytes)}, and the card has {format_bytes(free)} free."
        )
    if fixed is None:
        return f"The engine asks for {format_bytes(taken.limit_bytes)} at start, and {format_bytes(free)} are free."
    need += taken.activation_bytes + taken.cuda_graph_bytes + fixed
    return f"Weights, peak and the fixed pool take {format_bytes(need)}, and the card has {format_bytes(free)} free."


def _remedy(lever: Lever, base: Budget) -> Remedy:
    """What a lever gives, in words."""
    tried = lever.budget
    if tried.verdict in ("fits", "over_budget"):
        gives = (
            f"{'fits' if tried.fits else 'starts'}: {format_requests(tried.max_concurrency)} x {tried.max_model_len:,}"
        )
    elif base.verdict == "refused":
        gives = f"accepted, then {_WORDS[tried.verdict].lower()}"
    elif tried.kv_pool_bytes > 0:
        gives = f"pool of {format_bytes(tried.kv_pool_bytes)}: too small"
    else:
        gives = f"still {format_bytes(-tried.kv_pool_bytes)} short"
    return Remedy(lever.change.flags, gives, lever.change.cost, tried.fits)
