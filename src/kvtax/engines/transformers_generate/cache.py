"""What transformers' caches keep on a card for a batch, layer by layer, and what one step copies."""

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
    Recurrent,
    SlidingWindow,
)
from kvtax.architectures.state import State
from kvtax.dtypes import find_dtype
from kvtax.engines.transformers_generate.rules import GROUP, RESIDUAL

REPEATS_HEADS = ("falcon",)
"""Model types whose class repeats key/value heads before it keeps them."""
INDEX_SCALE_BLOCK, INDEX_SCALE_BYTES = 128, 4


class Format(NamedTuple):
    """How a cache is held.

    Args:
        dtype: of the model.
        implementation: dynamic, static, quantized, offloaded, offloaded_static.
        bits: of a quantised cache [bit].
        expanded_width: elements of keys and values of all heads that a latent is expanded to; 0: latents are kept [elements].
    """

    dtype: str
    implementation: str = "dynamic"
    bits: int = 4
    expanded_width: int = 0

    @property
    def element_bytes(self) -> int:
        """Of the model's dtype [bytes]."""
        return find_dtype(self.dtype).bits // 8


def row_elements(cache: LayerCache, form: Format) -> tuple[int, int]:
    """Elements of one token's key row and value row of one layer; a latent's two parts, or the heads it is expanded to.

    num_key_value_heads * head_dim, num_key_value_heads * v_head_dim

    Source: transformers cache_utils.py DynamicLayer; shapes of 362 configs measured with 5.24.0 on the meta device.
    """
    if isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal)):
        return cache.num_key_value_heads * cache.head_dim, cache.num_key_value_heads * cache.v_head_dim
    if isinstance(cache, MultiHeadLatent):
        if form.expanded_width:
            return form.expanded_width, 0
        return cache.kv_lora_rank, cache.qk_rope_head_dim
    return 0, 0


def as_kept(cache: LayerCache, model_type: str, num_attention_heads: int) -> LayerCache:
    """A cache as transformers' class of the model keeps it: some repeat key/value heads for all query heads before they are kept.

    Source: transformers modeling_falcon.py with new_decoder_architecture (Falcon 40B: 128 heads of 64 for 8), measured with 5.24.0.
    """
    if model_type in REPEATS_HEADS and isinstance(cache, FullAttention) and cache.num_key_value_heads > 1:
        return cache._replace(num_key_value_heads=num_attention_heads)
    return cache


def index_elements(cache: LayerCache) -> int:
    """Elements of one token's indexer key, which transformers keeps in the model's dtype beside the row.

    index_bytes * 128 // 132 (engines keep 8 bits with 4 B of scale for 128)

    Source: transformers 5.24.0, DynamicIndexedLayer: indexer_keys of 128 elements.
    """
    if isinstance(cache, MultiHeadLatent) and cache.index_bytes:
        return cache.index_bytes * INDEX_SCALE_BLOCK // (INDEX_SCALE_BLOCK + INDEX_SCALE_BYTES)
    return 0


def tokens_kept(cache: LayerCache, tokens: int) -> int:
    """Tokens that a layer keeps of `tokens`: a window's layer holds as many as the window, the newest one included."""
    if isinstance(cache, (SlidingWindow, ChunkedLocal)):
        return min(tokens, cache.window if isinstance(cache, SlidingWindow) else cache.chunk)
    return tokens


def quantised_bytes(elements: int, bits: int, element_bytes: int) -> int:
    """A quantised row block: elements * bits / 8, and a scale and a shift in the model's dtype for 64 elements.

    Args:
        elements: [elements].
        bits: 2, 4 or 8 [bit].
        element_bytes: of the model's dtype [bytes].

    Returns:
        Size [bytes].

    Source: transformers cache_utils.py QuantizedLayer with quanto (axis 0, q_group_size 64); HQQ keeps about as much.

    >>> quantised_bytes(1024, 4, 2)
    576
    """
    return -(-elements * bits // 8) + -(-elements // GROUP) * 2 * element_bytes


def layer_bytes(cache: LayerCache, tokens: int, form: Format) -> int:
    """Bytes of one layer for one sequence of `tokens` tokens, on whatever device.

    Source: transformers cache_utils.py 5.x; a quantised cache keeps every layer whole but the newest 128 tokens in few bits.
    """
    size = form.element_bytes
    if isinstance(cache, Recurrent):
        return recurrent_bytes(cache, form.dtype)
    if isinstance(cache, CrossAttention):
        return cache.source_bytes(form.dtype)
    if isinstance(cache, CompressedLatent):
        return cache.bytes(tokens, form.dtype)
    width = sum(row_elements(cache, form))
    index = (tokens // cache.index_pool if isinstance(cache, MultiHeadLatent) else 0) * index_elements(cache) * size
    if isinstance(cache, FullAttention):
        index = tokens * cache.index_bytes
    if form.implementation == "quantized":
        newest = min(tokens, RESIDUAL)
        return newest * width * size + quantised_bytes((tokens - newest) * width, form.bits, size) + index
    return tokens_kept(cache, tokens) * width * size + index


def recurrent_bytes(cache: Recurrent, dtype: str) -> int:
    """State of one sequence: conv states with all columns of the kernel, recurrent states as declared, else float32.

    Source: transformers 5.24.0 LinearAttentionLayer (LFM2: 3 columns where engines keep 2).
    """
    whole = cache._replace(states=tuple(_with_last_column(state) for state in cache.states))
    return whole.state_bytes(None, dtype)


def _with_last_column(state: State) -> State:
    """A conv state with one more column than the kernel - 1 that servers keep."""
    if state.role != "conv" or len(state.shape) < 2:
        return state
    return state._replace(shape=(*state.shape[:-1], state.shape[-1] + 1))


def growth_bytes(caches: Sequence[LayerCache], tokens: int, form: Format) -> int:
    """What appending a token copies for a while, for one sequence: the largest over layers.

    dynamic: a new key tensor beside the old one (keys are replaced before values), key and value of a window together;
    quantized: key and value of a layer in the model's dtype, old and joined; static: nothing

    Args:
        caches: of one rank.
        tokens: that the sequence has [tokens].
        form: how the cache is held.

    Returns:
        Size [bytes].

    Source: transformers cache_utils.py DynamicLayer.update, DynamicSlidingWindowLayer.update, QuantizedLayer.update.
    """
    if "static" in form.implementation:
        return 0
    largest = 0
    for cache in set(caches):
        key, value = row_elements(cache, form)
        kept = tokens_kept(cache, tokens)
        if form.implementation == "quantized":
            copied = 2 * tokens * (key + value)
        elif isinstance(cache, (SlidingWindow, ChunkedLocal)):
            copied = kept * (key + value)
        else:
            copied = kept * max(key, value)
        largest = max(largest, copied * form.element_bytes)
    return largest


class Held(NamedTuple):
    """A cache of one sequence, by where it is [bytes]."""

    device_bytes: int
    host_bytes: int


def held(caches: Sequence[LayerCache], tokens: int, form: Format) -> Held:
    """What one sequence of `tokens` tokens keeps on the card, and in RAM where the cache is offloaded: all but two layers.

    Args:
        caches: of one rank, in layer order.
        tokens: that the sequence has, or is allocated for [tokens].
        form: how the cache is held.

    Returns:
        Sizes on card and host.

    Source: transformers cache_utils.py Cache(offloading=True): the layer in use and the next one are on the card.
    """
    sizes = [layer_bytes(cache, tokens, form) for cache in caches]
    whole = sum(sizes)
    if not form.implementation.startswith("offloaded"):
        return Held(whole, 0)
    near = sum(sorted(sizes, reverse=True)[:2])
    return Held(near, whole - near)
