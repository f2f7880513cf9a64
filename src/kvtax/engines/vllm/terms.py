"""The terms of a vLLM budget: each number with its formula, inputs, origins and source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtax.engines import load_terms
from kvtax.engines.vllm.load import MULTIMODAL_ROPE_ROWS
from kvtax.engines.vllm.rules import rule
from kvtax.terms import Input, Term

if TYPE_CHECKING:
    from kvtax.engines.answer import Answer, Memory, Pool
    from kvtax.engines.loading import Load
    from kvtax.engines.vllm.division import Detail
    from kvtax.engines.vllm.plan import VllmPlan
    from kvtax.engines.vllm.stages import Stage

_CONFIG = "config.json"
_FORMULA = "formula"
_LOAD_SOURCES = {
    "padding": "vllm model_executor/layers/quantization/mxfp4.py: widths padded for kernels",
    "rounding": "pytorch c10/cuda/CUDACachingAllocator.cpp: blocks over the tensors in them (engines.allocator)",
    "absorbed": "vllm model_executor/layers/attention/mla_attention.py: 16-bit copies; gemma4.py: keys loaded as values",
    "buffer": "vllm models/qwen3_vl.py and deepseek_v2.py: buffers for the tokens of a step",
    "runtime": "vllm platforms/rocm.py: read off the driver, kernels and handles with it (starts on R9700)",
}


def weight_terms(plan: VllmPlan, stage: Stage) -> list[Term]:
    """Weights by component: elements of each stored dtype x its bytes."""
    found = load_terms.weight_terms(plan.question, stage)
    if stage.offloaded_bytes:
        asked = plan.question.deployment.cpu_offload or 0
        inputs = {"offloaded_bytes": Input(stage.offloaded_bytes, "B", f"whole parameters of layers up to {asked} B")}
        source = "vllm model_executor/offloader/uva.py"
        found.append(Term("weights.offloaded", -stage.offloaded_bytes, "-offloaded_bytes", inputs, source))
    return found


def memory_terms(plan: VllmPlan, answer: Answer, detail: Detail) -> list[Term]:
    """The limit, what is subtracted from it, and the pool that is left."""
    taken = answer.memory
    found = [_limit_term(plan, taken)]
    found.extend(_load_terms(plan, detail.load))
    found += [part.term(f"runtime.{part.name}") for part in detail.persistent if part.bytes]
    found.append(detail.activation.term("activation"))
    if detail.graphs is not None:
        found.append(detail.graphs.term("cuda_graphs"))
    source = "CUDA context and communicators outside the limit: free at start in logs of vllm and SGLang"
    found.append(load_terms.given_term("runtime.outside", taken.outside_bytes, "outside_bytes", source))
    found.append(_pool_term(plan, taken, detail))
    return found


def _limit_term(plan: VllmPlan, taken: Memory) -> Term:
    utilization = plan.settings["gpu_memory_utilization"]
    inputs = {
        "total_bytes": Input(taken.total_bytes, "B", plan.question.total_origin),
        "gpu_memory_utilization": Input(float(utilization.value), "-", utilization.origin),
    }
    formula = "-(-total_bytes * gpu_memory_utilization // 1)"
    return Term(
        "limit", taken.limit_bytes, formula, inputs, "vllm v1/worker/utils.py request_memory: ceil(total * utilization)"
    )


def _load_terms(plan: VllmPlan, load: Load) -> list[Term]:
    """What loading keeps beside the parameters, each cause by itself."""
    found = [_rope_term(plan, load.rope_bytes)] if load.rope_bytes else []
    for name in _LOAD_SOURCES:
        size = getattr(load, f"{name}_bytes")
        if size:
            found.append(load_terms.given_term(f"runtime.{name}", size, f"{name}_bytes", _LOAD_SOURCES[name]))
    if load.released_bytes:
        inputs = {"released_bytes": Input(load.released_bytes, "B", _FORMULA)}
        source = "vllm model_executor/layers/quantization/gptq_marlin.py: zero points and orders"
        found.append(Term("runtime.released", -load.released_bytes, "-released_bytes", inputs, source))
    return found


def _rope_term(plan: VllmPlan, size: int) -> Term:
    architecture = plan.question.architecture
    rows = MULTIMODAL_ROPE_ROWS if architecture.multimodal_rope else 1
    inputs = {
        "max_position_embeddings": Input(architecture.max_position_embeddings or 0, "tokens", _CONFIG),
        "rope_dims": Input(sum(architecture.rope_dims), "elements", f"{_CONFIG}: every rope that differs"),
        "element_bytes": Input(plan.element_bytes, "B", plan.settings["dtype"].origin),
    }
    formula = "max_position_embeddings * rope_dims * element_bytes"
    if rows > 1:
        inputs["multimodal_rows"] = Input(rows, "-", "vllm model_executor/layers/rotary_embedding/mrope.py")
        formula += " * multimodal_rows"
    return Term("runtime.rope_cache", size, formula, inputs, "vllm model_executor/layers/rotary_embedding")


def _pool_term(plan: VllmPlan, taken: Memory, detail: Detail) -> Term:
    fixed = plan.question.deployment.kv_cache_memory_bytes
    if fixed is not None:
        return Term(
            "kv_pool",
            fixed,
            "kv_cache_memory_bytes",
            {"kv_cache_memory_bytes": Input(fixed, "B", "flag")},
            "vllm: a fixed pool skips the profile",
        )
    inputs = {
        "limit_bytes": Input(taken.limit_bytes, "B", _FORMULA),
        "weights_bytes": Input(taken.weights_bytes, "B", _FORMULA),
        "load_extra_bytes": Input(taken.load_extra_bytes, "B", _FORMULA),
        "activation_bytes": Input(taken.activation_bytes, "B", _FORMULA),
        **{f"{part.name}_bytes": Input(part.bytes, "B", _FORMULA) for part in detail.persistent},
    }
    formula = " - ".join(inputs)
    if taken.cuda_graph_bytes and rule("cuda_graphs_inside", plan.version):
        inputs["cuda_graph_bytes"] = Input(taken.cuda_graph_bytes, "B", "estimate")
        formula += " - cuda_graph_bytes"
    return Term(
        "kv_pool", taken.kv_pool_bytes, formula, inputs, "vllm v1/worker/gpu_worker.py determine_available_memory"
    )


def kv_terms(plan: VllmPlan, stage: Stage, max_model_len: int) -> list[Term]:
    """What a request of max_model_len tokens really holds on one rank, by kind of cache."""
    tp = plan.question.deployment.tensor_parallel_size
    held = [(cache.per_rank(tp), kv_dtype) for cache, kv_dtype in zip(stage.caches, stage.formats, strict=True)]
    return load_terms.request_terms(plan, held, max_model_len, "vllm model_executor/layers/mamba/mamba_utils.py")


def figure_terms(taken: Memory, pool: Pool, max_model_len: int) -> list[Term]:
    """Blocks, tokens and concurrency: figures that are not bytes."""
    blocks = {
        "kv_pool_bytes": Input(max(taken.kv_pool_bytes, 0), "B", _FORMULA),
        "bytes_per_block": Input(pool.bytes_per_block, "B", f"{pool.block_size} tokens in every layer of a group"),
    }
    requests = {
        "blocks": Input(pool.blocks, "blocks", _FORMULA),
        "blocks_per_request": Input(pool.blocks_per_request, "blocks", f"{max_model_len} tokens"),
    }
    source = "vllm v1/core/kv_cache_planning.py"
    return [
        Term("blocks", pool.blocks, "kv_pool_bytes // bytes_per_block", blocks, source, "blocks"),
        Term("max_concurrency", pool.max_concurrency, "blocks / blocks_per_request", requests, source, "requests"),
    ]
