"""What Ollama passes to llama-server where nothing is set."""

from __future__ import annotations

from collections.abc import Sequence

from kvtax.architectures.gguf.shape import Shape
from kvtax.units import GIB, MIB

BUILD = 10488
"""The llama.cpp build that Ollama of August 2026 runs."""
ONE_SLOT = frozenset((
    "mllama", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen3next", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe",
))  # fmt: skip
"""Architectures that run one request at a time whatever is asked."""
_CONTEXTS = ((47 * GIB, 262_144), (23 * GIB, 32_768))
_BATCHES = ((2048, 32_768, 2 * GIB, 60), (1024, 4096, 768 * MIB, 75))


def default_context(total_bytes: int, context_length: int) -> int:
    """num_ctx by the memory of all cards: 262144 from 47 GiB, 32768 from 23 GiB, else 4096, but no more than the model's [tokens].

    Source: ollama/ollama main of 2026-08-21 server/routes.go, envconfig.

    >>> default_context(24 * 1024**3, 131072)
    32768
    """
    tokens = next((context for least, context in _CONTEXTS if total_bytes >= least), 4096)
    return min(tokens, context_length) if context_length else tokens


def predicted_bytes(shape: Shape, file_bytes: int, num_ctx: int) -> int:
    """Ollama's own estimate: the file and a float16 cache in every layer, without windows.

    file + 2 * layers * min(head_count_kv) * (embedding_length / head_count) * num_ctx * 2

    Source: ollama/ollama main of 2026-08-21.
    """
    heads = [layer.head_count_kv for layer in shape.layers if layer.head_count_kv]
    width = shape.embedding_length // shape.head_count if shape.head_count else 0
    return file_bytes + 4 * len(shape.layers) * min(heads, default=0) * width * num_ctx


def default_batch(shape: Shape, file_bytes: int, num_ctx: int, free_bytes: Sequence[int], flash_attn: bool) -> int:
    """num_batch, which is both -b and -ub: 512 up to 4096 tokens, 1024 up to 32768, then 2048, where the memory allows it [tokens].

    2048 needs a prediction of at most 60 % of what is free, 1024 of 75 %, and the prediction with a surcharge of 2 GiB or 768 MiB has to
    stay within 80 %. Without flash attention 512, or 256 on cards of 8 GiB above 4096 tokens.

    Source: ollama/ollama main of 2026-08-21.
    """
    free = sum(free_bytes)
    if not flash_attn:
        return 256 if max(free_bytes, default=0) <= 8 * GIB and num_ctx > 4096 else 512
    predicted = predicted_bytes(shape, file_bytes, num_ctx)
    for batch, above, surcharge, percent in _BATCHES:
        if num_ctx > above and predicted * 100 <= free * percent and (predicted + surcharge) * 100 <= free * 80:
            return batch
    return 512
