"""Bytes that one token takes in SGLang's pools on one rank: the cell of each layer, and the state of a sequence."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.cache import (
    ChunkedLocal,
    FullAttention,
    LayerCache,
    MultiHeadLatent,
    Recurrent,
    SlidingWindow,
)
from kvtax.dtypes import DTYPES, head_bytes, latent_bytes


class Formats(NamedTuple):
    """How keys, values and states are held.

    Args:
        kv: format of keys and values, canonical; for sparse latent attention `fp8_ds_mla` is the row with scales.
        ssm: format of recurrent state that was asked for, empty for none.
        from_config: a state keeps what the config declares.
    """

    kv: str
    ssm: str = ""
    from_config: bool = True


class Cell(NamedTuple):
    """What one token of the full pool and one of the window pool take in all layers of a stage [bytes]."""

    full_bytes: int
    window_bytes: int
    full_layers: int
    window_layers: int


def per_attention_rank(cache: LayerCache, ranks: int) -> LayerCache:
    """What one attention rank keeps: max(1, num_key_value_heads // ranks) heads.

    Args:
        cache: of the whole model.
        ranks: attention ranks that share a request [ranks].

    Returns:
        The cache of one rank.

    Source: sglang 0.5.12 srt/configs/model_config.py get_num_kv_heads.
    """
    if isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal)):
        return cache._replace(num_key_value_heads=max(1, cache.num_key_value_heads // ranks))
    return cache.per_rank(ranks)


def row_bytes(cache: LayerCache, kv: str) -> int:
    """Bytes of one token in one layer on one rank.

    attention: heads * (head_dim + v_head_dim) * element; latent: (kv_lora_rank + qk_rope_head_dim) * element + index row

    Args:
        cache: of one rank.
        kv: format of keys and values.

    Returns:
        Size [bytes].

    Source: sglang 0.5.23 srt/model_executor/pool_configurator.py _compute_cell_size.
    """
    if isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal)):
        elements = cache.num_key_value_heads * (cache.head_dim + cache.v_head_dim)
        index = cache.index_bytes if isinstance(cache, FullAttention) else 0
        if kv == "mxfp8":
            return elements + elements // 32 + index
        if kv in DTYPES and DTYPES[kv].block:
            return cache.num_key_value_heads * head_bytes(kv, cache.head_dim, cache.v_head_dim) + index
        return head_bytes(kv, elements, 0) + index
    if isinstance(cache, MultiHeadLatent):
        index = -(-cache.index_bytes // cache.index_pool) if cache.index_bytes else 0
        if kv == "mxfp8":
            width = cache.kv_lora_rank + cache.qk_rope_head_dim
            return width + width // 32 + index
        return latent_bytes(kv, cache.kv_lora_rank, cache.qk_rope_head_dim) + index
    return 0


def state_bytes(cache: Recurrent, formats: Formats) -> int:
    """Bytes of one sequence's state in one layer on one rank: conv in bfloat16, recurrent as asked, as declared, else float32.

    Args:
        cache: of one rank.
        formats: asked for and taken from the config.

    Returns:
        Size [bytes].

    Source: sglang 0.5.23 srt/configs/mamba_utils.py mamba2_state_dtype.
    """
    declared = cache.ssm_dtype if formats.from_config else ""
    return cache.state_bytes(formats.ssm or declared or "float32", "bfloat16")


def cell(caches: list[LayerCache], kv: str, windows_apart: bool) -> Cell:
    """The cell of a stage: layers of the full pool, and window layers where they have a pool of their own.

    Args:
        caches: one per layer, of one rank; shared ones are already what they share.
        kv: format of keys and values.
        windows_apart: window and chunked layers have their own pool.

    Returns:
        Bytes and layers of both.

    Source: sglang 0.5.23 srt/model_executor/pool_configurator.py HybridSWAPoolConfigurator.
    """
    full = window = full_layers = window_layers = 0
    for cache in caches:
        size = row_bytes(cache, kv)
        if not size:
            continue
        if windows_apart and isinstance(cache, (SlidingWindow, ChunkedLocal)):
            window += size
            window_layers += 1
        else:
            full += size
            full_layers += 1
    return Cell(full, window, full_layers, window_layers)
