"""What llama.cpp knows of each architecture by its name, where a file states nothing (src/models/*.cpp load_arch_hparams, src/llama-arch.cpp)."""

from __future__ import annotations

from kvtax.architectures.gguf import families
from kvtax.architectures.gguf.shape import Layer

PERIODS: dict[str, tuple[int, bool]] = {
    "gemma2": (2, False), "gemma3": (6, False), "gemma3n": (5, False), "gpt-oss": (2, False), "cohere2": (4, False),
    "cohere2moe": (4, True), "llama4": (4, False), "exaone-moe": (4, False), "olmo2": (4, False), "afmoe": (4, False),
    "laguna": (4, True), "smallthinker": (4, True), "plamo3": (8, False), "mellum": (4, False), "muse-glimmer": (4, False),
}  # fmt: skip
"""Period of the window pattern and whether its first layer is the full one: layer i has a window where i % period < period - 1, or i % period != 0."""
WINDOWS = {"gemma2": 4096, "llama4": 8192, "exaone-moe": 128}
"""Windows that an architecture has where its file states none [tokens]."""
ALL_WINDOWED = frozenset(("deepseek4",))
IGNORE_WINDOW = frozenset(("phi3", "llama", "mistral3", "qwen2", "qwen3", "qwen2moe", "qwen3moe", "starcoder2"))
"""Their files may state a window, but the cache is a full one."""
ROLLBACK = frozenset((
    "qwen35", "qwen35moe", "qwen4exp", "kimi-k3", "deepseek4", "glm5-next", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe", "bailingmoe3",
))  # fmt: skip
"""Architectures that keep states to roll back to."""
INTERVAL = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4}
USUAL_INTERVAL = {**INTERVAL, "qwen4exp": 4, "minimax-01": 8}
"""Every so many blocks one attends, where the file states no number."""
POOLED_INDEXER = {"qwen4exp": 2, "glm5-next": 3}
"""Widths of a key that an indexer row has where it pools keys (src/llama-memory-hybrid-idx.cpp, src/llama-hparams.h)."""
DENSE_WITHOUT_INDEXER = frozenset(("minimax-m3",))
EMBEDDED_TWICE = frozenset(("gemma4",))
"""With nothing on a card, RAM holds the tied embedding twice: 104 rows of b11434 for two models, the reason is not known."""
BLOCKS_OF_ONE_KIND = frozenset(("nemotron_h", "nemotron_h_moe"))
"""A block is attention, state or MLP alone."""
STATE_WITHOUT_HEADS = frozenset((
    "granitehybrid", "jamba", "kimi-linear", "kimi-k3", "bailingmoe3", "glm5-next", "lfm2", "lfm2moe", "plamo2",
))  # fmt: skip
STATE_AND_HEADS = frozenset(("falcon-h1",))
ONLY_STATE = frozenset(("mamba", "mamba2", "rwkv6", "rwkv7", "rwkv6qwen2", "arwkv7"))
KEYS_ONLY = frozenset(("deepseek4",))
COMPRESSED = frozenset(("deepseek4",))
NOT_GATED = frozenset((
    "starcoder", "starcoder2", "gpt2", "gptneox", "falcon", "phi2", "bloom", "mpt", "nemotron", "nemotron_h", "nemotron_h_moe", "jais2",
    "arcee", "apertus", "codeshell", "gptj",
))  # fmt: skip
"""MLPs of two matrices."""
PARALLEL = frozenset(("cohere2", "command-r", "phi2", "falcon", "gptneox", "gptj"))
"""Attention and MLP of a block read the same input."""


def period(arch: str, block_count: int) -> tuple[int, bool] | None:
    """The built-in pattern of windows; EXAONE 4 has one in its model of 64 layers only."""
    if arch == "exaone4":
        return (4, False) if block_count == 64 else None
    return PERIODS.get(arch)


def compressed(layer: Layer, ratio: int, indexer_length: int) -> Layer:
    """A DeepSeek V4 block: a window of keys, compressed rows, and the float32 states of its compressors.

    Two states (sums and weights) of rows x width: at ratio 4 they overlap, 8 rows of two heads, and the indexer has its own; else
    `ratio` rows of one head.

    Args:
        layer: with key_length set.
        ratio: tokens that share a compressed row, 0 for the window alone [tokens].
        indexer_length: width of an indexer key [elements].

    Returns:
        The layer.

    Source: ggml-org/llama.cpp b11434 src/llama-kv-cache-dsv4.cpp; no measured row has this architecture.
    """
    if not ratio:
        return layer
    overlaps = ratio == OVERLAP_RATIO
    rows, width = (2 * ratio, 2 * layer.key_length) if overlaps else (ratio, layer.key_length)
    states = 2 * rows * width + (2 * rows * 2 * indexer_length if overlaps else 0)
    return layer._replace(
        compress_ratio=ratio, indexer_length=indexer_length if overlaps else 0, compressor_elements=states
    )


OVERLAP_RATIO = 4

ENCODERS = frozenset((
    "bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "neo-bert", "modern-bert", "eurobert", "gemma-embedding",
    "llama-embed", "dream", "llada", "llada-moe", "rnd1",
))  # fmt: skip
"""Models of embeddings, and those that write by diffusion: no cache. Source: ggml-org/llama.cpp b11434 src/llama-model.cpp create_memory."""
PLAIN_ATTENTION = frozenset((
    "starcoder", "codeshell", "refact", "plamo", "plamo3", "openelm", "chameleon", "smallthinker", "qwen2vl", "qwen3vl", "qwen3vlmoe",
    "pangu-embedded", "grovemoe", "hunyuan_vl", "mistral4", "maincoder", "phi3", "cogvlm",
    "ernie4_5", "paddleocr", "minicpm", "arcee", "xverse", "orion", "baichuan", "deci", "olmo2", "bitnet", "seed_oss", "apertus",
    "granite", "granitemoe", "exaone", "stablelm", "gptj", "internlm2", "command-r", "chatglm", "glm4", "glm4moe", "jais", "jais2",
))  # fmt: skip
"""Further architectures whose every layer keeps keys and values of the heads that its keys state. Source: the same."""
KNOWN = (
    frozenset(families.ARCHITECTURES.values()) | frozenset(families.WITH_EXPERTS.values()) | ENCODERS | PLAIN_ATTENTION | ALL_WINDOWED
    | BLOCKS_OF_ONE_KIND | STATE_WITHOUT_HEADS | STATE_AND_HEADS | ONLY_STATE | frozenset(INTERVAL) | frozenset(PERIODS)
)  # fmt: skip
"""Architectures whose keys are understood."""
