"""Whether a vLLM server starts, and the error with which it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtax.engines.answer import FITS, KV_TOO_SMALL, OUT_OF_MEMORY, REFUSED, Memory, Pool
from kvtax.engines.vllm import rules, wording
from kvtax.terms import Notice

if TYPE_CHECKING:
    from kvtax.engines.vllm.division import Detail
    from kvtax.engines.vllm.plan import VllmPlan

_LOAD_HINT = "more cards (--tp), a smaller format (--quantization), or --cpu-offload"


def judge(plan: VllmPlan, taken: Memory, pool: Pool, detail: Detail) -> tuple[str, Notice | None]:
    """The verdict for one request of max_model_len, and the engine's error in its own words."""
    if plan.refusal is not None:
        return REFUSED, plan.refusal
    overrun = _out_of_memory(plan, taken)
    if overrun is not None:
        return OUT_OF_MEMORY, overrun
    usable = pool.blocks - rules.rule("reserved_blocks", plan.version)
    least = pool.blocks_per_request if rules.rule("one_request_checked", plan.version) else 1
    enough = taken.kv_pool_bytes > 0 and usable >= least
    if pool.bytes_per_block == 0:  # nothing to hold
        enough = taken.kv_pool_bytes >= 0
    return (FITS, None) if enough else (KV_TOO_SMALL, _too_small(plan, taken, pool, detail))


def _out_of_memory(plan: VllmPlan, taken: Memory) -> Notice | None:
    """The first thing that the card has no room for: the limit, the weights, loading them, the profile run, a fixed pool."""
    free, fixed = plan.free_bytes(taken), plan.question.deployment.kv_cache_memory_bytes
    rest = taken.weights_bytes + taken.load_extra_bytes
    if rest > free:
        return Notice("weights-out-of-memory", wording.out_of_memory("loading weights", rest, free), _LOAD_HINT)
    if fixed is None and plan.known and taken.limit_bytes > free:
        utilization = float(plan.settings["gpu_memory_utilization"].value)
        message = wording.start_refused(free, taken.total_bytes, utilization, taken.limit_bytes)
        return Notice("start-refused", message, "lower --gpu-memory-utilization, or free memory of other processes")
    loading = taken.weights_bytes + taken.loading_bytes
    if loading > free:
        message = wording.out_of_memory("loading weights", loading, free)
        message += f" At rest they would fit: {wording.gib(rest)} GiB; before they are quantised they take more."
        return Notice(
            "loading-out-of-memory", message, "use a checkpoint that is quantised already, or more cards (--tp)"
        )
    run = rest + taken.workspace_bytes + taken.activation_bytes
    if run > free:
        message = wording.out_of_memory("profiling", run, free)
        return Notice(
            "profile-out-of-memory",
            message,
            "lower --max-num-batched-tokens or --max-num-seqs, or use more cards (--tp)",
        )
    whole = run + taken.cuda_graph_bytes + (fixed or 0)
    if fixed is not None and whole > free:
        message = wording.out_of_memory("allocating the KV cache", whole, free)
        return Notice("pool-out-of-memory", message, "lower --kv-cache-memory-bytes")
    return None


def _too_small(plan: VllmPlan, taken: Memory, pool: Pool, detail: Detail) -> Notice:
    if taken.kv_pool_bytes <= 0 or pool.blocks == 0:
        hint = (
            "raise --gpu-memory-utilization, lower --max-num-batched-tokens or --max-num-seqs, or use more cards (--tp)"
        )
        return Notice("no-kv-memory", wording.pool_empty(), hint)
    available = taken.kv_pool_bytes - rules.rule("reserved_blocks", plan.version) * pool.bytes_per_block
    longest = longest_request(plan, pool, detail)
    message = wording.pool_too_small(detail.max_model_len, pool.request_bytes, available, longest)
    hint = f"--max-model-len {longest}" if longest else "more cards (--tp)"
    return Notice("kv-too-small", message, f"{hint}, --kv-cache-dtype fp8, or a higher --gpu-memory-utilization")


def longest_request(plan: VllmPlan, pool: Pool, detail: Detail) -> int:
    """The longest request that the pool holds, by halving; 0 where not even one token fits [tokens].

    Source: vllm v1/core/kv_cache_utils.py estimate_max_model_len.
    """
    layout = detail.stage.layout
    if layout is None:
        return 0
    usable = pool.blocks - rules.rule("reserved_blocks", plan.version)
    low, high = 0, detail.max_model_len
    while low < high:
        middle = (low + high + 1) // 2
        if layout.blocks_per_request(middle) <= usable:
            low = middle
        else:
            high = middle - 1
    return low
