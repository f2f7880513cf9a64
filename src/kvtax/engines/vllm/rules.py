"""vLLM's defaults by version: one entry per change, with its source."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CompressedLatent, MultiHeadLatent
from kvtax.engines.base import Rule, Version, find_rule
from kvtax.hardware.gpu import Gpu
from kvtax.units import GIB

NEWEST = (0, 33)
OLDEST = (0, 8)


RULES = (
    Rule("gpu_memory_utilization", (0, 0), 0.90, "vllm config/cache.py 0.8.5 to 0.19.1"),
    Rule("gpu_memory_utilization", (0, 20), 0.92, "vllm config/cache.py 0.20.0"),
    Rule("cuda_graphs_inside", (0, 0), False, "vllm v1/worker/gpu_worker.py before 0.20: graphs are captured outside the limit"),
    Rule("cuda_graphs_inside", (0, 20), True, "vllm v1/worker/gpu_worker.py 0.20.0: an estimate is subtracted before the pool"),
    Rule("sampler_bytes_per_logit", (0, 0), 38.5, "measured in 12 starts of vllm 0.8 to 0.15: float32 logits with the sort's copies"),
    Rule("sampler_bytes_per_logit", (0, 16), 0.0, "starts of vllm 0.17 and later no longer show the term"),
    Rule("in_flight_steps", (0, 0), 1, "vllm v1/kv_cache_interface.py: one step of max_num_batched_tokens"),
    Rule("in_flight_steps", (0, 26), 2, "vllm 0.26: two batches are in flight with async scheduling"),
    Rule("reserved_blocks", (0, 0), 0, "vllm v1/core/kv_cache_utils.py"),
    Rule("reserved_blocks", (0, 30), 1, "vllm 0.30: the null block is kept back when one request is checked"),
    Rule("mxfp4_kernels", (0, 0), (), "a start of vllm 0.11 on H100 prints 65.97 GiB for gpt-oss-120b: padded"),
    Rule("mxfp4_kernels", (0, 13), ("9", "10"), "vllm 0.33.0 on H100 loads experts as stored (engine run); the release that began is not known"),
    Rule("longrope_original", (0, 0), False, "vllm config.py: the longest context is the default"),
    Rule("longrope_original", (0, 12), True, "vllm-project/vllm#27431 (2025-10): the original context of LongRoPE is the default"),
    Rule("token_count", (0, 0), "blocks", "vllm 0.8: num_blocks x block_size"),
    Rule("token_count", (0, 9), "groups", "vllm 0.9 to 0.20: num_blocks // groups x block_size"),
    Rule("token_count", (0, 21), "concurrency", "vllm 0.22: concurrency x max_model_len (0.21 not checked)"),
)  # fmt: skip


def rule(name: str, version: Version) -> Any:
    """The value of a rule at a version: the last entry whose `since` is not later."""
    return find_rule(RULES, name, version)


def default_max_num_batched_tokens(gpu: Gpu, total_bytes: int) -> int:
    """Tokens of one step of the API server.

    >= 160 GiB: 16384; >= 70 GiB and neither A100 nor GB10: 8192; else 2048.

    Source: vllm 0.33.0 engine/arg_utils.py get_batch_defaults.
    """
    if total_bytes >= 160 * GIB:
        return 16384
    return 8192 if _large(gpu, total_bytes) else 2048


def default_max_num_seqs(gpu: Gpu, total_bytes: int) -> int:
    """Requests that run at once: >= 70 GiB and neither A100 nor GB10: 1024; else 256.

    Source: vllm 0.33.0 engine/arg_utils.py get_batch_defaults.
    """
    return 1024 if _large(gpu, total_bytes) else 256


def _large(gpu: Gpu, total_bytes: int) -> bool:
    # the engine looks for "a100" in the name that the driver gives; an A800 is not one
    name = gpu.name.lower()
    return total_bytes >= 70 * GIB and "a100" not in name and not gpu.unified_memory


def attention_block_size(architecture: Architecture, gpu: Gpu, kv_cache_dtype: str) -> int:
    """Tokens of a block that the attention backend takes by default.

    16; latent attention: 64 where it is sparse, 128 on Blackwell, 64 with fp8 on Hopper.

    Source: vllm 0.33.0 platforms/cuda.py and the backends it chooses (reproduced for H100, B200, A100, L4).
    """
    capability = gpu.compute_capability or ""
    for cache, _ in architecture.cache_groups:
        if isinstance(cache, CompressedLatent):
            return 256
        if isinstance(cache, MultiHeadLatent):
            if any(isinstance(other, MultiHeadLatent) and other.index_bytes for other, _ in architecture.cache_groups):
                return 64
            if capability.startswith(("10.", "11.")):
                return 128
            return 64 if capability.startswith("9.") and not kv_cache_dtype.endswith("16") else 16
    return 16
