"""What TensorRT-LLM finds taken before it sizes its KV memory."""

from __future__ import annotations

from kvtax.units import KIB

GRAPH_BYTES_PER_LAYER = 288 * KIB
"""Estimate: what vLLM's graphs take for a layer and size; no start of TensorRT-LLM prints its own figure apart."""


def graph_bytes(num_hidden_layers: int, sizes: int) -> int:
    """The pool of captured graphs.

    num_hidden_layers * sizes * 294912

    Args:
        num_hidden_layers: of this rank [layers].
        sizes: captured batch sizes [graphs].

    Returns:
        Size [bytes].

    Source: GRAPH_BYTES_PER_LAYER.

    >>> graph_bytes(32, 34)
    320864256
    """
    return num_hidden_layers * sizes * GRAPH_BYTES_PER_LAYER


def share_of_free(free_bytes: int, fraction: float) -> int:
    """What KV may take of what is free after the peak: floor(free_bytes * fraction), negative where nothing is left.

    Args:
        free_bytes: total - peak, signed [bytes].
        fraction: free_gpu_memory_fraction.

    Returns:
        Size [bytes].

    Source: NVIDIA/TensorRT-LLM tensorrt_llm/_torch/pyexecutor/_util.py _cal_max_memory.

    >>> share_of_free(-100, 0.9)
    -90
    """
    return int(free_bytes * fraction // 1)
