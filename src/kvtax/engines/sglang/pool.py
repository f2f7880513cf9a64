"""How SGLang divides what weights leave of its share: recurrent states first, then tokens of the full and the window pool."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.engines.sglang.cells import Cell
from kvtax.units import ceil_div

WINDOW_EVICTION_INTERVAL = 1
"""Steps between evictions from the window pool (SGLANG_SWA_EVICTION_INTERVAL)."""
STATES_PER_REQUEST = 3
"""State slots that one request may need while prefixes are cached."""


class States(NamedTuple):
    """What the state pool depends on.

    Args:
        request_bytes: state of one sequence on this rank, all layers [bytes].
        ratio: mamba_full_memory_ratio.
        slots: max_mamba_cache_size that was asked for, None for none [states].
        max_running_requests: that was asked for, None for none [requests].
        caching: the radix cache is on.
        tracking_slots: slots of a request beside its states, with the radix cache [states].
        padding_slot: one more slot is allocated and counted.
        draft_tokens: tokens verified in a step, 0 without a draft [tokens].
        draft_kind: how draft states are paid for (rules, draft_states).
        attention_ranks_apart: data parallel size of attention [ranks].
    """

    request_bytes: int
    ratio: float = 0.9
    slots: int | None = None
    max_running_requests: int | None = None
    caching: bool = True
    tracking_slots: int = 0
    padding_slot: int = 0
    draft_tokens: int = 0
    draft_kind: str = "within_split"
    attention_ranks_apart: int = 1


class StatePool(NamedTuple):
    """The state pool: slots, its bytes, those of draft states, and how many requests it lets run."""

    slots: int
    state_bytes: int
    draft_bytes: int
    requests: int


class TokenPool(NamedTuple):
    """The token pools: tokens of the full pool (what SGLang prints) and of the window pool, and the bytes of both."""

    tokens: int
    window_tokens: int
    kv_bytes: int


def slots_per_request(states: States) -> int:
    """State slots that one running request is counted for: 1 without the radix cache, else 3 and its tracking slots."""
    return STATES_PER_REQUEST + states.tracking_slots if states.caching else 1


def state_pool(rest_bytes: int, states: States) -> StatePool:
    """Slots for recurrent state.

    asked: max_mamba_cache_size; radix cache off: max_running_requests; else floor((rest * ratio / (1 + ratio) - padding) / slot)

    Args:
        rest_bytes: what weights leave of the share [bytes].
        states: what it depends on.

    Returns:
        Slots and bytes; slots may be zero or less, which SGLang refuses.

    Source: sglang 0.5.23 srt/mem_cache/kv_cache_configurator.py _handle_max_mamba_cache; older releases: rules draft_states, state_padding_slot.
    """
    per, drafts, pad = states.request_bytes, states.draft_tokens, states.padding_slot
    each = slots_per_request(states)
    requests = max(1, (states.max_running_requests or 0) // states.attention_ranks_apart)
    part = max(rest_bytes, 0) * states.ratio / (1 + states.ratio)
    draft_bytes = 0
    if states.draft_kind == "before_split" and drafts:
        draft_bytes = per * requests * drafts
        part = max(rest_bytes - draft_bytes, 0) * states.ratio / (1 + states.ratio)
    if states.slots is not None:
        slots = states.slots // states.attention_ranks_apart
    elif not states.caching and (states.max_running_requests is not None or states.draft_kind != "within_split"):
        slots = requests if states.max_running_requests is not None else 512
    elif not per:
        slots = 0
    elif states.draft_kind == "every_slot":
        slots = int(part // (per * (1 + drafts)))
    elif states.draft_kind == "within_split" and drafts:
        slots = int((part - pad * per * (1 + drafts)) // (per * (1 + drafts / each)))
    else:
        slots = int((part - pad * per) // per)
    if drafts and states.draft_kind == "every_slot":
        draft_bytes = per * slots * drafts
    elif drafts and states.draft_kind == "within_split":
        draft_bytes = per * (min(requests, slots // each) + pad) * drafts
    return StatePool(slots, (slots + pad) * per, draft_bytes, slots // each)


def window_tokens_for(requests: int, window: int, page_size: int, step_tokens: int, draft_tokens: int) -> int:
    """Tokens of a window pool that is sized by requests.

    requests * (window + interval * max(draft_tokens, 1) + 2 * page_size) + 2 * step_tokens + page_size, rounded up to a page

    Args:
        requests: max_running_requests [requests].
        window: sliding_window [tokens].
        page_size: [tokens].
        step_tokens: chunked_prefill_size [tokens].
        draft_tokens: verified in a step, 0 without a draft [tokens].

    Returns:
        Size of the pool [tokens].

    Source: sglang 0.5.23 srt/model_executor/pool_configurator.py compute_swa_request_cap (without its padding for drafts).
    """
    each = window + WINDOW_EVICTION_INTERVAL * max(draft_tokens, 1) + 2 * page_size
    return ceil_div(requests * each + 2 * step_tokens + page_size, page_size) * page_size


def tokens_of(
    kv_bytes: int,
    cell: Cell,
    page_size: int,
    ratio: float,
    *,
    draft_bytes: int = 0,
    window_tokens: int | None = None,
    most: int | None = None,
) -> TokenPool:
    """Tokens that fit.

    floor(kv / (full + ratio * window + draft)), rounded down to page_size; the window pool has ratio times as many

    Args:
        kv_bytes: what is left for keys and values [bytes].
        cell: bytes of one token in both pools.
        page_size: [tokens].
        ratio: swa_full_tokens_ratio.
        draft_bytes: of one token in the draft's layers [bytes].
        window_tokens: size of the window pool where it is fixed [tokens].
        most: max_total_tokens [tokens].

    Returns:
        Tokens of both pools, and the bytes of the main model's keys and values.

    Source: sglang 0.5.23 srt/model_executor/pool_configurator.py.

    >>> tokens_of(20 * 2**30, Cell(131072, 0, 32, 0), 1, 0.8).tokens
    163840
    """
    if cell.full_layers == 0:
        size: float = cell.window_bytes + draft_bytes
        fixed = None
    else:
        fixed = window_tokens if cell.window_layers else None
        size = cell.full_bytes + draft_bytes + (0 if fixed is not None else ratio * cell.window_bytes)
    left = kv_bytes - (fixed or 0) * cell.window_bytes
    tokens = int(left // size) if size else 0
    if most is not None:
        tokens = min(tokens, most)
    tokens = tokens // page_size * page_size
    if cell.full_layers == 0:
        return TokenPool(tokens, tokens, tokens * cell.window_bytes)
    windows = fixed if fixed is not None else int(tokens * ratio) // page_size * page_size if cell.window_layers else 0
    return TokenPool(tokens, windows, tokens * cell.full_bytes + windows * cell.window_bytes)
