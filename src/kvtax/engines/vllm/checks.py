"""What vLLM refuses for another reason than memory, and the dtypes it settles on."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CompressedLatent, MultiHeadLatent
from kvtax.deployment import Deployment
from kvtax.dtypes import find_dtype, resolve_kv_dtype
from kvtax.errors import InputError
from kvtax.hardware.gpu import Gpu
from kvtax.terms import Notice

NO_FLOAT16 = ("gemma2", "gemma3", "gemma3_text", "glm4", "plamo2")
"""Model types that overflow in float16 and are refused with it (vllm config/model.py)."""


def resolve_dtype(deployment: Deployment, architecture: Architecture, gpu: Gpu) -> tuple[str, str, Notice | None]:
    """The dtype that runs, where it comes from, and what to say about it.

    auto: float32 checkpoints run in bfloat16, and bfloat16 in float16 on a card without it.

    Source: vllm 0.33.0 config/model.py _resolve_auto_dtype; logs of 2025-07 and later show the fallback.
    """
    if deployment.dtype is not None and deployment.dtype != "auto":
        name = find_dtype("float16" if deployment.dtype == "half" else deployment.dtype).name
        if name not in ("float16", "bfloat16", "float32"):
            raise InputError(
                f"dtype {name} is not one that models run in",
                code="invalid-dtype",
                hint="float16, bfloat16 or float32; for 8 and 4 bit see --quantization",
            )
        return name, "flag", None
    name, origin = architecture.dtype, "config.json" if architecture.dtype_stated else "assumed"
    if name == "float32":
        name, origin = "bfloat16", "vllm: float32 checkpoints run in 16 bit"
    if name == "bfloat16" and gpu.supports_bf16 is False:
        notice = Notice(
            "dtype-falls-back",
            f"{gpu.name} has no bfloat16: the engine falls back to float16",
            "asked for with --dtype bfloat16 it is refused",
        )
        return "float16", "vllm: the card has no bfloat16", notice
    return name, origin, None


def resolve_kv_cache_dtype(deployment: Deployment, architecture: Architecture, dtype: str) -> tuple[str, str]:
    """The format of keys and values, and where it comes from."""
    asked = deployment.kv_cache_dtype
    sparse = any(isinstance(cache, MultiHeadLatent) and cache.index_bytes for cache in architecture.caches)
    compressed = any(isinstance(cache, CompressedLatent) for cache in architecture.caches)
    if compressed and asked in (None, "auto", "fp8", "fp8_e4m3", "fp8_ds_mla"):
        return "fp8_ds_mla", "the engine's only layout for compressed caches"
    if asked is None or asked == "auto":
        declared = getattr(architecture.quantization, "kv_cache_dtype", None)
        if declared and not sparse:
            return resolve_kv_dtype(declared), "quantization_config"
        return dtype, "dtype of the model"
    if sparse and asked in ("fp8", "fp8_e4m3"):
        return "fp8_ds_mla", "flag (fp8 means fp8_ds_mla for sparse latent attention)"
    return resolve_kv_dtype(asked), "flag"


def refusal(
    deployment: Deployment, architecture: Architecture, gpu: Gpu, dtype: str, kv_cache_dtype: str
) -> Notice | None:
    """The first reason for which the engine would not start, or None.

    Source: vllm 0.33.0 config/model.py, platforms/cuda.py, v1/attention/backends.
    """
    tp = deployment.tensor_parallel_size
    if architecture.num_attention_heads and architecture.num_attention_heads % tp:
        choices = [
            n
            for n in range(1, architecture.num_attention_heads + 1)
            if architecture.num_attention_heads % n == 0 and n <= 64
        ]
        return Notice(
            "heads-not-divisible",
            f"{architecture.num_attention_heads} attention heads do not divide by tensor_parallel_size {tp}",
            "use one of " + ", ".join(map(str, choices)),
        )
    if dtype == "bfloat16" and gpu.supports_bf16 is False:
        return Notice(
            "dtype-not-on-card",
            f"{gpu.name} has no bfloat16 (compute capability {gpu.compute_capability})",
            "use --dtype float16",
        )
    if dtype == "float16" and architecture.model_type in NO_FLOAT16:
        return Notice(
            "dtype-not-for-model",
            f"{architecture.model_type} is numerically unstable in float16, and the engine refuses it",
            "use a card with bfloat16, or --dtype float32",
        )
    if deployment.pipeline_parallel_size > architecture.num_hidden_layers:
        return Notice(
            "too-many-stages",
            f"{architecture.num_hidden_layers} layers do not fill {deployment.pipeline_parallel_size} pipeline stages",
        )
    dcp = deployment.decode_context_parallel_size
    if dcp > 1 and tp % dcp:
        return Notice(
            "dcp-not-divisible", f"tensor_parallel_size {tp} does not divide by decode_context_parallel_size {dcp}"
        )
    if kv_cache_dtype.startswith("nvfp4") and gpu.supports_fp4 is not True:
        return Notice(
            "kv-dtype-not-on-card",
            f"{gpu.name} has no 4-bit floats, which kv_cache_dtype {kv_cache_dtype} needs",
            "use --kv-cache-dtype fp8 or int8_per_token_head",
        )
    if kv_cache_dtype.startswith("fp8") and gpu.supports_fp8 is not True and not _emulates_fp8(gpu, kv_cache_dtype):
        return Notice(
            "kv-dtype-not-on-card",
            f"{gpu.name} has no 8-bit floats, which kv_cache_dtype {kv_cache_dtype} needs",
            "use --kv-cache-dtype int8_per_token_head, or leave it out",
        )
    method = getattr(architecture.quantization, "method", None)
    if method == "bitsandbytes" and deployment.engine_version is None:
        return Notice(
            "quantization-not-supported",
            "vllm 0.33 no longer loads bitsandbytes checkpoints",
            "use an AWQ, GPTQ or compressed-tensors checkpoint",
        )
    return None


def _emulates_fp8(gpu: Gpu, kv_cache_dtype: str) -> bool:
    """Ampere stores e5m2 and computes in 16 bit; e4m3 fails to compile there (vllm-project/vllm#26431)."""
    major = (gpu.compute_capability or "").partition(".")[0]
    return major.isdecimal() and int(major) >= 8 and kv_cache_dtype == "fp8_e5m2"
