"""TGI's defaults and the rules of its block table."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.engines.base import Rule
from kvtax.hardware.gpu import Gpu

NEWEST = (3, 3)
OLDEST = (2, 3)
WIGGLE_ROOM = 0.90
"""Share of the card that weights, warm-up and blocks share (TGI_WIGGLE_ROOM, server models/globals.py); graphs come out of the rest."""
MAX_CONCURRENT_REQUESTS = 128
GRAPH_SIZES = 6
"""1, 2, 4, 8, 16, 32 (launcher --cuda-graphs)."""
PREFILL_TOKENS = {"qwen2_vl": 10_000, "gemma3": 8000}
"""Prompt tokens of a step where the launcher cannot work out what the card computes, by model type; 4096 for others."""
FLASHINFER_HEADS = (64, 128, 256)
LEAST_OPTIMUM = 100
_BLOCKS = {"flashinfer": 1, "flashdecoding": 256, "paged": 16}
RULES = (
    Rule("cuda_memory_fraction", (0, 0), 1.0, "huggingface/text-generation-inference launcher/src/main.rs, v3.3.7"),
    Rule("wiggle_room", (0, 0), WIGGLE_ROOM,
         "huggingface/text-generation-inference server/text_generation_server/models/globals.py, v3.3.7; 0.95 before, the release is not known"),
    Rule("max_concurrent_requests", (0, 0), MAX_CONCURRENT_REQUESTS, "huggingface/text-generation-inference launcher/src/main.rs, v3.3.7"),
)  # fmt: skip


def attention(architecture: Architecture, gpu: Gpu) -> str:
    """The kernels that are chosen: flashinfer for heads of 64, 128 or 256, flashdecoding for others, paged before Ampere.

    Args:
        architecture: of the model.
        gpu: the card.

    Returns:
        Their name.

    Source: huggingface/text-generation-inference launcher/src/main.rs, v3.3.7.
    """
    major = (gpu.compute_capability or "").partition(".")[0]
    if major.isdecimal() and int(major) < 8:
        return "paged"
    if architecture.model_type in ("falcon", "deepseek_v2") or architecture.head_dim not in FLASHINFER_HEADS:
        return "flashdecoding"
    return "flashinfer"


def default_block_size(kernels: str) -> int:
    """Tokens of a block: 1 with flashinfer, 256 with flashdecoding, 16 with paged attention.

    Args:
        kernels: of `attention`.

    Returns:
        Block size [tokens].

    Source: huggingface/text-generation-inference server/text_generation_server/models/globals.py, v3.3.7.

    >>> default_block_size("flashinfer")
    1
    """
    return _BLOCKS[kernels]


def flops_per_token(architecture: Architecture) -> int:
    """Arithmetic of one prompt token as the launcher counts it.

    num_hidden_layers * 2 * hidden_size * (3 * num_attention_heads * head_dim + 2 * num_key_value_heads * head_dim
    + 3 * intermediate_size * experts)

    Args:
        architecture: of the model.

    Returns:
        Operations.

    Source: huggingface/text-generation-inference launcher/src/main.rs Config::flop, v3.3.7.
    """
    width = architecture.intermediate_size * max(architecture.num_experts_per_tok, 1)
    heads = (3 * architecture.num_attention_heads + 2 * architecture.num_key_value_heads) * architecture.head_dim
    return architecture.num_hidden_layers * 2 * architecture.hidden_size * (heads + 3 * width)


def default_prefill_tokens(architecture: Architecture, gpu: Gpu, ranks: int, vision: bool) -> int:
    """Prompt tokens of a step: what the cards compute in a second over what a token needs, at most the longest context.

    min(flops * ranks // flops_per_token, max_position_embeddings); 4096 (gemma3 8000, qwen2_vl 10000) in place of a quotient that is not
    known or not above 100, and for models with a vision tower

    Args:
        architecture: of the model.
        gpu: the card.
        ranks: num_shard [ranks].
        vision: whether the config has a vision tower.

    Returns:
        max_batch_prefill_tokens [tokens].

    Source: huggingface/text-generation-inference launcher/src/main.rs compute_optimal, v3.3.7; its table of cards is not copied: the
    catalogue's figure stands in.
    """
    value = PREFILL_TOKENS.get(architecture.model_type, 4096)
    need = flops_per_token(architecture)
    if gpu.bf16_flops and need and not vision:
        optimum = gpu.bf16_flops * ranks // need
        value = optimum if optimum > LEAST_OPTIMUM else value
    return min(value, architecture.max_position_embeddings or value)
