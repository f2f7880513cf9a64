"""LMDeploy's defaults, formats and the arithmetic of its two engines."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import MultiHeadLatent
from kvtax.engines.base import Rule
from kvtax.errors import InputError
from kvtax.hardware.gpu import Gpu

NEWEST = (0, 18)
OLDEST = (0, 5)
CACHE_MAX_ENTRY_COUNT = 0.8
MAX_PREFILL_TOKENS = 8192
LEAST_BLOCKS = 16
"""The PyTorch engine halves its prefill step until this many blocks fit."""
TURBOMIND_TYPES = frozenset((
    "llama", "internlm", "internlm2", "internlm3", "qwen", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "mistral", "mixtral", "baichuan",
    "chatglm", "glm4", "deepseek_v2", "deepseek_v3", "gpt_oss", "phi3", "yi", "internvl_chat", "llava", "minicpmv",
))  # fmt: skip
"""Model types that TurboMind has; others run on the PyTorch engine (lmdeploy/turbomind/supported_models.py, from memory, with gaps)."""
RULES = (
    Rule("cache_max_entry_count", (0, 0), CACHE_MAX_ENTRY_COUNT, "InternLM/lmdeploy lmdeploy/messages.py, 0.18: of what is free after weights"),
    Rule("max_prefill_token_num", (0, 0), MAX_PREFILL_TOKENS, "InternLM/lmdeploy lmdeploy/messages.py, 0.18"),
    Rule("block_size", (0, 0), 64, "InternLM/lmdeploy lmdeploy/messages.py, 0.18: cache_block_seq_len and block_size"),
)  # fmt: skip
_FORMATS = {4: "int4_per_token_head", 8: "int8_per_token_head", 16: "fp8_e4m3", 17: "fp8_e5m2"}
_BATCHES = (("a100", 384), ("a800", 384), ("h100", 1024), ("h200", 1024), ("h800", 1024), ("l20y", 1024))


def default_max_batch_size(gpu: Gpu) -> int:
    """Requests that run at once, by the card's name: A100 and A800 384, H100, H200, H800 and L20Y 1024, others 128.

    Args:
        gpu: the card.

    Returns:
        max_batch_size [requests].

    Source: InternLM/lmdeploy lmdeploy/utils.py get_max_batch_size, 0.18.
    """
    name = gpu.name.lower()
    return next((size for word, size in _BATCHES if word in name), 128)


def kv_format(quant_policy: int, dtype: str) -> str:
    """The format of keys and values of a quant_policy: 0 the model's, 4 and 8 integers with a scale and a zero in 16 bit for a head, 16 and 17 fp8.

    Args:
        quant_policy: of the flag.
        dtype: of the model.

    Returns:
        Canonical KV format.

    Raises:
        InputError: a policy whose layout is not settled.

    Source: InternLM/lmdeploy lmdeploy/pytorch/engine/cache_engine.py (two values of 2 B for each key and value: 8 B a head).

    >>> kv_format(8, "bfloat16")
    'int8_per_token_head'
    """
    if quant_policy == 0:
        return dtype
    if quant_policy not in _FORMATS:
        raise InputError(
            f"quant_policy {quant_policy} is not known",
            code="invalid-quantity",
            hint="0, 4, 8, 16 (fp8 e4m3) or 17 (fp8 e5m2)",
            where="quant_policy",
        )
    return _FORMATS[quant_policy]


def block_size(architecture: Architecture, gpu: Gpu, asked: int | None, pytorch: bool) -> int:
    """Tokens of a block: 64, or as asked; the PyTorch engine takes 64 with FlashMLA (Hopper) and at most 32 for keys of 512 and wider.

    Args:
        architecture: of the model.
        gpu: the card.
        asked: cache_block_seq_len, None: not asked [tokens].
        pytorch: whether the PyTorch engine runs.

    Returns:
        Block size [tokens].

    Source: InternLM/lmdeploy lmdeploy/pytorch/engine/executor/base.py _adjust_block_size, 0.18.
    """
    size = asked or 64
    latent = any(isinstance(cache, MultiHeadLatent) for cache in architecture.caches)
    if not pytorch:
        return size
    if latent and (gpu.compute_capability or "").startswith("9."):
        return 64
    return min(size, 32) if latent or architecture.head_dim >= 512 else size


def runtime_bytes(
    free_bytes: int, share: float, bytes_per_block: int, prefill: int, batches: int, vocab_size: int
) -> tuple[int, int]:
    """What the PyTorch engine keeps for a step, and the prompt tokens that are left of it.

    (prefill + 2 * batches) * vocab_size * 2, prefill halved until (free - that) * share holds 16 blocks

    Args:
        free_bytes: after weights and states [bytes].
        share: cache_max_entry_count.
        bytes_per_block: [bytes].
        prefill: max_prefill_token_num [tokens].
        batches: max_batch_size [requests].
        vocab_size: [tokens].

    Returns:
        Size [bytes], and prompt tokens of a step (0: nothing fits).

    Source: InternLM/lmdeploy lmdeploy/pytorch/engine/executor/base.py _get_runtime_size, 0.18.

    >>> runtime_bytes(40 * 2**30, 0.8, 8 * 2**20, 8192, 128, 128256)
    (2167013376, 8192)
    """
    size = 0
    while prefill > 0:
        size = (prefill + 2 * batches) * vocab_size * 2
        if int((free_bytes - size) * share) // bytes_per_block >= LEAST_BLOCKS:
            break
        prefill //= 2
    return size, prefill
