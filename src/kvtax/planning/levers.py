"""Which single changes would help a deployment that does not fit, and what each one gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kvtax.budgets import Budget, budget
from kvtax.deployment import COMMON_FIELDS
from kvtax.errors import KvtaxError
from kvtax.hardware.gpu import Gpu
from kvtax.sources.models import ModelEntry

SHORTEST_SHARE = 16
"""A context shorter than this part of the one asked for is no help."""
COMMON_CARDS = (
    "l4", "rtx-4090", "rtx-5090", "a100-40gb-sxm", "l40s", "h100-sxm", "a100-80gb-sxm", "rtx-pro-6000", "dgx-spark", "h200-sxm",
    "b200", "mi300x",
)  # fmt: skip
"""The cards that most people rent or own, smallest first; looked at where none is named."""


class Change(NamedTuple):
    """Something to try.

    Args:
        kind: changes of one kind compete: the smallest that cures counts.
        fields: of the deployment, with their new values.
        flags: as typed.
        cost: what is given up for it, in a few words.
    """

    kind: str
    fields: dict[str, Any]
    flags: str
    cost: str


class Lever(NamedTuple):
    """A change and the budget that it gives."""

    change: Change
    budget: Budget


def levers(
    base: Budget, limit: int = 3, *, models: Sequence[ModelEntry] = (), gpus: Sequence[Gpu] = ()
) -> tuple[Lever, ...]:
    """The changes that help most, best first; each alone, recomputed with the engine's rules.

    A change that makes it fit comes before one that only brings it nearer; among equals the one that carries more tokens at once.
    Of each kind (more ranks, a larger card, ...) the smallest change that cures is kept.

    Args:
        base: a budget that does not fit.
        limit: how many at most.
        models: entries of one's own.
        gpus: cards of one's own.
    """
    found: dict[str, Lever] = {}
    _try(_changes(base), base, found, models, gpus)
    if not any(lever.budget.fits for lever in found.values()):
        _try(_pairs(base), base, found, models, gpus)
    return tuple(sorted(found.values(), key=lambda lever: _rank(lever.budget), reverse=True)[:limit])


def _try(
    changes: Iterable[Change], base: Budget, found: dict[str, Lever], models: Sequence[ModelEntry], gpus: Sequence[Gpu]
) -> None:
    """Recompute the budget under each change; keep the best of each kind in `found`."""
    asked = base.deployment._replace(max_model_len=_asked_length(base))
    known = COMMON_FIELDS | base.prepared.plan.FIELDS
    for change in changes:
        if not known.issuperset(change.fields):
            continue
        if change.kind in found and found[change.kind].budget.fits:
            continue
        try:
            tried = budget(asked._replace(**change.fields), models=models, gpus=gpus)
        except KvtaxError:
            continue
        if _helps(tried, base) and (change.kind not in found or _rank(tried) > _rank(found[change.kind].budget)):
            found[change.kind] = Lever(change, tried)


def _asked_length(base: Budget) -> int | None:
    return base.max_model_len if base.max_model_len_given else None


def _rank(tried: Budget) -> tuple[bool, bool, int, int]:
    """Fits; starts; tokens at once; what is left for KV of all cards of a copy."""
    starts = tried.verdict in ("fits", "over_budget")
    tokens = int(tried.max_concurrency * tried.max_model_len)
    deployment = tried.deployment
    return (
        tried.fits,
        starts,
        tokens,
        tried.kv_pool_bytes * deployment.tensor_parallel_size * deployment.pipeline_parallel_size,
    )


def _helps(tried: Budget, base: Budget) -> bool:
    """Whether a change is worth a line: it cures, or brings a tenth of what is missing."""
    if base.verdict == "refused":
        return tried.verdict != "refused"
    if tried.verdict == "refused":
        return False
    if tried.fits:
        return True
    missing = base.kv_demand_bytes - base.kv_pool_bytes
    return (
        tried.max_concurrency > base.max_concurrency * 1.05 or (tried.kv_pool_bytes - base.kv_pool_bytes) * 10 > missing
    )


def _changes(base: Budget) -> Iterator[Change]:
    """Every change worth a try, the smallest of a kind first."""
    asked = base.deployment
    if base.verdict == "refused":
        yield from _cures(base)
    yield from _parallel(base)
    yield from _cards(base)
    yield from _quantised(base)
    if str(base.settings()["kv_cache_dtype"].value) in ("bfloat16", "float16", "float32", "f16", "bf16", "f32"):
        yield Change("kv_cache_dtype", {"kv_cache_dtype": "fp8"}, "--kv-cache-dtype fp8", "keys and values in 8 bit")
        for name, bits in (("q8_0", 8), ("q4_0", 4)):
            fields = {"cache_type_k": name, "cache_type_v": name}
            yield Change("cache_type", fields, f"-ctk {name} -ctv {name}", f"keys and values in {bits} bit")
    yield from _into_ram(base)
    length = _length_that_fits(base)
    if length is not None and length * SHORTEST_SHARE >= base.max_model_len:
        yield Change("max_model_len", {"max_model_len": length}, f"--context {length}", "longer requests are refused")
    if asked.kv_cache_memory_bytes is not None:
        yield Change(
            "kv_cache_memory_bytes",
            {"kv_cache_memory_bytes": None},
            "without --kv-cache-memory-bytes",
            "the engine profiles at start",
        )
    share = base.settings().get("gpu_memory_utilization")
    if share is not None and float(share.value) < 0.95:
        yield Change(
            "gpu_memory_utilization",
            {"gpu_memory_utilization": 0.95},
            "--gpu-memory-utilization 0.95",
            "less room for peaks",
        )
    if base.max_num_batched_tokens > 2048:
        yield Change(
            "step", {"max_num_batched_tokens": 2048}, "--max-num-batched-tokens 2048", "long prompts take more steps"
        )
    if base.max_num_seqs > 64 and (base.concurrency or 1) <= 64:
        yield Change("slots", {"max_num_seqs": 64}, "--max-num-seqs 64", "at most 64 requests at once")
    if not asked.enforce_eager:
        yield Change("enforce_eager", {"enforce_eager": True}, "--enforce-eager", "slower decoding: no CUDA graphs")


def _parallel(base: Budget) -> Iterator[Change]:
    tp = base.deployment.tensor_parallel_size
    count = {} if base.deployment.gpu_count is None else {"gpu_count": None}
    for size in (2, 4, 8, 16):
        if size > tp:
            cards = size * base.deployment.pipeline_parallel_size
            yield Change(
                "tensor_parallel_size", {"tensor_parallel_size": size, **count}, f"--tp {size}", f"{cards} cards a copy"
            )


def _quantised(base: Budget) -> Iterator[Change]:
    """Fewer bits for the weights of a checkpoint that is not quantised."""
    asked = base.deployment
    if asked.quantization is None and base.prepared.architecture.quantization is None and asked.weights_bytes is None:
        for name, bits in _fewer_bits(base):
            yield Change(
                "quantization",
                {"quantization": name},
                f"--quantization {name}",
                f"{bits}-bit weights: another checkpoint",
            )


def _fewer_bits(base: Budget) -> tuple[tuple[str, int], ...]:
    """Formats that the engine loads, the widest first."""
    if "cache_type_k" in base.prepared.plan.FIELDS:
        return ("q8_0", 8), ("q6_k", 6), ("q4_k_m", 4)
    if "attn_implementation" in base.prepared.plan.FIELDS:
        return ("bnb-int8", 8), ("bnb-nf4", 4)
    return ("fp8", 8), ("awq-int4", 4)


def _into_ram(base: Budget) -> Iterator[Change]:
    """Experts or layers that stay in RAM, for engines that compute there; the fewest that cure."""
    architecture = base.prepared.architecture
    layers = architecture.num_hidden_layers
    steps = [-(-layers * part // 8) for part in range(1, 9)]
    if architecture.num_experts:
        for count in steps:
            cost = f"experts of {count} layers are computed on the CPU"
            yield Change("n_cpu_moe", {"n_cpu_moe": count}, f"--n-cpu-moe {count}", cost)
    for count in steps[:-1]:
        left = layers - count
        cost = f"{count} of {layers} layers are computed on the CPU"
        yield Change("n_gpu_layers", {"n_gpu_layers": str(left)}, f"-ngl {left}", cost)


def _pairs(base: Budget) -> Iterator[Change]:
    """More ranks together with fewer bits, or with a larger card, where nothing alone is enough."""
    for ranks in _parallel(base):
        for other in (*_quantised(base), *_cards(base)):
            yield Change("pair", ranks.fields | other.fields, f"{ranks.flags} {other.flags}", ranks.cost)


def _cards(base: Budget) -> Iterator[Change]:
    """Common cards with more memory, the smallest first."""
    if base.deployment.gpu is None:
        return
    from kvtax.sources.gpus import find_gpu

    larger = sorted(map(find_gpu, COMMON_CARDS), key=lambda gpu: (gpu.total_bytes, gpu.id))
    have = base.memory.total_bytes * (1.02 if base.verdict != "refused" else 0.5)
    for gpu in larger:
        if gpu.total_bytes > have and not gpu.unified_memory and gpu.id != base.gpu.id:
            change = {"gpu": gpu.id, "vram": None, "free_memory": None}
            yield Change(
                "gpu",
                change,
                f"--gpu {gpu.id}",
                "a larger card" if gpu.total_bytes > base.memory.total_bytes else "another card",
            )


def _cures(base: Budget) -> Iterator[Change]:
    """What takes away the reason of a refusal."""
    asked = base.deployment
    if asked.gpu_count is not None and asked.gpu_count < base.prepared.ranks:
        ranks = base.prepared.ranks
        yield Change("gpu_count", {"gpu_count": ranks}, f"--gpu-count {ranks}", f"{ranks} cards")
    yield Change("dtype", {"dtype": "float16"}, "--dtype float16", "a smaller range of values")
    if asked.dtype is not None:
        yield Change("dtype", {"dtype": None}, "without --dtype", "runs in the checkpoint's own dtype")
    if asked.kv_cache_dtype is not None:
        yield Change(
            "kv_cache_dtype", {"kv_cache_dtype": None}, "without --kv-cache-dtype", "keys and values in 16 bit"
        )
    if asked.quantization is not None:
        yield Change("quantization", {"quantization": None}, "without --quantization", "the checkpoint as it is")
    if asked.decode_context_parallel_size > 1:
        yield Change("dcp", {"decode_context_parallel_size": 1}, "--dcp 1", "tokens are not shared among ranks")
    for size in range(min(asked.pipeline_parallel_size, 64) - 1, 0, -1):
        yield Change(
            "pipeline_parallel_size",
            {"pipeline_parallel_size": size, "gpu_count": None},
            f"--pp {size}",
            f"{size} stage{'s' * (size > 1)}",
        )
    tp = asked.tensor_parallel_size
    for size in range(min(tp, 64) - 1, 0, -1):
        yield Change(
            "tensor_parallel_size",
            {"tensor_parallel_size": size, "gpu_count": None},
            f"--tp {size}",
            f"{size} rank{'s' * (size > 1)}",
        )


def _length_that_fits(base: Budget) -> int | None:
    """The longest context, in whole KiB of tokens where there is one, at which the requests asked for fit; None where none does."""
    low, high = 0, base.max_model_len - 1
    while low < high:
        middle = (low + high + 1) // 2
        if Budget(base.prepared, middle, base.concurrency).fits:
            low = middle
        else:
            high = middle - 1
    if low < 256:
        return None
    rounded = low // 1024 * 1024 or low
    return rounded if Budget(base.prepared, rounded, base.concurrency).fits else low
