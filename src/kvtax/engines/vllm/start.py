"""What is said of a start that may find less memory free than it asks for."""

from __future__ import annotations

from kvtax.deployment import Deployment
from kvtax.engines.vllm import memory
from kvtax.hardware.gpu import Gpu
from kvtax.terms import Notice
from kvtax.units import format_bytes


def start_notices(deployment: Deployment, gpu: Gpu, total: int, utilization: float) -> list[Notice]:
    """A notice where the engine may find less free than it asks for, and nobody said what is free."""
    free = deployment.free_memory
    if free is not None:
        if free <= total:
            return []
        message = f"free_memory {format_bytes(free)} is more than the card's {format_bytes(total)}"
        return [Notice("free-above-total", message, "give the size of the card too: --vram")]
    if deployment.kv_cache_memory_bytes is not None:
        return []
    beside = total - memory.limit_bytes(total, utilization)
    usual = memory.outside_bytes(gpu, deployment.tensor_parallel_size * deployment.pipeline_parallel_size)
    if usual <= beside or memory.outside_of_a_start(gpu, 1, beside) > beside:
        return []
    message = (
        f"the engine's limit leaves {format_bytes(beside)} of the card, and up to {format_bytes(usual)} are taken before it "
        "loads (context, communicators): it may refuse to start"
    )
    return [Notice("start-is-tight", message, "say what is free with --free-memory, or lower --gpu-memory-utilization")]
