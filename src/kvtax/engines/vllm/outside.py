"""Memory that PyTorch does not allocate: what grows inside the limit while the engine starts, and what lies outside it."""

from __future__ import annotations

from kvtax.engines.base import Version
from kvtax.engines.vllm.part import Part
from kvtax.engines.vllm.rules import rule
from kvtax.hardware.gpu import Gpu
from kvtax.terms import Input
from kvtax.units import MIB

KERNEL_BYTES = {"9": 72 * MIB, "10": 72 * MIB}
OTHER_KERNEL_BYTES = 41 * MIB
"""Kernels and handles that are loaded during the run, by compute capability: 0.07 GiB printed on H100 (three starts of 0.10), 0.02 to 0.06 on
RTX 4080 and 4090, L4 and RTX PRO 6000 (six starts)."""
UNIFIED_BYTES = 1741 * MIB
"""The same on unified memory, where other use of RAM is in it: 1.6 to 2.2 GiB (three starts of GB10; from -0.5 to 5.7 were seen)."""
AMD_BYTES = 461 * MIB
"""The same on AMD: 0.42 to 0.52 GiB on R9700 at 0.13 (four starts), 0.66 on MI300X at 0.10."""
AMD_SHARED_BYTES = 369 * MIB
"""AMD, two ranks: 0.31 to 0.41 GiB on R9700 at 0.13 (four starts)."""
EARLY_RDNA_BYTES = 2253 * MIB
"""RDNA 4 before 0.13, models without vision tower and recurrent state: 1.7 to 2.6 GiB more than at 0.13 (six starts of one machine with 0.11.2,
Gemma 3 and Qwen3-Next beside them not); the cause is not known."""
INSIDE_COMMUNICATOR_BYTES = {1: 0, 2: 410 * MIB, 4: 1331 * MIB, 8: 1946 * MIB}
"""NCCL before it was set up ahead of the first snapshot: 1.84 GiB printed at four ranks of H100 and 2.10 at eight of A100; two ranks 0.17 to 0.55."""
LATE_COMMUNICATOR_BYTES = {1: 0, 2: 461 * MIB, 4: 410 * MIB, 8: 614 * MIB}
"""What NCCL still allocates at the first collectives: 0.5 GiB at two ranks of H100 (three starts of 0.12), 0.4 at four of A800."""


def by_ranks(table: dict[int, int], ranks: int) -> int:
    """The entry of the next larger number of ranks that was measured."""
    return table[min((size for size in table if size >= ranks), default=max(table))]


def non_torch_part(gpu: Gpu, version: Version, ranks: int, plain: bool) -> Part:
    """Growth of memory outside PyTorch inside the limit: kernels and handles, communicators, before 0.9 the context too.

    Args:
        gpu: the card.
        version: of the engine.
        ranks: that communicate [ranks].
        plain: the model has neither a vision tower nor recurrent state.
    """
    counted = bool(rule("counts_non_torch", version))
    kernels = _kernel_bytes(gpu, version, ranks, plain) if counted else 0
    communicators = 0
    if gpu.vendor != "AMD" and counted:
        table = LATE_COMMUNICATOR_BYTES if rule("communicators_outside", version) else INSIDE_COMMUNICATOR_BYTES
        communicators = by_ranks(table, ranks)
    context = rule("context_inside", version) if gpu.vendor != "AMD" and counted else 0
    inputs = {
        "kernel_bytes": Input(kernels, "B", "measured, by compute capability"),
        "communicator_bytes": Input(communicators, "B", f"measured, {ranks} ranks"),
        "context_bytes": Input(context, "B", "counted as the engine's own before 0.9"),
    }
    formula = "kernel_bytes + communicator_bytes + context_bytes"
    source = "vllm v1/worker/gpu_worker.py: growth of memory that PyTorch does not allocate"
    return Part("non_torch", kernels + communicators + context, formula, inputs, source)


def _kernel_bytes(gpu: Gpu, version: Version, ranks: int, plain: bool) -> int:
    if gpu.unified_memory:
        return UNIFIED_BYTES
    if gpu.vendor != "AMD":
        return KERNEL_BYTES.get((gpu.compute_capability or "").partition(".")[0], OTHER_KERNEL_BYTES)
    early = (gpu.compute_capability or "").startswith("gfx12") and plain and rule("early_rdna", version)
    return (AMD_BYTES if ranks == 1 else AMD_SHARED_BYTES) + (EARLY_RDNA_BYTES if early else 0)
