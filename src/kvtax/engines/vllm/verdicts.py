"""Whether vLLM starts, what it would say, and what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtax.engines.answer import FITS, KV_TOO_SMALL, OUT_OF_MEMORY, REFUSED, Answer, Memory, Pool
from kvtax.engines.vllm import rules, wording
from kvtax.terms import Notice
from kvtax.units import format_bytes

if TYPE_CHECKING:
    from kvtax.engines.vllm.division import Detail
    from kvtax.engines.vllm.plan import VllmPlan


def judge(plan: VllmPlan, taken: Memory, pool: Pool, detail: Detail) -> tuple[str, Notice | None]:
    """The verdict for one request of max_model_len, and the engine's error where it does not start.

    Source: vllm 0.33.0 v1/worker/utils.py request_memory, v1/core/kv_cache_utils.py check_enough_kv_cache_memory.
    """
    if plan.refusal is not None:
        return REFUSED, plan.refusal
    lacking = _lacks_memory(plan, taken)
    if lacking is not None:
        return OUT_OF_MEMORY, lacking
    usable = pool.blocks - rules.rule("reserved_blocks", plan.version)
    least = pool.blocks_per_request if rules.rule("one_request_checked", plan.version) else 1
    enough = usable >= least and pool.blocks > 0
    if pool.bytes_per_block == 0:  # nothing to hold
        enough = taken.kv_pool_bytes >= 0
    return (FITS, None) if enough else (KV_TOO_SMALL, _too_small(plan, taken, pool, detail, usable))


def _lacks_memory(plan: VllmPlan, taken: Memory) -> Notice | None:
    """Where loading, the profile run or the limit needs more than is free."""
    free = plan.free_bytes(taken)
    fixed = plan.question.deployment.kv_cache_memory_bytes
    rest = taken.weights_bytes + taken.load_extra_bytes
    if rest > free:
        message = f"loading needs {format_bytes(rest)}, {format_bytes(free)} are free: CUDA out of memory in load_model"
        return Notice("loading-out-of-memory", message, "more ranks, fewer bits, or a larger card")
    if rest + taken.loading_bytes > free:
        message = (
            f"the weights fit at rest ({format_bytes(rest)} of {format_bytes(free)}), but loading takes "
            f"{format_bytes(taken.loading_bytes)} more for a while: CUDA out of memory in load_model"
        )
        return Notice("loading-out-of-memory", message, "load a checkpoint that is quantised already, or more ranks")
    peak = rest + taken.workspace_bytes + taken.activation_bytes
    if peak > free:
        message = f"the profile run needs {format_bytes(peak)}, {format_bytes(free)} are free: CUDA out of memory in profile_run"
        return Notice("profile-out-of-memory", message, "lower --max-num-batched-tokens or --max-num-seqs")
    if fixed is None and plan.known and taken.limit_bytes > free:
        share = plan.settings["gpu_memory_utilization"].value
        message = wording.start_refused(free, taken.total_bytes, float(share), taken.limit_bytes)
        return Notice("start-below-limit", message, "lower --gpu-memory-utilization, or free the card")
    if fixed is not None and peak + taken.cuda_graph_bytes + fixed > free:
        message = f"weights, peak and the fixed pool need {format_bytes(peak + taken.cuda_graph_bytes + fixed)}, {format_bytes(free)} are free"
        return Notice("pool-out-of-memory", message, "lower --kv-cache-memory-bytes")
    return None


def _too_small(plan: VllmPlan, taken: Memory, pool: Pool, detail: Detail, usable: int) -> Notice:
    if taken.kv_pool_bytes <= 0:
        message = f"Available KV cache memory: {wording.gib(taken.kv_pool_bytes)} GiB. {wording.POOL_EMPTY}"
        return Notice("no-cache-blocks", message, _cure(plan))
    longest = longest_in_pool(detail, usable)
    need = pool.blocks_per_request * pool.bytes_per_block
    available = (
        usable * pool.bytes_per_block if plan.question.deployment.num_gpu_blocks_override else taken.kv_pool_bytes
    )
    message = wording.pool_too_small(detail.max_model_len, need, available, longest)
    return Notice(
        "pool-below-one-request", message, f"--max-model-len {longest}, or {_cure(plan)}" if longest else _cure(plan)
    )


def _cure(plan: VllmPlan) -> str:
    if int(plan.settings["max_num_seqs"].value) > 256 and rules.rule("sampler_sorts", plan.version):
        return "a lower --max-num-seqs (the sampler's profile takes a share for each), or a higher --gpu-memory-utilization"
    return "a higher --gpu-memory-utilization, fewer bits or more ranks"


def longest_in_pool(detail: Detail, usable: int) -> int:
    """The longest request that `usable` blocks hold, by bisection; 0 for none [tokens].

    Source: vllm 0.33.0 v1/core/kv_cache_utils.py estimate_max_model_len.
    """
    layout = detail.stage.layout
    if layout is None:
        return 0
    low, high = 0, detail.max_model_len
    while low < high:
        middle = (low + high + 1) // 2
        if layout.blocks_per_request(middle) <= usable:
            low = middle
        else:
            high = middle - 1
    return low


def prints(plan: VllmPlan, answer: Answer, max_model_len: int) -> list[str]:
    """The lines about capacity at start: available memory, tokens, concurrency.

    Source: logs of 0.8.5 to 0.32.
    """
    pool = answer.pool
    if not pool.blocks_per_request:
        return []
    times = f"Maximum concurrency for {max_model_len:,} tokens per request: {pool.max_concurrency:.2f}x"
    tokens = f"GPU KV cache size: {pool.capacity_tokens:,} tokens"
    first = f"Available KV cache memory: {wording.gib(answer.memory.kv_pool_bytes)} GiB"
    if rules.rule("kv_lines", plan.version) == "one":
        return [first, f"{tokens}, {times}"]
    return [first, tokens, times]
