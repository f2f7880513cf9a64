"""Whether a SGLang server starts, and the error it raises where it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtax.engines.answer import FITS, KV_TOO_SMALL, OUT_OF_MEMORY, REFUSED
from kvtax.engines.sglang.rules import rule
from kvtax.terms import Notice
from kvtax.units import format_bytes

if TYPE_CHECKING:
    from kvtax.engines.sglang.divide import Divided
    from kvtax.engines.sglang.plan import SglangPlan

OVER_BUDGET = "over_budget"


def judge(plan: SglangPlan, found: Divided, max_model_len: int) -> tuple[str, Notice | None]:
    """The verdict for one request of max_model_len, and the reason where it is another than fits.

    SGLang starts with any pool that is not empty: a request longer than the pool is refused when it comes.

    Source: sglang 0.5.23 srt/mem_cache/kv_cache_configurator.py, srt/model_executor/pool_configurator.py.
    """
    if plan.refusal is not None:
        return REFUSED, plan.refusal
    taken = found.memory
    loaded = taken.weights_bytes + taken.load_extra_bytes + found.draft_weights_bytes
    if loaded > found.free_bytes:
        message = f"loading takes {format_bytes(loaded)}, and {format_bytes(found.free_bytes)} are free"
        return OUT_OF_MEMORY, Notice("weights-above-free", message, "raise --tp, or take a smaller checkpoint")
    small = _pool_too_small(plan, found, loaded)
    if small is not None:
        return KV_TOO_SMALL, small
    if found.pool.capacity_tokens < max_model_len and found.cell.full_layers + found.cell.window_layers:
        message = (
            f"the server starts, but its {found.pool.capacity_tokens:,} tokens hold no request of {max_model_len:,}"
        )
        return OVER_BUDGET, Notice("context-above-pool", message, "lower --context, or raise --gpu-memory-utilization")
    return FITS, None


def _pool_too_small(plan: SglangPlan, found: Divided, loaded: int) -> Notice | None:
    """The error of a pool that holds nothing, or too little to run."""
    if plan.question.deployment.kv_cache_memory_bytes is None:
        if found.states is not None and found.states.slots <= 0:
            message = (
                "SGLang: Not enough GPU memory for hybrid (mamba/linear-attention) state cache "
                f"(max_mamba_cache_size={found.states.slots})"
            )
            return Notice("state-pool-empty", message, "raise --gpu-memory-utilization, or lower --max-num-seqs")
        keeps = found.cell.full_layers + found.cell.window_layers
        if found.memory.kv_pool_bytes < 0 or (keeps and found.tokens.tokens <= 0):
            least = -(-loaded * 1000 // max(found.free_bytes, 1)) / 1000
            message = (
                "SGLang: Not enough memory. Please try to increase --mem-fraction-static. "
                f"Current value: mem_fraction_static={plan.share:g}"
            )
            hint = f"weights alone take {least:.3f} of what is free: raise --gpu-memory-utilization above it, or --tp"
            return Notice("pool-empty", message, hint)
    if (
        rule("window_pool_checked", plan.version)
        and found.cell.window_layers
        and found.cell.full_layers
        and found.window + plan.page_size >= found.tokens.window_tokens
    ):
        message = (
            f"SGLang: SWA pool ({found.tokens.window_tokens} tokens) cannot hold even one request: "
            f"the window of {found.window} and a page of {plan.page_size} are needed"
        )
        return Notice("window-pool-too-small", message, "raise --swa-full-tokens-ratio or the pool")
    return None
