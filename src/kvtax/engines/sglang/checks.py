"""The formats that SGLang settles on, and what it refuses for another reason than memory."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CompressedLatent, MultiHeadLatent, Recurrent
from kvtax.architectures.registry import is_encoder_type
from kvtax.deployment import Deployment
from kvtax.dtypes import resolve_kv_dtype
from kvtax.engines import running
from kvtax.engines.base import Version
from kvtax.hardware.gpu import Gpu
from kvtax.terms import Notice

FP4_NAMES = ("fp4_e2m1", "nvfp4", "fp4_mx_block16", "fp4")
PAGE_SIZES = {
    "flashmla": 64, "cutlass_mla": 128, "trtllm_mla": 64, "trtllm_mha": 64, "dual_chunk_flash_attn": 1, "ascend": 128,
}  # fmt: skip
"""Tokens of a page that an attention backend insists on (sglang 0.4.10 to 0.5.12 srt/server_args.py)."""

ENCODERS = (
    "BertModel", "BertForSequenceClassification", "Contriever", "XLMRobertaModel", "XLMRobertaForSequenceClassification",
)  # fmt: skip
"""Classes of encoders that are served (sglang 0.5 srt/models/bert.py, roberta.py: EntryClass)."""

SPARSE_ON_CAPABILITY_12 = (0, 5, 13)
"""The first release with kernels of sparse latent attention for it (srt/layers/attention/flash_mla_sm120.py)."""
RAW_ROWS_ON_ROCM = (0, 5, 10)


def is_sparse_latent(architecture: Architecture) -> bool:
    """Whether latent attention has an indexer (DSA)."""
    return any(isinstance(cache, MultiHeadLatent) and cache.index_bytes for cache, _ in architecture.cache_groups)


def is_latent(architecture: Architecture) -> bool:
    """Whether attention is latent (MLA)."""
    return any(isinstance(cache, MultiHeadLatent) for cache, _ in architecture.cache_groups)


def resolve_dtype(deployment: Deployment, architecture: Architecture, gpu: Gpu) -> tuple[str, str]:
    """The dtype that runs and where it comes from: float32 checkpoints in bfloat16, bfloat16 in float16 on a card without it.

    Source: sglang 0.5.23 srt/configs/model_config.py _get_and_verify_dtype.
    """
    name, origin = running.resolve_dtype(deployment, architecture, float32_runs_in="bfloat16", engine="sglang")
    if origin == "flag":
        return name, origin
    if name == "bfloat16" and gpu.supports_bf16 is False:
        return "float16", "sglang: the card has no bfloat16"
    return name, origin


def resolve_kv_cache_dtype(
    deployment: Deployment, architecture: Architecture, gpu: Gpu, dtype: str, version: Version
) -> tuple[str, str]:
    """The format of keys and values and where it comes from.

    Sparse latent attention: fp8 on Blackwell unless told otherwise, on compute capability 12 since it has kernels for it; fp8 rows carry
    scales (`fp8_ds_mla`) but for kernels that read them raw.

    Source: sglang 0.5.12 srt/server_args.py _set_default_nsa_kv_cache_dtype, 0.5.23 calculate_mla_kv_cache_dim; voipmonitor/rtx6kpro
    models/glm5.md: 16 bit is the only format that ran on capability 12 in the spring of 2026.
    """
    asked = deployment.kv_cache_dtype
    asked = None if asked == "auto" else asked
    sparse = is_sparse_latent(architecture)
    if any(isinstance(cache, CompressedLatent) for cache, _ in architecture.cache_groups):
        return "fp8_ds_mla", "the engine's only layout for compressed caches"
    if asked is None and sparse:
        fp8 = is_blackwell(gpu) and (version >= SPARSE_ON_CAPABILITY_12 or not is_capability_12(gpu))
        asked = "fp8_e4m3" if fp8 else "bfloat16"
        origin = "sglang: sparse latent attention, by card"
    elif asked is None:
        declared = getattr(architecture.quantization, "kv_cache_dtype", None)
        if declared and resolve_kv_dtype(declared).startswith("fp8"):
            return "fp8_e4m3", "quantization_config"
        return dtype, "dtype of the model"
    else:
        origin = "flag"
    if asked in FP4_NAMES:
        return "nvfp4", origin
    if asked == "mxfp8":
        return "mxfp8", origin
    name = resolve_kv_dtype(asked)
    if sparse and name in ("fp8", "fp8_e4m3") and not reads_raw_rows(deployment, architecture, gpu, version):
        return "fp8_ds_mla", origin
    return ("fp8_e4m3" if name == "fp8" else name), origin


def is_blackwell(gpu: Gpu) -> bool:
    """Whether the card is of compute capability 10 or later."""
    major = (gpu.compute_capability or "").partition(".")[0]
    return major.isdecimal() and int(major) >= 10


def is_capability_12(gpu: Gpu) -> bool:
    """Whether the card is a Blackwell for desks (RTX 50, RTX PRO, GB10), whose kernels differ from the data centre's."""
    return (gpu.compute_capability or "").startswith("12.")


def reads_raw_rows(deployment: Deployment, architecture: Architecture, gpu: Gpu, version: Version) -> bool:
    """Whether the kernels of sparse latent attention read fp8 rows without scales: trtllm on Blackwell, tilelang and triton on ROCm.

    Source: sglang 0.5.10 and 0.5.12 srt/model_executor/model_runner_kv_cache_mixin.py (0.5.9 has scales on ROCm, as a start on MI355X
    prints); 0.5.23 srt/arg_groups/overrides.py (GLM on capability 12 takes rows with scales).
    """
    if deployment.attention_backend is not None and "trtllm" in deployment.attention_backend:
        return True
    if gpu.vendor == "AMD":
        return version >= RAW_ROWS_ON_ROCM
    return is_blackwell(gpu) and not (is_capability_12(gpu) and architecture.model_type.startswith("glm"))


def page_size(deployment: Deployment, architecture: Architecture, gpu: Gpu) -> int:
    """Tokens of a page where none is asked for: 1, or what the attention backend insists on.

    DeepSeek V4: 256; sparse latent attention: 64; a dense decoder on Blackwell data-centre cards: 64.

    Source: sglang 0.5.12 srt/server_args.py; a start on GB300 printed a multiple of 64 tokens.
    """
    if any(isinstance(cache, CompressedLatent) for cache, _ in architecture.cache_groups):
        return 256
    if deployment.attention_backend is not None:
        return PAGE_SIZES.get(deployment.attention_backend, 64 if is_sparse_latent(architecture) else 1)
    if is_sparse_latent(architecture):
        return 64
    recurrent = any(isinstance(cache, Recurrent) for cache, _ in architecture.cache_groups)
    return 64 if (gpu.compute_capability or "").startswith("10.") and not recurrent else 1


def refusal(deployment: Deployment, architecture: Architecture, gpu: Gpu, kv: str, version: Version) -> Notice | None:
    """The first reason for which the server would not start, or None.

    Source: sglang 0.5.23 srt/arg_groups/parallel_hook.py, srt/layers, srt/server_args.py.
    """
    tp, dp = deployment.tensor_parallel_size, deployment.data_parallel_size
    if is_encoder_type(architecture.model_type) and architecture.name not in ENCODERS:
        message = f"sglang serves no encoder of the class {architecture.name}"
        return Notice("encoder-not-served", message, "use --engine vllm")
    heads = architecture.num_attention_heads
    ranks = tp
    if deployment.enable_dp_attention:
        if tp % dp:
            message = f"tensor_parallel_size {tp} does not divide by data_parallel_size {dp}, which DP attention needs"
            return Notice("dp-attention-not-divisible", message, f"use a --dp that divides {tp}")
        if dp == 1 and version < (0, 5, 0):
            return Notice("dp-attention-alone", "DP attention needs a data_parallel_size above 1", "raise --dp")
        ranks = tp // dp
    if heads and heads % ranks:
        choices = [str(size) for size in range(1, min(heads, 64) + 1) if heads % size == 0]
        message = f"{heads} attention heads do not divide by {ranks} attention ranks"
        return Notice("heads-not-divisible", message, "use one of " + ", ".join(choices))
    if deployment.expert_parallel and not architecture.num_experts:
        return Notice("no-experts", f"{architecture.name} has no experts to share out", "leave --ep out")
    if architecture.num_experts and deployment.expert_parallel and architecture.num_experts % tp:
        message = f"{architecture.num_experts} experts do not divide by {tp} ranks"
        return Notice("experts-not-divisible", message, "leave --ep out, or change --tp")
    if deployment.pipeline_parallel_size > max(architecture.num_hidden_layers, 1):
        message = f"{architecture.num_hidden_layers} layers cannot be shared out over {deployment.pipeline_parallel_size} stages"
        return Notice("stages-above-layers", message, "lower --pp")
    if is_sparse_latent(architecture) and kv not in ("bfloat16", "fp8_e4m3", "fp8_ds_mla"):
        return Notice(
            "kv-dtype-not-supported",
            f"sparse latent attention takes bfloat16 or fp8_e4m3 keys, not {kv}",
            "use --kv-cache-dtype fp8_e4m3",
        )
    if deployment.dtype in ("bfloat16", "bf16") and gpu.supports_bf16 is False:
        return Notice("dtype-not-on-card", f"{gpu.name} has no bfloat16", "use --dtype float16")
    return None
