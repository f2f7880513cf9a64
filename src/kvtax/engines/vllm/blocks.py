"""How vLLM cuts a KV pool into blocks: pages of layers, groups of layers, blocks of a request."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
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
    State,
)
from kvtax.units import ceil_div

COMPRESSED_ROW_BYTES = 584
"""DeepSeek V4: 448 fp8 + 64 rope in 16 bit + 8 of scale (vllm 0.33.0 models/deepseek_v4)."""
COMPRESSED_INDEX_ROW_BYTES = 132
CHECKPOINT_VARIANTS = ("gated_delta_net", "mamba2")
"""Recurrent kinds that keep a prefill checkpoint with prefix caching: three blocks a request instead of two."""
CHECKPOINT_GRID = 64
"""Blocks of Gated DeltaNet hybrids are multiples of this with prefix caching."""


class Spec(NamedTuple):
    """What one layer asks the pool for on one rank: the cache kind and the bytes of one page."""

    cache: LayerCache
    block_size: int
    page_bytes: int


class Group(NamedTuple):
    """Layers that share a block table: a block of the group is one page of each; `members` are their places among all."""

    cache: LayerCache
    layers: int
    block_size: int
    page_bytes: int
    members: tuple[int, ...] = ()


class Layout(NamedTuple):
    """The pool of one rank: groups, and the bytes that one block takes."""

    groups: tuple[Group, ...]
    block_size: int
    bytes_per_block: int
    in_flight_tokens: int
    prefix_caching: bool
    encoder_tokens: int
    context_parallel: int
    speculative_tokens: int = 0
    checkpoints: bool = True
    """Whether recurrent kinds keep a checkpoint of the prompt beside two states, with prefix caching."""

    def blocks_of(self, group: Group, tokens: int) -> int:
        """Blocks that a request of `tokens` tokens takes at most in one group.

        full, latent: ceil(tokens / context_parallel / block_size); window: ceil(min(window - 1 + in_flight, tokens) / block_size) + 1;
        chunked: ceil(min(chunk + in_flight, tokens) / block_size); recurrent: 1, with prefix caching 2 or 3,
        and one for each draft token; cross: ceil(encoder / block_size).

        Source: vllm 0.33.0 v1/kv_cache_interface.py max_memory_usage_bytes, reproduced with its planner.
        """
        cache = group.cache
        if isinstance(cache, SlidingWindow):
            held = min(cache.window - 1 + cache.sink_tokens + self.in_flight_tokens, tokens)
            return ceil_div(held, group.block_size) + 1
        if isinstance(cache, ChunkedLocal):
            return ceil_div(min(cache.chunk + self.in_flight_tokens, tokens), group.block_size)
        if isinstance(cache, Recurrent):
            kept = 2 + (self.checkpoints and cache.variant in CHECKPOINT_VARIANTS) if self.prefix_caching else 1
            return kept + self.speculative_tokens
        if isinstance(cache, CrossAttention):
            return ceil_div(max(self.encoder_tokens, cache.source_len), group.block_size)
        blocks = ceil_div(ceil_div(tokens, self.context_parallel), group.block_size)
        if isinstance(cache, CompressedLatent):
            window = cache.window - 1 + self.in_flight_tokens
            blocks += ceil_div(min(window, tokens) * COMPRESSED_ROW_BYTES * group.layers, group.page_bytes)
        return blocks

    def blocks_per_request(self, tokens: int) -> int:
        """Blocks of one request of `tokens` tokens: the sum over groups."""
        return sum(self.blocks_of(group, tokens) for group in self.groups)


class Dtypes(NamedTuple):
    """Formats of what the pool holds.

    Args:
        kv: of keys and values.
        model: that the model runs in; conv states take it, and recurrent states whose config declares nothing.
        ssm: asked for recurrent states; empty: not asked.
        conv: asked for conv states; empty: not asked.
        speculative_tokens: columns that conv states hold besides.
    """

    kv: str
    model: str
    ssm: str = ""
    conv: str = ""
    speculative_tokens: int = 0


def state_bytes(cache: Recurrent, dtypes: Dtypes) -> int:
    """Bytes of one sequence's state.

    Conv states in the model dtype, with kernel - 1 columns and one for each draft token; recurrent states as asked, as declared, else in
    the dtype of conv states.

    Source: vllm 0.33.0 model_executor/layers/mamba/mamba_utils.py; a state whose model fixes float32 stays so.
    """
    conv = dtypes.conv or dtypes.model
    if dtypes.speculative_tokens:
        cache = cache._replace(states=tuple(_with_drafts(state, dtypes.speculative_tokens) for state in cache.states))
    return cache.state_bytes(dtypes.ssm or cache.ssm_dtype or conv, conv)


def _with_drafts(state: State, speculative_tokens: int) -> State:
    """A conv state with a column for each draft token besides."""
    if state.role != "conv" or len(state.shape) != 2 or state.axis < 0:
        return state
    shape = list(state.shape)
    shape[1 - state.axis] += speculative_tokens
    return state._replace(shape=tuple(shape))


def page_bytes(cache: LayerCache, block_size: int, dtypes: Dtypes) -> int:
    """Bytes of one page of one layer on one rank.

    attention: block_size x bytes of a token; recurrent: the state of one sequence.
    """
    kv_dtype = dtypes.kv
    if isinstance(cache, Recurrent):
        return state_bytes(cache, dtypes)
    if isinstance(cache, CrossAttention):
        return block_size * cache.source_bytes(kv_dtype, 1)
    if isinstance(cache, CompressedLatent):
        row = COMPRESSED_ROW_BYTES + (COMPRESSED_INDEX_ROW_BYTES if cache.index_head_dim else 0)
        return ceil_div(block_size, cache.ratio) * row if cache.ratio else 0
    return block_size * cache.token_bytes(kv_dtype)


def hybrid_block_size(caches: Sequence[LayerCache], block_size: int, dtypes: Dtypes, grid: bool) -> int:
    """Tokens of a block that makes a page of attention at least as large as a recurrent state.

    align x ceil(state / (align x bytes of a token)), align 16 (latent attention 128; Gated DeltaNet on a checkpoint grid lcm(align, 64)).

    Source: vllm 0.33.0 platforms/interface.py, reproduced with its planner for six hybrids.
    """
    states = [cache for cache in caches if isinstance(cache, Recurrent)]
    growing = (FullAttention, SlidingWindow, ChunkedLocal, MultiHeadLatent)
    tokens = [cache.token_bytes(dtypes.kv) for cache in caches if isinstance(cache, growing)]
    if not states or not tokens:
        return block_size
    align = max(block_size, 128) if any(isinstance(cache, MultiHeadLatent) for cache in caches) else max(block_size, 16)
    if grid and any(state.variant == "gated_delta_net" for state in states):
        align = lcm(align, CHECKPOINT_GRID)
    largest = max(state_bytes(state, dtypes) for state in states)
    return align * ceil_div(largest, align * max(tokens))


def plan_groups(specs: Sequence[Spec], hybrid_manager: bool) -> tuple[tuple[Group, ...], int]:
    """Groups of layers and the bytes of one block.

    One group where every layer grows alike (page: the sum of theirs). Otherwise pages are made equal (a smaller page takes more tokens
    where it divides the largest, else it is padded), layers of one kind form a bucket, and buckets are cut into groups of the smallest
    bucket's size, or of the largest one's where that is less than 1.5 times it.

    Args:
        specs: one per layer with a cache.
        hybrid_manager: False: window and chunked layers allocate like full ones.

    Returns:
        The groups, and bytes_per_block.

    Source: vllm 0.33.0 v1/core/kv_cache_planning.py, reproduced with its planner.
    """
    if not hybrid_manager and not any(isinstance(spec.cache, Recurrent) for spec in specs):
        specs = [spec._replace(cache=_as_full(spec.cache)) for spec in specs]
    if len({_growth_kind(spec.cache) for spec in specs}) == 1:
        total = sum(spec.page_bytes for spec in specs)
        first = specs[0]
        everyone = tuple(range(len(specs)))
        return (Group(first.cache, len(specs), first.block_size, total // len(specs), everyone),), total
    largest = max(spec.page_bytes for spec in specs)
    buckets: dict[tuple[LayerCache, int], list[int]] = {}
    for place, spec in enumerate(specs):
        block_size = spec.block_size
        if not isinstance(spec.cache, Recurrent) and largest % spec.page_bytes == 0:
            block_size *= largest // spec.page_bytes
        key = (spec.cache, block_size)
        buckets.setdefault(key, []).append(place)
    sizes = [len(places) for places in buckets.values()]
    smallest, biggest = min(sizes), max(sizes)
    size = biggest if biggest < 1.5 * smallest else smallest
    groups: list[Group] = []
    for (cache, block_size), places in buckets.items():
        count = ceil_div(len(places), size)
        for index in range(count):
            members = tuple(places[index::count])
            groups.append(Group(cache, len(members), block_size, largest, members))
    return tuple(groups), size * largest


def stage_block_bytes(groups: Sequence[Group], specs: Sequence[Spec], places: Sequence[int]) -> int:
    """Bytes of one block on a pipeline stage that has the layers at `places` of the whole model.

    max over groups of the pages of its layers that the stage has; one group of unlike pages: their sum

    Source: vllm 0.33.0 v1/core/kv_cache_planning.py: groups of the whole model are projected on each stage.
    """
    on_stage = set(places)
    if len(groups) == 1:
        return sum(specs[place].page_bytes for place in groups[0].members if place in on_stage)
    return max(group.page_bytes * len(on_stage.intersection(group.members)) for group in groups)


def _as_full(cache: LayerCache) -> LayerCache:
    if isinstance(cache, (SlidingWindow, ChunkedLocal)):
        return FullAttention(cache.num_key_value_heads, cache.head_dim, cache.v_head_dim)
    return cache


def _growth_kind(cache: LayerCache) -> tuple[str, int]:
    """What must be equal for layers to share one block table: how many tokens they hold of a request."""
    if isinstance(cache, SlidingWindow):
        return cache.kind, cache.window
    if isinstance(cache, ChunkedLocal):
        return cache.kind, cache.chunk
    if isinstance(cache, (FullAttention, MultiHeadLatent, CompressedLatent)):
        return "full", 0
    return cache.kind, 0
