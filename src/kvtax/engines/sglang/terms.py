"""The terms of a SGLang budget: each number with its formula, inputs, origins and source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtax.architectures.cache import Recurrent
from kvtax.engines.load_terms import given_term, weight_terms
from kvtax.engines.sglang import memory
from kvtax.engines.sglang.cells import row_bytes
from kvtax.terms import Input, Term

if TYPE_CHECKING:
    from kvtax.engines.answer import Answer
    from kvtax.engines.sglang.divide import Divided
    from kvtax.engines.sglang.plan import SglangPlan
    from kvtax.engines.stages import Stage

_CONFIG, _FORMULA = "config.json", "formula"
_CONFIGURATOR = "sglang 0.5.23 srt/mem_cache/kv_cache_configurator.py"


def _one(name: str, size: int, symbol: str, origin: str, source: str) -> Term:
    return given_term(name, size, symbol, source, origin)


def loaded_terms(plan: SglangPlan, stage: Stage) -> list[Term]:
    """Weights by component, and what of them is kept in RAM."""
    question = plan.question
    found = weight_terms(question, stage)
    if question.deployment.cpu_offload and question.deployment.weights_bytes is None:
        moved = min(question.deployment.cpu_offload, stage.weights_bytes)
        inputs = {"cpu_offload": Input(moved, "B", "flag")}
        found.append(Term("weights.in_ram", -moved, "-cpu_offload", inputs, "sglang: --cpu-offload-gb"))
    return found


def memory_terms(plan: SglangPlan, answer: Answer, detail: Divided) -> list[Term]:
    """What is free, the share of it, what is taken before tokens, and the pool."""
    taken = answer.memory
    found = [_limit_term(plan, detail)]
    found += _load_terms(plan, detail)
    if detail.multimodal_bytes:
        source = f"{_CONFIGURATOR} mm_runtime_reservation_gb"
        found.append(_one("runtime.multimodal", detail.multimodal_bytes, "embedding_cache_bytes", "sglang", source))
    if detail.states is not None:
        found += _state_terms(plan, detail)
    if detail.request_pools_bytes:
        source = "sglang 0.5.23 srt/model_executor/pool_configurator.py DSV4PoolConfigurator"
        found.append(_one("runtime.request_pools", detail.request_pools_bytes, "request_pools_bytes", _FORMULA, source))
    if detail.draft_weights_bytes:
        source = "sglang 0.5.15 and later: draft weights are loaded before the pool is sized"
        found.append(_one("runtime.draft_weights", detail.draft_weights_bytes, "draft_weights_bytes", "model", source))
    if detail.draft_kv_bytes:
        source = "sglang 0.5.23 srt/model_executor/pool_configurator.py: the draft's layers have the model's tokens"
        found.append(_one("runtime.draft_kv", detail.draft_kv_bytes, "draft_kv_bytes", _FORMULA, source))
    source = (
        "estimate: formulas.activation and the attention workspace; SGLang leaves a share for it and measures nothing"
    )
    found.append(_one("activation", taken.activation_bytes, "activation_bytes", "estimate", source))
    if taken.cuda_graph_bytes:
        each = f"{memory.DECODE_GRAPH_BYTES} B a layer and decode batch, {memory.PREFILL_GRAPH_BYTES} B a layer and prefill size"
        found.append(
            _one("cuda_graphs", taken.cuda_graph_bytes, "cuda_graph_bytes", "estimate", f"estimate: {each}, from logs")
        )
    source = "context and communicators: the card's total less free before loading in logs"
    origin = "flag" if plan.question.deployment.free_memory is not None else "estimate"
    found.append(_one("runtime.outside", taken.outside_bytes, "outside_bytes", origin, source))
    found.append(_pool_term(plan, detail))
    return found


def _limit_term(plan: SglangPlan, detail: Divided) -> Term:
    share = plan.settings["gpu_memory_utilization"]
    given = plan.question.deployment.free_memory is not None
    inputs = {
        "free_bytes": Input(detail.free_bytes, "B", "flag" if given else "total less context and communicators"),
        "mem_fraction_static": Input(float(share.value), "-", share.origin),
    }
    return Term(
        "limit",
        detail.memory.limit_bytes,
        "free_bytes * mem_fraction_static // 1",
        inputs,
        f"{_CONFIGURATOR} _profile_available_bytes: free before loading, less the slack of 1 - mem_fraction_static",
    )


def _load_terms(plan: SglangPlan, detail: Divided) -> list[Term]:
    """What is held beside the parameters, by cause."""
    architecture, load = plan.question.architecture, detail.load
    found = []
    if load.rope_bytes:
        cuda = plan.question.gpu.vendor != "AMD"
        inputs = {
            "max_position_embeddings": Input(architecture.max_position_embeddings or 0, "tokens", _CONFIG),
            "rope_width": Input(sum(architecture.rope_dims), "elements", _CONFIG),
            "element_bytes": Input(4 if cuda else plan.element_bytes, "B", "float32 with CUDA, else the model's"),
        }
        formula = "max_position_embeddings * rope_width * element_bytes"
        source = "sglang srt/layers/rotary_embedding: one table for each rope that differs"
        found.append(Term("runtime.rope_cache", load.rope_bytes, formula, inputs, source))
    parts = (
        (
            "rounding",
            load.rounding_bytes,
            "torch's allocator: blocks and segments that the driver gave for the parameters",
        ),
        ("absorbed", load.absorbed_bytes, "sglang srt/models/deepseek_v2.py: w_kc and w_vc beside kv_b_proj"),
        (
            "scales",
            detail.scale_copies_bytes,
            "sglang 0.5.12 mxfp4_marlin_moe.py: float32 scales beside repacked experts",
        ),
    )
    found += [_one(f"runtime.{name}", size, f"{name}_bytes", _FORMULA, source) for name, size, source in parts if size]
    return found


def _state_terms(plan: SglangPlan, detail: Divided) -> list[Term]:
    """The state pool: slots, one more where it is padded, and draft states."""
    states = detail.states
    if states is None:
        return []
    each = sum(plan.recurrent_bytes(cache) for cache in detail.stage.caches if isinstance(cache, Recurrent))
    inputs = {
        "max_mamba_cache_size": Input(states.slots, "states", _FORMULA),
        "padding_slots": Input(states.state_bytes // each - states.slots, "states", plan.label),
        "state_bytes": Input(each, "B", _CONFIG),
    }
    formula = "(max_mamba_cache_size + padding_slots) * state_bytes"
    source = f"{_CONFIGURATOR} _handle_max_mamba_cache"
    found = [Term("runtime.state_pool", states.state_bytes, formula, inputs, source)]
    if states.draft_bytes:
        found.append(_one("runtime.draft_states", states.draft_bytes, "draft_states_bytes", _FORMULA, source))
    return found


def _pool_term(plan: SglangPlan, detail: Divided) -> Term:
    taken, deployment = detail.memory, plan.question.deployment
    if deployment.kv_cache_memory_bytes is not None or detail.tokens.tokens < detail.rest_tokens:
        origin = (
            "flag" if deployment.kv_cache_memory_bytes is not None else "the most tokens that any stage or flag allows"
        )
        return _one("kv_pool", taken.kv_pool_bytes, "kv_pool_bytes", origin, "a fixed pool")
    inputs = {
        "limit_bytes": Input(taken.limit_bytes, "B", _FORMULA),
        "weights_bytes": Input(taken.weights_bytes, "B", _FORMULA),
        "load_extra_bytes": Input(taken.load_extra_bytes, "B", _FORMULA),
        "beside_bytes": Input(taken.workspace_bytes, "B", "states, draft and images"),
    }
    formula = "limit_bytes - weights_bytes - load_extra_bytes - beside_bytes"
    return Term("kv_pool", taken.kv_pool_bytes, formula, inputs, f"{_CONFIGURATOR} _profile_available_bytes")


def cell_terms(plan: SglangPlan, detail: Divided) -> list[Term]:
    """What one token takes in each kind of layer, and in both pools."""
    found = []
    counts: dict[tuple[str, int], int] = {}
    for cache in detail.stage.caches:
        size = row_bytes(cache, plan.kv_cache_dtype)
        if size:
            counts[cache.kind, size] = counts.get((cache.kind, size), 0) + 1
    for index, ((kind, size), layers) in enumerate(counts.items()):
        inputs = {
            "layers": Input(layers, "layers", _CONFIG),
            "row_bytes": Input(size, "B", f"{plan.kv_cache_dtype}, one of {plan.ranks} attention ranks"),
        }
        name = f"kv.cell.{kind}" if index == 0 or (kind, size) == next(iter(counts)) else f"kv.cell.{kind}.{index}"
        source = "sglang 0.5.23 srt/model_executor/pool_configurator.py _compute_cell_size"
        found.append(Term(name, layers * size, "layers * row_bytes", inputs, source))
    return found


def figure_terms(plan: SglangPlan, answer: Answer) -> list[Term]:
    """max_total_num_tokens and the requests of max_model_len that it holds."""
    detail: Divided = answer.detail
    pool, cell = answer.pool, detail.cell
    if not cell.full_layers + cell.window_layers:
        return []
    inputs = {
        "pages": Input(pool.blocks, "pages", _FORMULA),
        "page_size": Input(pool.block_size, "tokens", plan.settings["block_size"].origin),
    }
    source = "sglang 0.5.23 srt/model_executor/pool_configurator.py: floor(pool / cell), in whole pages"
    tokens = Term("max_total_num_tokens", pool.capacity_tokens, "pages * page_size", inputs, source, "tokens")
    length = round(pool.capacity_tokens / pool.max_concurrency) if pool.max_concurrency else 0
    if not length:
        return [tokens]
    requests = {
        "max_total_num_tokens": Input(pool.capacity_tokens, "tokens", _FORMULA),
        "max_model_len": Input(length, "tokens", "length asked for"),
    }
    formula = "max_total_num_tokens / max_model_len"
    source = "SGLang prints no concurrency: tokens over length"
    return [tokens, Term("max_concurrency", pool.max_concurrency, formula, requests, source, "requests")]
