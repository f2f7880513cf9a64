"""What vLLM refuses for another reason than memory, and the dtypes it settles on."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import ChunkedLocal, CompressedLatent, FullAttention, MultiHeadLatent, SlidingWindow
from kvtax.architectures.registry import is_encoder_type
from kvtax.deployment import Deployment
from kvtax.dtypes import resolve_kv_dtype
from kvtax.engines import running
from kvtax.engines.base import read_version
from kvtax.engines.vllm.rules import NEWEST
from kvtax.hardware.gpu import Gpu
from kvtax.terms import Notice

MINIMUM_CAPABILITY = {"awq": (7, 5), "fp8": (7, 5), "compressed-tensors": (7, 0), "mxfp4": (8, 0), "modelopt": (7, 5)}
"""Compute capability that a quantisation's kernels need.

Source: vllm model_executor/layers/quantization, get_min_capability of each; 7.0 of compressed-tensors is the least that any of its
schemes needs. Releases before fp8 had kernels for Turing refuse it below 8.0.
"""
LAST_SERVED = {"MiniMaxText01ForCausalLM": (0, 23)}
"""Classes that were dropped, with the last version that has them (vllm 0.33.0 model_executor/models/registry.py)."""
NO_FLOAT16 = ("gemma2", "gemma3", "gemma3_text", "glm4", "plamo2")
"""Model types that overflow in float16 and are refused with it (vllm config/model.py)."""

ENCODERS = frozenset((
    "BertModel", "BertForSequenceClassification", "BertForTokenClassification", "RobertaModel", "RobertaForMaskedLM",
    "RobertaForSequenceClassification", "XLMRobertaModel", "XLMRobertaForSequenceClassification", "ModernBertModel",
    "ModernBertForSequenceClassification", "ModernBertForTokenClassification", "NomicBertModel", "GteModel", "GteNewModel",
    "GteNewForSequenceClassification",
))  # fmt: skip
"""Classes of encoders that vLLM has a model of its own for (vllm 0.12 model_executor/models/registry.py)."""
RENAMED_ENCODERS = {"NewModel": "GteNewModel", "NewForSequenceClassification": "GteNewForSequenceClassification"}
"""Classes that have to be named anew to be served (examples in vllm's docs/models/supported_models.md)."""

POOLING_WORDS = frozenset(("embedding", "embeddings", "embed", "reranker", "rerank"))
"""Words in the names of models that give vectors or scores instead of text."""


def resolve_dtype(deployment: Deployment, architecture: Architecture, gpu: Gpu) -> tuple[str, str, Notice | None]:
    """The dtype that runs, where it comes from, and what to say about it.

    auto: float32 checkpoints run in bfloat16, and bfloat16 in float16 on a card without it; model types that are unstable in float16 in float32 there.

    Source: vllm 0.33.0 config/model.py _resolve_auto_dtype; logs of 2025-07 and later show the fallback.
    """
    name, origin = running.resolve_dtype(deployment, architecture, float32_runs_in="bfloat16", engine="vllm")
    if origin == "flag":
        return name, origin, None
    if name == "bfloat16" and gpu.supports_bf16 is False:
        # of float16 and float32 the first that the model type stands
        other = "float32" if architecture.model_type in NO_FLOAT16 else "float16"
        notice = Notice(
            "dtype-falls-back",
            f"{gpu.name} has no bfloat16: the engine falls back to {other}",
            "asked for with --dtype bfloat16 it is refused",
        )
        return other, "vllm: the card has no bfloat16", notice
    if name == "float16" and architecture.model_type in NO_FLOAT16:
        other = "float32" if gpu.supports_bf16 is False else "bfloat16"
        message = f"{architecture.model_type} is numerically unstable in float16: the engine falls back to {other}"
        return other, "vllm: the model type is not run in float16", Notice("dtype-falls-back", message)
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


def resolve_runner(deployment: Deployment, architecture: Architecture) -> tuple[str, str, Notice | None]:
    """Whether a model generates or pools, where that comes from, and what to say about it.

    The engine looks for the repository's modules.json (sentence-transformers), which a config does not have: a model whose name calls it an
    embedding model or a reranker is taken for one.

    Source: vllm 0.12.0 config/model.py try_get_generation and modules.json.
    """
    if deployment.runner in ("generate", "pooling"):
        return deployment.runner, "flag", None
    if architecture.kind == "encoder":
        return "pooling", "config.json", None
    words = _words(deployment.model.rpartition("/")[2]) if isinstance(deployment.model, str) else set()
    if words & POOLING_WORDS:
        notice = Notice(
            "taken-as-pooling",
            "the name says that the model pools: no logits are computed",
            "else say so: runner generate",
        )
        return "pooling", "the model's name", notice
    return "generate", "default", None


def _words(name: str) -> set[str]:
    return set("".join(character if character.isalnum() else " " for character in name.lower()).split())


def refusal(
    deployment: Deployment, architecture: Architecture, gpu: Gpu, dtype: str, kv_cache_dtype: str
) -> Notice | None:
    """The first reason for which the engine would not start, or None.

    Source: vllm 0.33.0 config/model.py, platforms/cuda.py, v1/attention/backends.
    """
    return (
        _class_refusal(deployment, architecture)
        or _sharing_refusal(deployment, architecture)
        or _dtype_refusal(architecture, gpu, dtype, kv_cache_dtype)
        or _weights_refusal(deployment, architecture, gpu)
        or _step_refusal(deployment, architecture)
    )


def _class_refusal(deployment: Deployment, architecture: Architecture) -> Notice | None:
    """A class that the version no longer serves."""
    last = LAST_SERVED.get(architecture.name)
    if last is None or read_version(deployment.engine_version, NEWEST)[0] <= last:
        return None
    message = f"{architecture.name} is served up to vllm {last[0]}.{last[1]} only"
    return Notice("architecture-not-served", message, f"use --engine-version {last[0]}.{last[1]}")


def _sharing_refusal(deployment: Deployment, architecture: Architecture) -> Notice | None:
    """Parallel sizes over which the model cannot be shared out."""
    tp = deployment.tensor_parallel_size
    ranks = tp * deployment.pipeline_parallel_size * deployment.data_parallel_size
    uneven = running.sharing_refusal(deployment, architecture, ranks * deployment.prefill_context_parallel_size)
    if uneven is not None:
        return uneven
    kv_heads = _unsharded_kv_heads(architecture, tp)
    if kv_heads:
        return Notice(
            "kv-heads-not-divisible",
            f"{kv_heads} key/value heads can be neither split nor repeated evenly over tensor_parallel_size {tp}",
            f"use a divisor of {kv_heads} or a multiple of it that divides the {architecture.num_attention_heads} attention heads",
        )
    if deployment.expert_parallel and not architecture.num_experts:
        message = "the model has no experts, and the engine refuses expert parallelism without them"
        return Notice("no-experts", message, "leave --expert-parallel out")
    return _context_refusal(deployment, architecture)


def _context_refusal(deployment: Deployment, architecture: Architecture) -> Notice | None:
    """Ranks that cannot share the tokens of a request.

    Source: vllm 0.33.0 config/parallel.py and config/model.py verify_with_parallel_config: the ranks divide, and without latent attention each
    key/value head must be on several of them.
    """
    tp, dcp = deployment.tensor_parallel_size, deployment.decode_context_parallel_size
    if dcp == 1:
        return None
    if tp % dcp:
        message = f"tensor_parallel_size {tp} does not divide by decode_context_parallel_size {dcp}"
        return Notice("dcp-not-divisible", message, "use a divisor of --tp")
    heads = [cache.num_key_value_heads for cache, _ in architecture.cache_groups if isinstance(cache, FullAttention)]
    latent = any(isinstance(cache, MultiHeadLatent) for cache, _ in architecture.cache_groups)
    if heads and not latent and dcp > max(tp // max(heads), 1):
        message = (
            f"{max(heads)} key/value heads on {tp} ranks are repeated {max(tp // max(heads), 1)} times: "
            f"decode_context_parallel_size {dcp} needs each on as many ranks"
        )
        return Notice("dcp-above-repeats", message, f"use --dcp {max(tp // max(heads), 1)} at most, or a higher --tp")
    return None


def _dtype_refusal(architecture: Architecture, gpu: Gpu, dtype: str, kv_cache_dtype: str) -> Notice | None:
    """A dtype of weights or cache that the card, or the model, does not stand."""
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
    if kv_cache_dtype.startswith("nvfp4") and gpu.supports_fp4 is False:
        return Notice(
            "kv-dtype-not-on-card",
            f"{gpu.name} has no 4-bit floats, which kv_cache_dtype {kv_cache_dtype} needs",
            "use --kv-cache-dtype fp8 or int8_per_token_head",
        )
    if kv_cache_dtype.startswith("fp8") and gpu.supports_fp8 is False and not _emulates_fp8(gpu, kv_cache_dtype):
        return Notice(
            "kv-dtype-not-on-card",
            f"{gpu.name} has no 8-bit floats, which kv_cache_dtype {kv_cache_dtype} needs",
            "use --kv-cache-dtype int8_per_token_head, or leave it out",
        )
    return None


def _step_refusal(deployment: Deployment, architecture: Architecture) -> Notice | None:
    """Settings of the scheduler and the cache that do not go together.

    Source: vllm 0.33.0 config/scheduler.py, config/cache.py and the attention backends (blocks of 16 tokens and multiples).
    """
    seqs, tokens = deployment.max_num_seqs, deployment.max_num_batched_tokens
    if seqs is not None and tokens is not None and seqs > tokens:
        message = f"max_num_batched_tokens {tokens} is below max_num_seqs {seqs}"
        return Notice("step-too-small", message, "raise --max-num-batched-tokens or lower --max-num-seqs")
    size = deployment.block_size
    if size is not None and size % 16 and architecture.num_attention_heads:
        message = f"block_size {size} is no multiple of the 16 tokens that attention backends work in"
        return Notice("block-size-not-supported", message, "use 16, 32, 64, 128 or 256")
    return None


def _weights_refusal(deployment: Deployment, architecture: Architecture, gpu: Gpu) -> Notice | None:
    """A checkpoint format that the version no longer loads, or the card never could."""
    method = getattr(architecture.quantization, "method", None)
    least = MINIMUM_CAPABILITY.get(method or "")
    if least is not None and _below(gpu, least):
        message = f"{gpu.name} has compute capability {gpu.compute_capability}, and {method} weights need {least[0]}.{least[1]}"
        return Notice("quantization-not-on-card", message, "use a newer card, or a GPTQ or 16-bit checkpoint")
    newest = read_version(deployment.engine_version, NEWEST)[0] >= NEWEST
    if getattr(architecture.quantization, "activation_order", False) and newest:
        return Notice(
            "quantization-not-supported",
            "vllm 0.33 no longer loads GPTQ weights in activation order (desc_act)",
            "use a checkpoint with desc_act false, or an AWQ or compressed-tensors one",
        )
    if method == "bitsandbytes" and newest:
        return Notice(
            "quantization-not-supported",
            "vllm 0.33 no longer loads bitsandbytes checkpoints",
            "use an AWQ, GPTQ or compressed-tensors checkpoint",
        )
    return None


def unlisted_encoder(architecture: Architecture) -> Notice | None:
    """What to say of an encoder that vLLM has no model of its own for."""
    name = architecture.name
    if not is_encoder_type(architecture.model_type) or name in ENCODERS:
        return None
    other = RENAMED_ENCODERS.get(name)
    if other is not None:
        message = f"vllm serves the class {name} under the name {other}"
        return Notice("encoder-renamed", message, f'--hf-overrides \'{{"architectures": ["{other}"]}}\'')
    message = f"vllm has no model of its own for {name}: if at all, it runs through the modules of transformers"
    return Notice("encoder-not-listed", message, "see vllm's list of supported models")


def unchecked(gpu: Gpu, kv_cache_dtype: str) -> Notice | None:
    """What to say of a cache format where it is not known whether the card has it."""
    known = gpu.supports_fp4 if kv_cache_dtype.startswith("nvfp4") else gpu.supports_fp8
    if known is None and kv_cache_dtype.startswith(("fp8", "nvfp4")):
        message = (
            f"whether {gpu.name} has the floats that kv_cache_dtype {kv_cache_dtype} needs is not known: taken as given"
        )
        return Notice("kv-dtype-unchecked", message, "name the card: --gpu")
    return None


def _unsharded_kv_heads(architecture: Architecture, tp: int) -> int:
    """Key/value heads that do not divide by the ranks, nor the ranks by them; 0 where every layer can be shared out."""
    for cache, _ in architecture.cache_groups:
        if isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal)):
            heads = cache.num_key_value_heads
            if heads % tp and tp % heads:
                return heads
    return 0


def _below(gpu: Gpu, least: tuple[int, int]) -> bool:
    """Whether a card's compute capability is known to be lower."""
    major, _, minor = (gpu.compute_capability or "").partition(".")
    return major.isdecimal() and minor.isdecimal() and (int(major), int(minor)) < least


def _emulates_fp8(gpu: Gpu, kv_cache_dtype: str) -> bool:
    """Ampere stores e5m2 and computes in 16 bit; e4m3 fails to compile there (vllm-project/vllm#26431)."""
    major = (gpu.compute_capability or "").partition(".")[0]
    return major.isdecimal() and int(major) >= 8 and kv_cache_dtype == "fp8_e5m2"
