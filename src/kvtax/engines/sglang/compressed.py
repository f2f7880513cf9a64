"""DeepSeek V4 in SGLang: compressed rows that grow with the tokens, window rows, and states of what is not compressed yet."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.cache import CompressedLatent
from kvtax.engines.sglang.pool import window_tokens_for
from kvtax.units import ceil_div

ROW_BYTES = 584
"""448 fp8 + 64 rope in 16 bit + 8 of scale (sglang 0.5.12 srt/model_executor/pool_configurator.py)."""
INDEX_ROW_BYTES = 132
PAGE_TOKENS = 256
"""page_size (sglang 0.5.12 srt/arg_groups/deepseek_v4_hook.py)."""
PAGE_ALIGNMENT_BYTES = 576
"""A page of rows is padded to a multiple of this (sglang 0.5.21 srt/mem_cache/deepseek_v4_memory_pool.py)."""
DEFAULT_REQUESTS = 256
"""max_running_requests where none is asked for (sglang 0.5.12 and 0.5.23 srt/arg_groups/deepseek_v4_hook.py)."""
PREFIX_TAILS_PER_REQUEST = 4
"""Windows kept for prefixes, for each request, where the window pool is sized by requests (sglang 0.5.23)."""


class Sizing(NamedTuple):
    """How the pools of a stage are sized.

    Args:
        caches: of its layers.
        entries: of the config's list of ratios: layers, and the draft's layer while that was counted [layers].
        kind: `per_token`, `states_fixed` or `by_requests` (rules, compressed_pools).
        ratio: swa_full_tokens_ratio.
        ratio_given: it was asked for.
        requests: max_running_requests [requests].
        step_tokens: chunked_prefill_size [tokens].
        caching: the radix cache is on.
        draft_tokens: verified in a step, 0 without a draft [tokens].
    """

    caches: tuple[CompressedLatent, ...]
    entries: int
    kind: str
    ratio: float
    ratio_given: bool
    requests: int
    step_tokens: int
    caching: bool
    draft_tokens: int


def _row(rows: int, padded: bool) -> float:
    """Bytes of one row, with its part of the padding of a page."""
    return ceil_div(rows * ROW_BYTES, PAGE_ALIGNMENT_BYTES) * PAGE_ALIGNMENT_BYTES / rows if padded else ROW_BYTES


def _rings(sizing: Sizing) -> dict[int, int]:
    """Rows that are kept until they are compressed: 8 and 128 by compression, twice as many with a draft."""
    return {4: 16, 128: 256} if sizing.draft_tokens else {4: 8, 128: 128}


def _states(sizing: Sizing, ratio: int) -> int:
    """Bytes of one row of states of all layers of a compression: overlapping pairs in float32 where it is 4, single ones else."""
    parts = 4 if ratio == 4 else 2
    return sum(4 * parts * (one.head_dim + one.index_head_dim) for one in sizing.caches if one.ratio == ratio)


def window_row_bytes(sizing: Sizing) -> float:
    """One token of the window pool in all layers, with the rings that follow it [bytes]."""
    apart = sizing.kind == "by_requests"
    rings = _rings(sizing)
    window = next((one.window for one in sizing.caches), 1)
    page = PAGE_TOKENS if apart else window
    found = _row(PAGE_TOKENS, apart) * sizing.entries + rings[4] / page * _states(sizing, 4)
    if sizing.kind == "per_token":
        found += rings[128] / page * _states(sizing, 128)
    return found


def token_bytes(sizing: Sizing) -> float:
    """Bytes of one token of the full pool: compressed rows with their index, and a share of the window pool.

    ratio * window_row + sum of (row + index) / compression; with a draft times (layers + 1) / layers

    Args:
        sizing: of the pools.

    Returns:
        Size [bytes].

    Source: sglang 0.5.12 to 0.5.23 srt/model_executor/pool_configurator.py DSV4PoolConfigurator; 15955.85 in a log is met.
    """
    padded = sizing.kind == "by_requests"
    found = 0.0 if window_pool_tokens(sizing) is not None else sizing.ratio * window_row_bytes(sizing)
    for one in sizing.caches:
        if one.ratio:
            found += _row(max(PAGE_TOKENS // one.ratio, 1), padded) / one.ratio
            found += INDEX_ROW_BYTES / one.ratio if one.index_head_dim else 0
    return found * (sizing.entries + 1) / sizing.entries if sizing.draft_tokens else found


def window_pool_tokens(sizing: Sizing) -> int | None:
    """Tokens of a window pool that is sized by requests and prefixes, None where it is a share of the full pool."""
    if sizing.kind != "by_requests" or sizing.ratio_given or sizing.step_tokens <= 0:
        return None
    window = next((one.window for one in sizing.caches), 0)
    tokens = window_tokens_for(sizing.requests, window, PAGE_TOKENS, sizing.step_tokens, sizing.draft_tokens)
    tails = PREFIX_TAILS_PER_REQUEST * sizing.requests if sizing.caching else 0
    return tokens + ceil_div(tails * (window + PAGE_TOKENS), PAGE_TOKENS) * PAGE_TOKENS


def fixed_bytes(sizing: Sizing) -> int:
    """What requests take whatever their tokens: states of the layers that compress by 128, and a window pool sized by requests.

    ceil128((requests + 2) * ring + 1) * state_row + window_pool * window_row

    Args:
        sizing: of the pools.

    Returns:
        Size [bytes].

    Source: sglang 0.5.15 and 0.5.23 srt/model_executor/pool_configurator.py.
    """
    if sizing.kind == "per_token":
        return 0
    rows = (sizing.requests + 2) * _rings(sizing)[128] + 1
    found = ceil_div(rows, 128) * 128 * _states(sizing, 128)
    window = window_pool_tokens(sizing)
    return found + round(window * window_row_bytes(sizing)) if window is not None else found
