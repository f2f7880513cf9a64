"""Features that vLLM has since a version, or combines only under conditions: context parallelism, adapters, cache formats."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CompressedLatent, FullAttention, MultiHeadLatent
from kvtax.deployment import Deployment
from kvtax.dtypes import TURBOQUANT_BITS
from kvtax.engines.base import Version
from kvtax.terms import Notice

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""max_lora_rank is one of these (vllm config/lora.py MaxLoRARanks)."""
FORMATS_SINCE = {
    "fp8_ds_mla": (0, 11), "int8_per_token_head": (0, 19), "fp8_per_token_head": (0, 19), "nvfp4": (0, 20),
    "int4_per_token_head": (0, 22), "nvfp4_ds_mla": (0, 26), "nvfp4_4over6": (0, 28),
    **dict.fromkeys(TURBOQUANT_BITS, (0, 20)),
}  # fmt: skip
"""The first version with a cache format. Read: 0.11.2 (fp8_ds_mla); the list of 0.20 has turboquant, nvfp4 and the 8-bit per-token-head
formats, that of 0.33 all; the releases between are put where the format is first read, not checked one by one."""


def refusal(deployment: Deployment, architecture: Architecture, kv_cache_dtype: str, version: Version) -> Notice | None:
    """The first feature that the engine would refuse, or None.

    Source: vllm 0.33.0 config/parallel.py, config/model.py verify_with_parallel_config, config/lora.py, config/cache.py.
    """
    return (
        _context_parallel_refusal(deployment, architecture, version)
        or _lora_refusal(deployment)
        or _format_refusal(architecture, kv_cache_dtype, version)
        or _ranks_refusal(deployment)
    )


def notices(deployment: Deployment) -> list[Notice]:
    """What is taken as given without a rule of its own."""
    found = []
    if deployment.enable_chunked_prefill is False:
        message = (
            "without chunked prefill a step takes a whole prompt: max_num_batched_tokens is at least max_model_len"
        )
        found.append(Notice("whole-prompt-steps", message))
    return found


def _context_parallel_refusal(deployment: Deployment, architecture: Architecture, version: Version) -> Notice | None:
    dcp = deployment.decode_context_parallel_size
    if deployment.prefill_context_parallel_size > 1 and version < (0, 12):
        message = "prefill context parallelism came with vllm 0.12"
        return Notice("pcp-not-in-version", message, "leave --prefill-context-parallel-size out")
    latent = any(isinstance(cache, (MultiHeadLatent, CompressedLatent)) for cache in architecture.caches)
    heads = max((c.num_key_value_heads for c in architecture.caches if isinstance(c, FullAttention)), default=0)
    if dcp > 1 and version < (0, 10):
        return Notice("dcp-not-in-version", "decode context parallelism came with vllm 0.10.2", "use a newer version")
    if dcp > 1 and heads and not latent and architecture.num_attention_heads // heads % dcp:
        message = f"{architecture.num_attention_heads // heads} query heads of a key/value head do not divide by {dcp}"
        return Notice("dcp-heads", message, "use a divisor")
    return None


def _lora_refusal(deployment: Deployment) -> Notice | None:
    lora = deployment.lora
    if lora is None or lora.max_lora_rank in LORA_RANKS:
        return None
    higher = [rank for rank in LORA_RANKS if rank > lora.max_lora_rank]
    hint = f"use {higher[0]}, which takes adapters of a lower rank too" if higher else f"use {LORA_RANKS[-1]} or less"
    message = f"max_lora_rank {lora.max_lora_rank} is none of {', '.join(map(str, LORA_RANKS))}"
    return Notice("lora-rank-not-supported", message, hint)


def _format_refusal(architecture: Architecture, kv_cache_dtype: str, version: Version) -> Notice | None:
    since = FORMATS_SINCE.get(kv_cache_dtype)
    compressed = any(isinstance(cache, CompressedLatent) for cache in architecture.caches)
    if since is not None and version < since and not compressed:
        message = f"kv_cache_dtype {kv_cache_dtype} came with vllm {since[0]}.{since[1]}"
        return Notice("kv-dtype-not-in-version", message, "use fp8, or a newer version")
    latent = any(isinstance(cache, MultiHeadLatent) for cache in architecture.caches)
    if kv_cache_dtype in TURBOQUANT_BITS and latent:
        message = f"kv_cache_dtype {kv_cache_dtype} is for plain attention, and the model keeps latents"
        return Notice("kv-dtype-not-for-model", message, "use fp8")
    return None


def _ranks_refusal(deployment: Deployment) -> Notice | None:
    """Prefill context parallelism has ranks of its own."""
    pcp = deployment.prefill_context_parallel_size
    ranks = deployment.tensor_parallel_size * deployment.pipeline_parallel_size * pcp * deployment.data_parallel_size
    if pcp == 1 or deployment.gpu_count is None or deployment.gpu_count >= ranks:
        return None
    message = f"the parallel sizes need {ranks} cards, and gpu_count is {deployment.gpu_count}"
    return Notice("too-few-gpus", message, "lower a parallel size, or raise --gpu-count")
