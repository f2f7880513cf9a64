"""Kinds of cache in words: what one layer keeps, and which layers they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from kvtax.architectures.cache import (
    ChunkedLocal,
    CompressedLatent,
    CrossAttention,
    FullAttention,
    LayerCache,
    MultiHeadLatent,
    Recurrent,
    Shared,
    SlidingWindow,
    State,
)

_VARIANTS = {
    "mamba1": "Mamba 1",
    "mamba2": "Mamba 2",
    "gated_delta_net": "Gated DeltaNet",
    "kimi_delta": "Kimi Delta Attention",
    "linear_attention": "linear attention",
    "short_conv": "short convolution",
    "rwkv": "RWKV",
    "rg_lru": "RG-LRU",
}
KINDS = {
    "full_attention": "full attention",
    "sliding_window": "sliding window",
    "chunked_local": "chunked local",
    "multi_head_latent": "latent (MLA)",
    "compressed_latent": "compressed latent",
    "recurrent": "fixed state",
    "cross_attention": "cross-attention",
    "shared": "shared",
    "no_cache": "no cache",
}
_MOST_RUNS = 4


def kind_words(cache: LayerCache) -> str:
    """What kind of layer this is: `sliding window 1,024`, `Gated DeltaNet`."""
    if isinstance(cache, SlidingWindow):
        sinks = f" + {cache.sink_tokens:,} sink tokens" if cache.sink_tokens else ""
        return f"sliding window {cache.window:,}{sinks}"
    if isinstance(cache, ChunkedLocal):
        return f"chunks of {cache.chunk:,}"
    if isinstance(cache, Recurrent):
        return _VARIANTS.get(cache.variant, cache.variant)
    if isinstance(cache, MultiHeadLatent):
        return "latent (MLA) with sparse index" if cache.index_bytes else "latent (MLA)"
    if isinstance(cache, CompressedLatent):
        return f"compressed {cache.ratio:,} to 1" if cache.ratio else f"window {cache.window:,} of latents"
    if isinstance(cache, Shared):
        return "read an earlier layer's cache"
    return KINDS[cache.kind]


def shape_words(cache: LayerCache) -> str:
    """What one layer keeps: `16 KV heads x 128`; empty where it keeps nothing."""
    if isinstance(cache, MultiHeadLatent):
        pooled = f" for {cache.index_pool} tokens" if cache.index_pool > 1 else ""
        index = f", {cache.index_bytes} B of index{pooled}" if cache.index_bytes else ""
        return f"latent {cache.kv_lora_rank} + rope key {cache.qk_rope_head_dim}{index}"
    if isinstance(cache, CompressedLatent):
        rows = f"rows of {cache.head_dim}, the last {cache.window:,} whole"
        index = f", index rows of {cache.index_head_dim}" if cache.index_head_dim else ""
        return rows + index
    if isinstance(cache, Recurrent):
        return ", ".join(_state_words(state, cache) for state in cache.states)
    if isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal, CrossAttention)):
        heads = f"{cache.num_key_value_heads} KV head" + ("" if cache.num_key_value_heads == 1 else "s")
        width = (
            str(cache.head_dim)
            if cache.head_dim == cache.v_head_dim
            else f"({cache.head_dim} K + {cache.v_head_dim} V)"
        )
        index = f", {cache.index_bytes} B of index" if isinstance(cache, FullAttention) and cache.index_bytes else ""
        source = f", {cache.source_len:,} source tokens" if isinstance(cache, CrossAttention) else ""
        return f"{heads} x {width}{index}{source}"
    return ""


def _state_words(state: State, cache: Recurrent) -> str:
    dtype = state.dtype or (cache.model_dtype if state.role == "conv" else cache.ssm_dtype or "float32")
    return f"{'conv' if state.role == 'conv' else 'state'} {' x '.join(map(str, state.shape))} {dtype}"


def layers_words(layers: Sequence[int]) -> str:
    """Which layers: runs of neighbours, or every n-th where they stand at equal distances.

    >>> layers_words([0, 1, 2, 3])
    'layers 0-3'
    >>> layers_words([5, 11, 17, 23])
    'every 6th layer, 5-23'
    """
    if len(layers) == 1:
        return f"layer {layers[0]}"
    steps = {after - before for before, after in pairwise(layers)}
    if len(layers) > 2 and len(steps) == 1 and min(steps) > 1:
        return f"every {_ordinal(min(steps))} layer, {layers[0]}-{layers[-1]}"
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    shown = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs[:_MOST_RUNS]]
    return "layers " + ", ".join(shown) + (" ..." if len(runs) > _MOST_RUNS else "")


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in (11, 12, 13) else endings.get(number % 10, 'th')}"
