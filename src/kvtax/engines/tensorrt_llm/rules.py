"""TensorRT-LLM's defaults by version: one entry per change, with its source."""

from __future__ import annotations

from typing import Any

from kvtax.engines.base import Rule, Version, find_rule

NEWEST = (1, 4)
OLDEST = (0, 5)

_ARGS = "NVIDIA/TensorRT-LLM tensorrt_llm/llmapi/llm_args.py, 2026"
RULES = (
    Rule("free_gpu_memory_fraction", (0, 0), 0.9, f"{_ARGS}: KvCacheConfig"),
    Rule("max_batch_size", (0, 0), 2048, f"{_ARGS}: BuildConfig"),
    Rule("tokens_per_block", (0, 0), 64, "NVIDIA/TensorRT-LLM builder: the engine's default before the PyTorch backend; logs of 0.17 print 64"),
    Rule("tokens_per_block", (0, 20), 32, f"{_ARGS}: KvCacheConfig; logs of 1.x print 32. The release that began is not known exactly"),
    # engines built ahead of time have buffers for all prompts of a batch at once; 2048 is what the examples' build scripts took
    Rule("built_input_tokens", (0, 0), 2048,
         "NVIDIA/TensorRT-LLM examples/llama/build.py of 0.5: max_input_len, from memory; one start (NVIDIA/TensorRT-LLM#224) agrees"),
    Rule("built_input_tokens", (0, 11), 0, f"{_ARGS}: max_num_tokens 8192 counts tokens of a step, whatever the batch"),
    Rule("cuda_graphs", (0, 0), False, "NVIDIA/TensorRT-LLM before 1.0: engines built ahead and the first PyTorch backend capture none unless asked"),
    Rule("cuda_graphs", (1, 0), True, f"{_ARGS}: cuda_graph_config is on; the release that began is not known exactly"),
    Rule("rope_table", (0, 0), False, "engines built ahead compute rotary positions inside their kernels"),
    Rule("rope_table", (0, 17), True, "NVIDIA/TensorRT-LLM PyTorch backend: one float32 table for all layers; from memory"),
    Rule("window_pools", (0, 0), "single", "tensorrt_llm/_torch/pyexecutor/resource_manager.py: without max_attention_window all layers keep max_seq_len"),
    Rule("window_pools", (1, 4), "typical",
         "NVIDIA/TensorRT-LLM#18767 (2026-09): windows are read from layer_types, and manager V2 shares memory by what a typical request "
         "holds (avg_seq_len, else max_seq_len)"),
    Rule("blocks_round_up", (0, 0), True,
         "NVIDIA/TensorRT-LLM#224: rounded up to the next block; a log of 2025-12 has 2,710 blocks for 86,711 tokens of 32 a block"),
    Rule("blocks_round_up", (1, 2), False,
         "tensorrt_llm/_torch/pyexecutor/resource_manager.py, 2026: max_tokens // tokens_per_block. The release that began is not known exactly"),
)  # fmt: skip
MAX_NUM_TOKENS = 8192
"""Tokens of one step (llm_args.py BuildConfig)."""
GRAPH_BATCH = 128
"""Largest batch that is captured as a graph unless told otherwise (llm_args.py CudaGraphConfig)."""


def rule(name: str, version: Version) -> Any:
    """The value of a rule at a version."""
    return find_rule(RULES, name, version)


def default_max_num_tokens(version: Version, max_batch_size: int) -> int:
    """Tokens of one step: 8192; before 0.11 the whole prompts of a batch, max_batch_size * 2048.

    Args:
        version: of the engine.
        max_batch_size: [requests].

    Returns:
        max_num_tokens [tokens].

    Source: RULES built_input_tokens.

    >>> default_max_num_tokens((1, 2), 2048)
    8192
    """
    built = int(rule("built_input_tokens", version))
    return max_batch_size * built if built else MAX_NUM_TOKENS


def graph_batches(largest: int) -> int:
    """How many batch sizes are captured: 1 to 31, 32, 64, 128, then powers of two, and the largest itself.

    Args:
        largest: batch that is captured [requests].

    Returns:
        Sizes [graphs].

    Source: llm_args.py CudaGraphConfig, without padding (34 sizes up to 128).

    >>> graph_batches(128)
    34
    """
    sizes = {*range(1, 32), 32, 64, 128, *(2**power for power in range(8, 21))}
    return len({size for size in sizes if size <= largest} | {largest})
