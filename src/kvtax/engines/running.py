"""What is alike in engines that load a checkpoint as it is: the dtype that runs, its cache format, reasons not to start."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import ChunkedLocal, CompressedLatent, FullAttention, MultiHeadLatent, SlidingWindow
from kvtax.deployment import Deployment
from kvtax.dtypes import find_dtype, resolve_kv_dtype
from kvtax.errors import InputError
from kvtax.hardware.gpu import Gpu
from kvtax.terms import Notice
from kvtax.units import GIB

RUNNING = ("float16", "bfloat16", "float32")
CONTEXT_BYTES = GIB // 2
"""CUDA context and library handles: the total that torch sees minus what is free before loading is 0.45 to 0.6 GiB on an idle card."""
COMMUNICATOR_BYTES = {1: 0, 2: GIB, 4: 14 * GIB // 10, 8: 18 * GIB // 10}
"""NCCL and all-reduce buffers of one rank: free at start is 1.3 to 2.0 GiB lower with eight ranks, 2.2 GiB with four (B200).

Source: logs of SGLang starts of 2025-26, which print free memory before and after the groups are made.
"""
UNIFIED_OUTSIDE_BYTES = 8 * GIB
"""Unified memory: the system keeps 7 to 11 GiB (GB10 starts)."""


def outside_bytes(gpu: Gpu, ranks: int, total_bytes: int, free_memory: int | None = None) -> int:
    """What is taken before an engine loads: context and communicators, or what a given free figure says.

    total - free_memory where that is given; else context + communicators of the next larger number of ranks.

    Args:
        gpu: the card.
        ranks: tensor x pipeline parallel size [ranks].
        total_bytes: of the card [bytes].
        free_memory: at start, where it is known [bytes].

    Returns:
        Size [bytes].

    Source: CONTEXT_BYTES and COMMUNICATOR_BYTES.
    """
    if free_memory is not None:
        return max(total_bytes - free_memory, 0)
    if gpu.unified_memory:
        return UNIFIED_OUTSIDE_BYTES
    size = next((size for size in sorted(COMMUNICATOR_BYTES) if ranks <= size), max(COMMUNICATOR_BYTES))
    return CONTEXT_BYTES + COMMUNICATOR_BYTES[size]


def resolve_dtype(
    deployment: Deployment, architecture: Architecture, *, float32_runs_in: str, engine: str
) -> tuple[str, str]:
    """The dtype that runs, and where it comes from: what is asked, else the checkpoint's, float32 as the engine takes it.

    Args:
        deployment: of the question.
        architecture: of the model.
        float32_runs_in: what the engine makes of a float32 checkpoint.
        engine: its name.

    Returns:
        The dtype, and its origin.

    Raises:
        InputError: a dtype that models do not run in.

    Source: each engine's rules.
    """
    if deployment.dtype is not None and deployment.dtype != "auto":
        name = find_dtype(deployment.dtype).name
        if name not in RUNNING:
            raise InputError(
                f"dtype {name} is not one that models run in",
                code="invalid-dtype",
                hint="float16, bfloat16 or float32; for 8 and 4 bit see --quantization",
            )
        return name, "flag"
    if architecture.dtype == "float32" and float32_runs_in != "float32":
        return float32_runs_in, f"{engine}: float32 checkpoints run in 16 bit"
    return architecture.dtype, "config.json" if architecture.dtype_stated else "assumed"


def resolve_kv_cache_dtype(
    deployment: Deployment, architecture: Architecture, dtype: str, *, sparse_rows: bool
) -> tuple[str, str]:
    """The format of keys and values, and where it comes from: asked, else of the checkpoint's quantisation, else the model's.

    Args:
        deployment: of the question.
        architecture: of the model.
        dtype: that the model runs in.
        sparse_rows: 8-bit rows of sparse latent attention hold scales and a 16-bit rotary key (656 B for 512 + 64 elements).

    Returns:
        The format, and its origin.

    Source: each engine's rules.
    """
    asked = deployment.kv_cache_dtype
    sparse = any(isinstance(cache, MultiHeadLatent) and cache.index_bytes for cache in architecture.caches)
    compressed = any(isinstance(cache, CompressedLatent) for cache in architecture.caches)
    if asked is None or asked == "auto":
        declared = getattr(architecture.quantization, "kv_cache_dtype", None)
        name, origin = (
            (resolve_kv_dtype(declared), "quantization_config") if declared else (dtype, "dtype of the model")
        )
    else:
        name, origin = resolve_kv_dtype(asked), "flag"
    if name in ("fp8", "fp8_e4m3") and sparse_rows and (sparse or compressed):
        return "fp8_ds_mla", f"{origin} (8-bit rows of sparse latent attention)"
    return ("fp8_e4m3" if name == "fp8" else name), origin


def sharing_refusal(deployment: Deployment, architecture: Architecture, ranks: int) -> Notice | None:
    """Parallel sizes over which no engine shares a model out: query heads, cards, stages.

    Args:
        deployment: of the question.
        architecture: of the model.
        ranks: cards that the parallel sizes need [ranks].

    Returns:
        The reason, or None.

    Source: tensor parallelism splits query heads evenly in every engine.
    """
    tp, heads = deployment.tensor_parallel_size, architecture.num_attention_heads
    if heads and heads % tp:
        choices = [str(n) for n in range(1, min(heads, 64) + 1) if heads % n == 0]
        message = f"{heads} attention heads do not divide by tensor_parallel_size {tp}"
        return Notice("heads-not-divisible", message, "use one of " + ", ".join(choices))
    if deployment.gpu_count is not None and deployment.gpu_count < ranks:
        message = f"the parallel sizes need {ranks} cards, and gpu_count is {deployment.gpu_count}"
        return Notice("too-few-gpus", message, "lower --tp, --pp or --dp, or raise --gpu-count")
    if deployment.pipeline_parallel_size > architecture.num_hidden_layers:
        message = (
            f"{architecture.num_hidden_layers} layers do not fill {deployment.pipeline_parallel_size} pipeline stages"
        )
        return Notice("too-many-stages", message, "lower --pp")
    return None


def refusal(deployment: Deployment, architecture: Architecture, gpu: Gpu, dtype: str) -> Notice | None:
    """The first reason but memory for which no engine of this kind starts, or None.

    Source: `sharing_refusal`; cards before Ampere have no bfloat16.
    """
    ranks = deployment.tensor_parallel_size * deployment.pipeline_parallel_size * deployment.data_parallel_size
    uneven = sharing_refusal(deployment, architecture, ranks)
    if uneven is not None:
        return uneven
    if dtype == "bfloat16" and gpu.supports_bf16 is False:
        message = f"{gpu.name} has no bfloat16 (compute capability {gpu.compute_capability})"
        return Notice("dtype-not-on-card", message, "use --dtype float16")
    return None


def uneven_kv_heads(architecture: Architecture, tp: int) -> int:
    """Key/value heads that do not divide by `tp`; 0 where all layers' do [heads]."""
    for cache, _ in architecture.cache_groups:
        if isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal)) and cache.num_key_value_heads % tp:
            return cache.num_key_value_heads
    return 0
