"""What vLLM takes of one rank's memory before the KV pool, and what lies outside its limit."""

from __future__ import annotations

from math import ceil

from kvtax.architectures.architecture import Architecture
from kvtax.dtypes import DTYPES
from kvtax.engines.vllm.rules import rule
from kvtax.formulas.activation import (
    attention_peak_bytes,
    logits_peak_bytes,
    mlp_peak_bytes,
    moe_workspace_bytes,
    rope_cache_bytes,
)
from kvtax.hardware.gpu import Gpu
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
FRAGMENTATION = 1.04
"""The allocator's own share of a peak: 2 to 10 % over the tensors."""


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


def activation_parts(
    architecture: Architecture, tp: int, tokens: int, rows: int, element_bytes: int, version: tuple[int, ...]
) -> dict[str, int]:
    """The peaks of a profile run; they do not come at once, so the largest counts.

    Source: vllm 0.33.0 v1/worker/gpu profile_run; before 0.16 the sampler took 38.5 B a logit.
    """
    hidden_size = architecture.hidden_size
    padded = ceil_div(architecture.vocab_size, 64) * 64
    parts = {
        "mlp": mlp_peak_bytes(tokens, hidden_size, architecture.intermediate_size, tp, element_bytes),
        "attention": attention_peak_bytes(
            tokens,
            hidden_size,
            architecture.num_attention_heads * architecture.head_dim,
            architecture.num_key_value_heads * architecture.head_dim,
            tp,
            element_bytes,
        ),
    }
    per_logit = rule("sampler_bytes_per_logit", version)
    if per_logit:
        parts["logits"] = int(rows * architecture.vocab_size * per_logit)
    else:
        parts["logits"] = logits_peak_bytes(tokens, rows, hidden_size, padded, tp, element_bytes)
    return parts


def workspace_bytes(architecture: Architecture, tp: int, tokens: int, element_bytes: int) -> int:
    """The persistent workspace of a mixture of experts on one rank; none for a dense model."""
    if not architecture.num_experts or not architecture.moe_intermediate_size:
        return 0
    width = ceil_div(architecture.moe_intermediate_size, tp)
    return moe_workspace_bytes(tokens, architecture.num_experts_per_tok, architecture.hidden_size, width, element_bytes)


def rope_bytes(architecture: Architecture, element_bytes: int) -> int:
    """The rope table of the whole context, which loading keeps beside the parameters."""
    if not architecture.rotary_dim or not architecture.max_position_embeddings:
        return 0
    return rope_cache_bytes(architecture.max_position_embeddings, architecture.rotary_dim, element_bytes)


def padding_bytes(architecture: Architecture, gpu: Gpu, tp: int, version: tuple[int, ...]) -> int:
    """What repacking 4-bit experts (mxfp4) adds on cards without kernels of their own for them.

    Marlin pads the intermediate width of a rank to a multiple of 128 and the hidden width to one of 256, biases too.

    Source: vllm 0.33.0 model_executor/layers/quantization/mxfp4.py; equal to the byte for gpt-oss-120b on A100 (engine run).
    """
    major = (gpu.compute_capability or "").partition(".")[0]
    if (
        getattr(architecture.quantization, "method", None) != "mxfp4"
        or not major.isdecimal()
        or major in rule("mxfp4_kernels", version)
    ):
        return 0
    width, hidden = ceil_div(architecture.moe_intermediate_size, tp), architecture.hidden_size
    wide, high = ceil_div(width, 128) * 128, ceil_div(hidden, 256) * 256
    added = DTYPES["mxfp4"].bytes(3 * (wide * high - width * hidden))
    groups = [tensor for tensor in architecture.tensors if tensor.component == "routed_experts" and tensor.loaded]
    if any(tensor.name.endswith("bias") for tensor in groups):
        added += 2 * (2 * (wide - width) + high - hidden)
    layers = max((len(tensor.layers) for tensor in groups), default=0)
    return layers * architecture.num_experts * added


def capture_sizes(max_num_seqs: int, compute_capability: str) -> int:
    """How many batch sizes are captured as graphs: 1, 2, 4, 8 to 256 by 8, then by 16, up to min(2 max_num_seqs, 512; 1024 on sm100).

    Source: vllm 0.33.0 config/vllm.py (51 sizes on H100).

    >>> capture_sizes(1024, "9.0")
    51
    """
    largest = min(2 * max_num_seqs, 1024 if compute_capability.startswith("10.") else 512)
    small = sum(size <= largest for size in (1, 2, 4))
    middle = min(largest, 256) // 8
    return small + middle + (max(largest, 256) - 256) // 16


def graph_bytes(num_hidden_layers: int, sizes: int) -> int:
    """The pool of captured graphs: num_hidden_layers * sizes * 288 KiB, at least 64 MiB."""
    return max(64 * MIB, num_hidden_layers * sizes * GRAPH_BYTES_PER_LAYER)
