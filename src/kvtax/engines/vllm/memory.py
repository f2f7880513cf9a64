"""What vLLM takes of one rank's memory before the KV pool, and what lies outside its limit."""

from __future__ import annotations

from math import ceil

from kvtax.engines.vllm.part import Part
from kvtax.hardware.gpu import Gpu
from kvtax.terms import Input
from kvtax.units import GIB, KIB, MIB, ceil_div

KNOWN_VENDORS = ("NVIDIA", "AMD", "user")
"""Makers whose cards this engine's memory rules are known for; a card of one's own is taken for one of them."""
CONTEXT_BYTES = GIB // 2
"""CUDA context and handles: torch total minus free before load is 0.45 to 0.6 GiB on one idle card (SGLang and vLLM starts, 2025-26)."""
COMMUNICATOR_BYTES = {1: 0, 2: GIB, 4: 14 * GIB // 10, 8: 18 * GIB // 10}
"""NCCL and custom all-reduce by ranks: free at start is 1.5 GiB below total at two ranks, 2.2 to 2.5 at eight (H100, H200 starts)."""
UNIFIED_OUTSIDE_BYTES = 8 * GIB
"""Unified memory: 7 to 11 GiB are taken by the system (GB10 starts)."""
LEAST_OUTSIDE_BYTES = 3 * GIB // 10
LEAST_UNIFIED_OUTSIDE_BYTES = 5 * GIB
"""What is always taken before the engine loads. Real servers of two ranks started at shares of 0.97 (RTX 4090) and 0.98 (R9700, nine
starts), with at most 0.64 GiB taken; GB10 started at 0.95, with at most 6.1 GiB taken."""
GRAPH_BYTES_PER_LAYER = 288 * KIB
"""CUDA graphs: about 0.45 GiB for 51 sizes of a 32-layer model (0.36 to 0.5 GiB measured for 7B to 8B models)."""
LEAST_GRAPH_BYTES = 64 * MIB
FIRST_GRAPH_BYTES = 96 * MIB
GRAPH_BYTES_PER_TOKEN = 18 * KIB


def communicator_bytes(ranks: int) -> int:
    """Communication buffers of one rank, by the next larger number of ranks that was measured [bytes]."""
    for size in sorted(COMMUNICATOR_BYTES):
        if ranks <= size:
            return COMMUNICATOR_BYTES[size]
    return COMMUNICATOR_BYTES[8]


def outside_bytes(gpu: Gpu, ranks: int) -> int:
    """What lives outside the limit: context and communicators; on unified memory what the system keeps.

    Nothing is known, so nothing is taken, for makers whose cards this engine has no rule for.
    """
    if gpu.vendor not in KNOWN_VENDORS:
        return 0
    if gpu.unified_memory:
        return UNIFIED_OUTSIDE_BYTES
    return CONTEXT_BYTES + communicator_bytes(ranks)


def outside_of_a_start(gpu: Gpu, ranks: int, beside_limit: int) -> int:
    """What lives outside the limit of an engine that starts: the estimate, but no more than the limit leaves of the card.

    An engine refuses to start where less is free than its limit. The estimate (NVLink machines) is above what other machines need,
    so it alone refuses nothing: only the least that was ever seen does.

    Args:
        gpu: the card.
        ranks: of all stages [ranks].
        beside_limit: total - limit [bytes].
    """
    estimate = outside_bytes(gpu, ranks)
    least = LEAST_UNIFIED_OUTSIDE_BYTES if gpu.unified_memory else LEAST_OUTSIDE_BYTES
    return min(estimate, max(beside_limit, least))


def limit_bytes(total_bytes: int, gpu_memory_utilization: float) -> int:
    """ceil(total_bytes * gpu_memory_utilization): what the engine may take.

    Source: vllm 0.33.0 v1/worker/utils.py request_memory.
    """
    return ceil(total_bytes * gpu_memory_utilization)


def capture_sizes(max_num_seqs: int, compute_capability: str) -> int:
    """How many batch sizes are captured as graphs: 1, 2, 4, 8 to 256 by 8, then by 16, up to min(2 max_num_seqs, 512; 1024 on sm100).

    Source: vllm 0.33.0 config/vllm.py (51 sizes on H100).

    >>> capture_sizes(1024, "9.0")
    51
    """
    largest = largest_capture(max_num_seqs, compute_capability)
    small = sum(size <= largest for size in (1, 2, 4))
    middle = min(largest, 256) // 8
    return small + middle + (max(largest, 256) - 256) // 16


def graph_part(num_hidden_layers: int, max_num_seqs: int, compute_capability: str, *, estimated: bool) -> Part:
    """The pool of captured graphs: as measured, or as the engine estimates it before it captures them.

    measured: max(64 MiB, num_hidden_layers * sizes * 288 KiB). Estimated: the first capture, and for each other one what the second took, at least
    1 MiB: 96 MiB + (graphs - 2) * max(1 MiB, largest * 18 KiB), where graphs counts the sizes twice (pieces and, up to max_num_seqs, whole steps).

    Source: vllm 0.22.0 v1/worker/gpu_model_runner.py profile_cudagraph_memory. The constants rest on seven estimates that starts of 0.19 to 0.26
    printed: 0.13 to 0.15 GiB for 16 to 64 requests, 0.79 and 0.93 for 256; a 7 GiB model's 2.44 is not met.
    """
    sizes = capture_sizes(max_num_seqs, compute_capability)
    if not estimated:
        layers = {
            "num_hidden_layers": Input(num_hidden_layers, "layers", "config.json"),
            "sizes": Input(sizes, "graphs", "capture sizes"),
            "layer_bytes": Input(GRAPH_BYTES_PER_LAYER, "B", "measured on 7B to 8B models"),
        }
        size = num_hidden_layers * sizes * GRAPH_BYTES_PER_LAYER
        if size >= LEAST_GRAPH_BYTES:
            return Part(
                "cuda_graphs", size, "num_hidden_layers * sizes * layer_bytes", layers, "measured on 7B to 8B models"
            )
        least = {"least_bytes": Input(LEAST_GRAPH_BYTES, "B", "measured")}
        return Part("cuda_graphs", LEAST_GRAPH_BYTES, "least_bytes", least, "measured on small models")
    largest = largest_capture(max_num_seqs, compute_capability)
    graphs = sizes + capture_sizes(ceil_div(min(max_num_seqs, largest), 2), compute_capability)
    each = max(MIB, largest * GRAPH_BYTES_PER_TOKEN)
    inputs = {
        "first_bytes": Input(FIRST_GRAPH_BYTES, "B", "measured"),
        "graphs": Input(max(graphs, 2), "graphs", f"sizes up to {largest}, in pieces and whole"),
        "graph_bytes": Input(each, "B", f"largest size {largest} x {GRAPH_BYTES_PER_TOKEN} B, at least 1 MiB"),
    }
    size = FIRST_GRAPH_BYTES + (max(graphs, 2) - 2) * each
    source = "vllm v1/worker/gpu_model_runner.py profile_cudagraph_memory"
    return Part("cuda_graphs", size, "first_bytes + (graphs - 2) * graph_bytes", inputs, source)


def largest_capture(max_num_seqs: int, compute_capability: str) -> int:
    """The largest batch size that is captured: min(2 * max_num_seqs, 512; 1024 on sm100)."""
    return min(2 * max_num_seqs, 1024 if compute_capability.startswith("10.") else 512)
