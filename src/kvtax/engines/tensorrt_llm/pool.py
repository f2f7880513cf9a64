"""How TensorRT-LLM cuts its KV memory into blocks: one pool for each window, one block of 32 tokens in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvtax.architectures.cache import (
    ChunkedLocal,
    CompressedLatent,
    CrossAttention,
    FullAttention,
    LayerCache,
    MultiHeadLatent,
    SlidingWindow,
)
from kvtax.units import ceil_div

COMPRESSED_ROW_BYTES = 584
"""DeepSeek V4's rows: 448 fp8 + 64 rotary in 16 bit + 8 of scale; the layout of its own manager differs a little by release."""
COMPRESSED_INDEX_ROW_BYTES = 132


class Group(NamedTuple):
    """Layers that keep the same tokens: a pool of its own.

    Args:
        window: tokens that are kept, 0 for all [tokens].
        layers: of this rank [layers].
        token_bytes: of one token in all of them [bytes].
    """

    window: int
    layers: int
    token_bytes: int

    def blocks(self, tokens: int, tokens_per_block: int) -> int:
        """Blocks of a request of `tokens` tokens: ceil(tokens / tokens_per_block), at most those of the window and one it straddles.

        Source: tensorrt_llm/_torch/pyexecutor/resource_manager.py; the block that a window straddles by reasoning, not by a run.
        """
        whole = ceil_div(tokens, tokens_per_block)
        if not self.window or tokens <= self.window:
            return whole
        return min(whole, ceil_div(self.window, tokens_per_block) + 1)


def layer_windows(caches: Sequence[LayerCache], asked: Sequence[int], how: str) -> list[tuple[int, LayerCache]]:
    """The window of each growing layer, 0 for all tokens: as asked, cycled over the layers; else of the model, or none.

    Args:
        caches: of this rank, in layer order.
        asked: max_attention_window; empty: not asked.
        how: `single` keeps all tokens in every layer, `typical` keeps the model's windows.

    Returns:
        Window and cache of each layer.

    Source: resource_manager.py _get_window_size_to_layers; _util.py _derive_layer_type_attention_windows.
    """
    growing = [
        cache for cache in caches if isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal, MultiHeadLatent))
    ]
    if asked:
        return [(asked[index % len(asked)], cache) for index, cache in enumerate(growing)]
    if how == "single":
        return [(0, cache) for cache in growing]
    return [(_own_window(cache), cache) for cache in growing]


def _own_window(cache: LayerCache) -> int:
    if isinstance(cache, SlidingWindow):
        return cache.window + cache.sink_tokens
    return cache.chunk if isinstance(cache, ChunkedLocal) else 0


def groups(
    caches: Sequence[LayerCache], kv_cache_dtype: str, max_seq_len: int, asked: Sequence[int], how: str
) -> tuple[Group, ...]:
    """The pools of a rank, the smallest window first; windows are cut to max_seq_len.

    Args:
        caches: of this rank, in layer order.
        kv_cache_dtype: of keys and values.
        max_seq_len: longest request [tokens].
        asked: max_attention_window; empty: not asked.
        how: see layer_windows.

    Returns:
        One group a window.

    Source: NVIDIA/TensorRT-LLM docs/source/features/kvcache.md: a pool for each window and number of heads.
    """
    found: dict[int, list[int]] = {}

    def add(window: int, token_bytes: int) -> None:
        found.setdefault(0 if window >= max_seq_len else window, []).append(token_bytes)

    for window, cache in layer_windows(caches, asked, how):
        add(window, cache.token_bytes(kv_cache_dtype))
    for cache in caches:
        if isinstance(cache, CompressedLatent):
            add(cache.window, COMPRESSED_ROW_BYTES)
            if cache.ratio:
                row = COMPRESSED_ROW_BYTES + (COMPRESSED_INDEX_ROW_BYTES if cache.index_head_dim else 0)
                add(0, row // cache.ratio)
    order = sorted(found, key=lambda window: window or max_seq_len)
    return tuple(Group(window, len(found[window]), sum(found[window])) for window in order)


def fixed_bytes(caches: Sequence[LayerCache], state_bytes: int, kv_cache_dtype: str, slots: int) -> int:
    """What is kept for every slot whatever its length: recurrent states, keys and values of a source.

    slots * (state_bytes + source_bytes)

    Args:
        caches: of this rank.
        state_bytes: of one request in all layers [bytes].
        kv_cache_dtype: of keys and values.
        slots: requests that may be held, padding included [requests].

    Returns:
        Size [bytes].

    Source: tensorrt_llm/_torch/pyexecutor/kv_cache/mamba_cache_manager/common.py _estimate_mamba_hybrid_cache_cost.
    """
    source = sum(cache.source_bytes(kv_cache_dtype) for cache in caches if isinstance(cache, CrossAttention))
    return slots * (state_bytes + source)


def state_slots(max_batch_size: int, pp: int, attention_dp: bool) -> int:
    """States that are kept: max_batch_size * pp, one for padded graphs and one for an idle rank of attention DP.

    Args:
        max_batch_size: [requests].
        pp: pipeline_parallel_size [ranks].
        attention_dp: whether attention runs in data parallel.

    Returns:
        Slots [requests].

    Source: mamba_cache_manager/common.py: max_resident_sequences + num_reserved_dummy_slots.

    >>> state_slots(256, 1, False)
    257
    """
    return max_batch_size * pp + 1 + attention_dp


class Split(NamedTuple):
    """The memory of the pools, each with its blocks [blocks] and what a request of the longest length takes of them [blocks]."""

    groups: tuple[Group, ...]
    tokens_per_block: int
    blocks: tuple[int, ...]
    needed: tuple[int, ...]

    @property
    def concurrency(self) -> int:
        """Requests that are admitted to completion: the least of blocks // needed over the pools."""
        return min((have // need for have, need in zip(self.blocks, self.needed, strict=True)), default=0)

    @property
    def tightest(self) -> int:
        """The pool that runs out first."""
        shares = [have / need for have, need in zip(self.blocks, self.needed, strict=True)]
        return shares.index(min(shares))

    def block_bytes(self, index: int) -> int:
        """Bytes of one block of a pool: token_bytes * tokens_per_block."""
        return self.groups[index].token_bytes * self.tokens_per_block

    @property
    def request_bytes(self) -> int:
        """What a request of the longest length takes in all pools [bytes]."""
        return sum(need * self.block_bytes(index) for index, need in enumerate(self.needed))

    @property
    def allocated_bytes(self) -> int:
        """All blocks of all pools [bytes]."""
        return sum(have * self.block_bytes(index) for index, have in enumerate(self.blocks))


def shares(
    pools: tuple[Group, ...], memory_bytes: int, tokens_per_block: int, max_seq_len: int, how: str, beams: int
) -> tuple[int, ...]:
    """Memory of each pool: all where there is one; else an equal share (`equal`), or what a longest request takes of it (`typical`).

    memory * weight // sum of weights

    Args:
        pools: at least one.
        memory_bytes: for keys and values, below 0 counts as none [bytes].
        tokens_per_block: [tokens].
        max_seq_len: longest request [tokens].
        how: `equal` or `typical`.
        beams: max_beam_width [sequences].

    Returns:
        Sizes [bytes].

    Source: tensorrt_llm/_torch/pyexecutor: calculate_max_num_blocks_for_vswa (1 / number of windows each); kv_cache_manager_v2.py
    (shares by a typical length, max_seq_len unless avg_seq_len says otherwise).
    """
    memory = max(memory_bytes, 0)
    weights = [1] * len(pools)
    if how != "equal":
        weights = [group.blocks(max_seq_len, tokens_per_block) * beams * group.token_bytes for group in pools]
    whole = sum(weights)
    return tuple(memory * weight // whole for weight in weights)


def split(
    pools: tuple[Group, ...],
    memory_bytes: int,
    tokens_per_block: int,
    max_seq_len: int,
    how: str,
    beams: int,
    round_up: bool = False,
) -> Split:
    """Blocks of each pool: its share of the memory // token_bytes // tokens_per_block.

    Args:
        pools: at least one.
        memory_bytes: for keys and values, below 0 counts as none [bytes].
        tokens_per_block: [tokens].
        max_seq_len: longest request [tokens].
        how: see shares.
        beams: max_beam_width, each with blocks of its own [sequences].
        round_up: the tokens of a single pool take a last block that they do not fill.

    Returns:
        The pools with their blocks.

    Source: resource_manager.py calculate_max_num_blocks.
    """
    parts = shares(pools, memory_bytes, tokens_per_block, max_seq_len, how, beams)
    blocks = tuple(part // group.token_bytes // tokens_per_block for part, group in zip(parts, pools, strict=True))
    if round_up and len(pools) == 1:
        blocks = (ceil_div(parts[0] // pools[0].token_bytes, tokens_per_block),)
    needed = tuple(group.blocks(max_seq_len, tokens_per_block) * beams for group in pools)
    return Split(pools, tokens_per_block, blocks, needed)
