"""One block table for all layers: every layer keeps every token, so a block is the sum of its layers' bytes."""

from __future__ import annotations

from collections.abc import Sequence

from kvtax.architectures.cache import ChunkedLocal, FullAttention, LayerCache, MultiHeadLatent, SlidingWindow
from kvtax.units import ceil_div


def table_token_bytes(caches: Sequence[LayerCache], kv_cache_dtype: str) -> int:
    """Bytes of one token in all layers that grow, windows kept whole.

    sum over layers of token_bytes

    Args:
        caches: of one rank.
        kv_cache_dtype: of keys and values.

    Returns:
        Size [bytes].

    Source: architectures.cache.
    """
    growing = (FullAttention, SlidingWindow, ChunkedLocal, MultiHeadLatent)
    return sum(cache.token_bytes(kv_cache_dtype) for cache in caches if isinstance(cache, growing))


def common_window(caches: Sequence[LayerCache]) -> int:
    """The window that all attention layers have alike, 0 where they differ or keep all tokens [tokens]."""
    growing = [
        cache for cache in caches if isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal, MultiHeadLatent))
    ]
    windows = {cache.window for cache in growing if isinstance(cache, SlidingWindow)}
    alike = len(windows) == 1 and all(isinstance(cache, SlidingWindow) for cache in growing)
    return windows.pop() if alike else 0


def table_blocks(pool_bytes: int, bytes_per_block: int) -> int:
    """Whole blocks of a pool: pool_bytes // bytes_per_block, none where nothing is left.

    Args:
        pool_bytes: signed [bytes].
        bytes_per_block: [bytes].

    Returns:
        Blocks.

    Source: arithmetic of every engine with one table.

    >>> table_blocks(-1, 4)
    0
    """
    return max(pool_bytes, 0) // bytes_per_block if bytes_per_block else 0


def blocks_of(tokens: int, block_size: int) -> int:
    """Blocks of `tokens` tokens: ceil(tokens / block_size)."""
    return ceil_div(tokens, block_size)
