"""What SGLang finds free, what loading keeps beside the parameters, and what it takes at run time out of the share it leaves."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CompressedLatent
from kvtax.architectures.tensors import rank_elements
from kvtax.engines.step_peaks import step_peaks
from kvtax.hardware.gpu import Gpu
from kvtax.units import GIB, KIB, MIB

KNOWN_VENDORS = ("NVIDIA", "AMD", "user")
CONTEXT_BYTES = 65 * GIB // 100
"""Context and handles: total less free before loading on one card is 0.59 to 0.75 GiB in seven starts (H100, H200, GB300, RTX PRO 6000)."""
UNIFIED_OUTSIDE_BYTES = 8 * GIB
"""What the system keeps of unified memory: 6 to 11 GiB (GB10 and Strix Halo starts)."""
COMMUNICATORS = {
    "NVIDIA datacenter": {1: 0, 2: GIB // 2, 4: 14 * GIB // 10, 8: 14 * GIB // 10},
    "NVIDIA": {1: 0, 2: GIB // 20, 4: GIB // 5, 8: 4 * GIB // 10},
    "AMD": {1: 0, 2: GIB, 4: 2 * GIB, 8: 32 * GIB // 10},
}
"""Communicators of one rank by ranks, free before loading less that of one card: 0.05 (two RTX 3090), 0.13 (four 24 GB cards), 0.4 (eight
RTX PRO 6000), 1.15 to 1.9 (eight H100, H200), 2.2 (four B200), 3.2 (eight MI300X, MI355X)."""
ATTENTION_WORKSPACE_BYTES = 384 * MIB
"""FlashInfer's workspace (SGLANG_FLASHINFER_WORKSPACE_SIZE)."""
DECODE_GRAPH_BYTES = 288 * KIB
"""Of one layer and captured batch: 0.60 GiB for 52 batches of 36 layers; 0.89 for 23 of 64."""
PREFILL_GRAPH_BYTES = 720 * KIB
"""Of one layer and captured size: 2.32 GiB for 74 sizes of 36 layers; 2.84 of a 32B model."""


def card_mib(gpu: Gpu, total_bytes: int) -> float:
    """Memory of the card as nvidia-smi prints it, by which SGLang sets its share: what the driver keeps is in it.

    Args:
        gpu: the card.
        total_bytes: as CUDA or HIP reports it [bytes].

    Returns:
        Size [MiB].

    Source: the catalogue's nvidia_smi_total_mib; else CUDA's total and 0.5 GiB (gap of 0.3 to 0.9 GiB on NVIDIA, none on AMD).
    """
    if gpu.driver_total_mib and abs(gpu.driver_total_mib * MIB - total_bytes) <= 2 * GIB:
        return gpu.driver_total_mib
    return total_bytes / MIB + (512 if gpu.vendor == "NVIDIA" and not gpu.unified_memory else 0)


def outside_bytes(gpu: Gpu, ranks: int) -> int:
    """What is taken before weights are loaded: the context, and communicators of more than one rank.

    Args:
        gpu: the card.
        ranks: of all stages [ranks].

    Returns:
        Size [bytes]; 0 for makers whose cards have no rule.

    Source: free before loading in starts of 2025 and 2026.
    """
    if gpu.vendor not in KNOWN_VENDORS:
        return 0
    if gpu.unified_memory:
        return UNIFIED_OUTSIDE_BYTES
    kind = "NVIDIA datacenter" if gpu.vendor == "NVIDIA" and gpu.kind == "datacenter" else gpu.vendor
    table = COMMUNICATORS.get(kind, COMMUNICATORS["NVIDIA"])
    return CONTEXT_BYTES + next((size for most, size in table.items() if ranks <= most), table[8])


def outside_spread_bytes(gpu: Gpu, ranks: int) -> int:
    """How far what is taken before loading lies from `outside_bytes` on machines alike, to either side.

    Args:
        gpu: the card.
        ranks: of all stages [ranks].

    Returns:
        Size [bytes].

    Source: starts on one card (0.45 to 0.8 GiB), on two to eight (0.01 to 2.2 GiB by build and link), on unified memory (6 to 11 GiB).
    """
    if gpu.unified_memory:
        return 3 * GIB
    if ranks == 1:
        return GIB // 5
    return GIB if gpu.kind == "datacenter" else 3 * GIB // 10


def scale_copy_bytes(architecture: Architecture, gpu: Gpu, tp: int) -> int:
    """The float32 scales of DeepSeek V4's 4-bit experts, which stay beside the repacked ones on Hopper: 4 bytes for 32 weights.

    sum over routed experts of rank_elements // 32 * 4

    Args:
        architecture: of the model.
        gpu: the card.
        tp: tensor_parallel_size [ranks].

    Returns:
        Size [bytes].

    Source: sglang 0.5.12 srt/layers/quantization/mxfp4_marlin_moe.py; with them a start on eight H200 is met within 2.5 %, without by 16 %.
    """
    name = str(getattr(architecture.quantization, "name", ""))
    compressed = any(isinstance(cache, CompressedLatent) for cache, _ in architecture.cache_groups)
    if not (compressed and name.startswith("mxfp4") and (gpu.compute_capability or "").startswith("9.")):
        return 0
    experts = [tensor for tensor in architecture.tensors if tensor.component == "routed_experts" and tensor.loaded]
    return sum(rank_elements(tensor.shape, tensor, tp) * tensor.copies for tensor in experts) // 32 * 4


def activation_bytes(architecture: Architecture, tp: int, tokens: int, rows: int, element_bytes: int) -> int:
    """The largest peak of a step and the attention workspace: an estimate of what runs in the share left free.

    max(step_peaks) + 384 MiB

    Args:
        architecture: of the model.
        tp: tensor_parallel_size [ranks].
        tokens: of a prefill step [tokens].
        rows: requests that are sampled at once [requests].
        element_bytes: of the model dtype [bytes].

    Returns:
        Size [bytes].

    Source: engines.step_peaks; SGLang does not measure it.
    """
    return max(step_peaks(architecture, tp, tokens, rows, element_bytes).values()) + ATTENTION_WORKSPACE_BYTES


def graph_bytes(layers: int, decode_sizes: int, prefill_sizes: int) -> int:
    """Captured graphs, an estimate: layers * (decode_sizes * 288 KiB + prefill_sizes * 720 KiB).

    >>> graph_bytes(36, 52, 0) < 2**30
    True
    """
    return layers * (decode_sizes * DECODE_GRAPH_BYTES + prefill_sizes * PREFILL_GRAPH_BYTES)
