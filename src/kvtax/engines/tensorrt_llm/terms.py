"""The terms of a TensorRT-LLM budget: each number with its formula, inputs, origins and source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtax.engines.load_terms import given_term
from kvtax.engines.step_peaks import FRAGMENTATION
from kvtax.engines.tensorrt_llm.memory import GRAPH_BYTES_PER_LAYER
from kvtax.terms import Input, Term

if TYPE_CHECKING:
    from kvtax.engines.free_share import Share
    from kvtax.engines.tensorrt_llm.plan import TensorRtLlmPlan

_UTIL = "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/pyexecutor/_util.py KvCacheCreator, 2026"


def memory_terms(plan: TensorRtLlmPlan, share: Share) -> list[Term]:
    """Peak, pool, and what the pool keeps for every slot."""
    memory = share.memory
    found = []
    if memory.load_extra_bytes:
        inputs = {
            "max_position_embeddings": Input(
                plan.question.architecture.max_position_embeddings or 0, "tokens", "config.json"
            ),
            "rotary_dim": Input(plan.question.architecture.rotary_dim, "elements", "config.json"),
        }
        source = "NVIDIA/TensorRT-LLM rope table of float32 cos and sin, one for all layers; from memory"
        formula = "max_position_embeddings * rotary_dim * 4"
        found.append(Term("runtime.rope_cache", memory.load_extra_bytes, formula, inputs, source))
    found.append(
        activation_term(share, "a profiling run of max_num_tokens prompt tokens; shapes by reading, not measured")
    )
    if memory.cuda_graph_bytes:
        source = f"estimate: {GRAPH_BYTES_PER_LAYER} B a layer and captured size, as measured on vLLM; inside the measured peak"
        found.append(given_term("cuda_graphs", memory.cuda_graph_bytes, "cuda_graph_bytes", source))
    source = "CUDA context and communicators, inside the measured peak: logs of SGLang starts"
    origin = "flag --free-memory" if plan.question.deployment.free_memory is not None else "estimate"
    found.append(given_term("runtime.outside", memory.outside_bytes, "outside_bytes", source, origin))
    found.append(_pool_term(plan, share))
    if share.own.fixed_bytes:
        source = "mamba_cache_manager/common.py _estimate_mamba_hybrid_cache_cost: the pool pays it before any token"
        inputs = {
            "slots": Input(share.own.slots, "requests", "max_batch_size and those of padding"),
            "fixed_bytes_per_slot": Input(
                share.own.fixed_bytes // share.own.slots, "B", "state and source of one request"
            ),
        }
        found.append(Term("kv_pool.fixed", share.own.fixed_bytes, "slots * fixed_bytes_per_slot", inputs, source))
    return found


def activation_term(share: Share, source: str) -> Term:
    """The largest peak of a step, with the allocator's share."""
    name = max(share.peaks, key=lambda key: share.peaks[key])
    inputs = {
        f"{name}_peak_bytes": Input(share.peaks[name], "B", "formulas.activation"),
        "fragmentation": Input(FRAGMENTATION, "-", "estimate"),
    }
    return Term("activation", share.memory.activation_bytes, f"{name}_peak_bytes * fragmentation // 1", inputs, source)


def _pool_term(plan: TensorRtLlmPlan, share: Share) -> Term:
    memory, own = share.memory, share.own
    fraction = plan.settings["gpu_memory_utilization"]
    if own.cap_bytes is not None and own.cap_bytes == memory.kv_pool_bytes:
        inputs = {"cap_bytes": Input(own.cap_bytes, "B", own.cap_origin)}
        return Term(
            "kv_pool", memory.kv_pool_bytes, "cap_bytes", inputs, f"{_UTIL}: the smaller of the cap and the share"
        )
    inputs = {
        "total_bytes": Input(memory.total_bytes, "B", plan.question.total_origin),
        "weights_bytes": Input(memory.weights_bytes, "B", "formula"),
        "rope_bytes": Input(memory.load_extra_bytes, "B", "formula"),
        "outside_bytes": Input(memory.outside_bytes, "B", "estimate"),
    }
    taken = "weights_bytes - rope_bytes - outside_bytes"
    if own.measured:
        inputs["activation_bytes"] = Input(memory.activation_bytes, "B", "formula")
        inputs["cuda_graph_bytes"] = Input(memory.cuda_graph_bytes, "B", "estimate")
        taken += " - activation_bytes - cuda_graph_bytes"
        source = f"{_UTIL}: (total - peak + temporary pool) * fraction; the temporary pool is in the measured peak and not in this one"
    else:
        source = f"{_UTIL}: encoder-decoders are not profiled, so the share is of what is free after loading"
    inputs["free_gpu_memory_fraction"] = Input(float(fraction.value), "-", fraction.origin)
    formula = f"(total_bytes - {taken}) * free_gpu_memory_fraction // 1"
    return Term("kv_pool", memory.kv_pool_bytes, formula, inputs, source)


def figure_terms(share: Share) -> list[Term]:
    """Blocks, tokens and concurrency of the pool that runs out first."""
    pool, split = share.pool, share.own.split
    if split is None:
        return []
    source = "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/pyexecutor/resource_manager.py"
    index = split.tightest
    group = split.groups[index]
    inputs = {
        "memory_bytes": Input(share.own.shared_bytes[index], "B", f"share of the pool of {group.layers} layers"),
        "token_bytes": Input(group.token_bytes, "B", f"one token in {group.layers} layers"),
        "tokens_per_block": Input(pool.block_size, "tokens", "setting"),
    }
    formula = "memory_bytes // token_bytes // tokens_per_block"
    if share.own.rounded_up:
        formula = "-(-(memory_bytes // token_bytes) // tokens_per_block)"
    requests = {
        "blocks": Input(pool.blocks, "blocks", "formula"),
        "blocks_per_request": Input(pool.blocks_per_request, "blocks", f"{share.max_model_len} tokens, to completion"),
    }
    return [
        Term("blocks", pool.blocks, formula, inputs, source, "blocks"),
        Term(
            "max_concurrency",
            split.concurrency,
            "blocks // blocks_per_request",
            requests,
            f"{source}; GUARANTEED_NO_EVICT",
            "requests",
        ),
    ]
