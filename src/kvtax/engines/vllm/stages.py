"""The pipeline stages of a vLLM server: the weights of each, and how its pool is cut into blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvtax.architectures.cache import CrossAttention, LayerCache, Recurrent
from kvtax.dtypes import TURBOQUANT_BITS
from kvtax.engines import loading
from kvtax.engines.loading import Load
from kvtax.engines.vllm import blocks, offload, rules
from kvtax.engines.vllm.load import load as load_beside
from kvtax.formulas.weights import RankTensor, element_bytes, rank_tensors, stage_layers, sum_elements

if TYPE_CHECKING:
    from kvtax.engines.vllm.plan import VllmPlan

UNQUANTISED_EDGE = 2
"""Layers at each end that TurboQuant leaves in 16 bit (vllm 0.33.0 turboquant/config.py get_boundary_skip_layers; none in hybrids)."""


class Stage(NamedTuple):
    """One pipeline stage: its weights by component and dtype [elements], and its layers in the pool."""

    elements: dict[tuple[str, str], int]
    weights_bytes: int
    """On the card: without what is offloaded."""
    layers: int
    layout: blocks.Layout | None
    caches: tuple[LayerCache, ...]
    load: Load
    offloaded_bytes: int = 0
    tensors: tuple[RankTensor, ...] = ()


def stage_ranges(plan: VllmPlan) -> list[range]:
    """The layers of each stage; one where there are not enough layers for them."""
    layers, pp = plan.question.architecture.num_hidden_layers, plan.question.deployment.pipeline_parallel_size
    if pp == 1 or pp > layers:
        return [range(layers)]
    return stage_layers(layers, pp, balanced=rules.rule("balanced_stages", plan.version))


def stage_tensors(plan: VllmPlan) -> list[list[RankTensor]]:
    """The weights of each stage on one of its ranks."""
    deployment, ranges = plan.question.deployment, stage_ranges(plan)
    without = loading.components_left_out(
        deployment.runner, deployment.language_model_only, deployment.limit_mm_per_prompt
    )
    return [
        rank_tensors(
            plan.question.architecture,
            deployment.tensor_parallel_size,
            dp=deployment.data_parallel_size,
            expert_parallel=deployment.expert_parallel,
            stage=stage if len(ranges) > 1 else None,
            first=index == 0,
            last=index == len(ranges) - 1,
            dtype=str(plan.settings["dtype"].value),
            without=without,
        )
        for index, stage in enumerate(ranges)
    ]


def load_of(plan: VllmPlan, tensors: list[RankTensor]) -> Load:
    """What loading keeps beside the weights of a stage."""
    question = plan.question
    return load_beside(
        question.architecture,
        tensors,
        question.gpu,
        question.deployment.tensor_parallel_size,
        plan.element_bytes,
        plan.version,
        int(plan.settings["max_num_batched_tokens"].value),
    )


def lay_out(
    plan: VllmPlan, weights: list[list[RankTensor]], loads: list[Load], in_flight: int, step_tokens: int
) -> list[Stage]:
    """The stages with their layouts, for steps of step_tokens tokens."""
    architecture, ranges = plan.question.architecture, stage_ranges(plan)
    offload_bytes = plan.question.deployment.cpu_offload or 0
    found = []
    for tensors, load, layers in zip(weights, loads, ranges, strict=True):
        pairs = [
            (cache, layer)
            for cache, layer in zip(architecture.caches, architecture.cache_layers, strict=True)
            if len(ranges) == 1 or layer in layers
        ]
        elements = sum_elements(tensors)
        size = sum(element_bytes(count, dtype) for (_, dtype), count in elements.items())
        away = offload.offloaded_bytes(tensors, offload_bytes)
        caches = tuple(cache for cache, _ in pairs)
        layout = _layout(plan, pairs, in_flight, step_tokens)
        found.append(Stage(elements, size - away, len(layers), layout, caches, load, away, tuple(tensors)))
    return found


def cache_dtypes(plan: VllmPlan, layer: int) -> blocks.Dtypes:
    """Formats of one layer's cache: TurboQuant leaves the first and last two layers of a model without recurrent layers alone."""
    dtypes, layers = plan.dtypes, plan.question.architecture.num_hidden_layers
    if dtypes.kv not in TURBOQUANT_BITS or plan.recurrent:
        return dtypes
    edge = min(UNQUANTISED_EDGE, layers // 2)
    return dtypes._replace(kv=dtypes.model) if layer < edge or layer >= layers - edge else dtypes


def _layout(
    plan: VllmPlan, pairs: list[tuple[LayerCache, int]], in_flight: int, step_tokens: int
) -> blocks.Layout | None:
    deployment, architecture, dtypes = plan.question.deployment, plan.question.architecture, plan.dtypes
    tp = deployment.tensor_parallel_size
    in_pool = rules.rule("states_in_pool", plan.version)
    on_rank = [
        (cache.per_rank(tp), layer)
        for cache, layer in pairs
        if cache.kind not in ("shared", "no_cache") and (in_pool or not isinstance(cache, Recurrent))
    ]
    if not on_rank:
        return None
    caches = [cache for cache, _ in on_rank]
    cached = bool(plan.settings["enable_prefix_caching"].value)
    checkpoints = cached and bool(rules.rule("prefill_checkpoints", plan.version))
    block_size = deployment.block_size or rules.attention_block_size(
        architecture, plan.question.gpu, dtypes.kv, deployment.attention_backend
    )
    block_size = blocks.hybrid_block_size(caches, block_size, dtypes, checkpoints)
    specs = [
        blocks.Spec(cache, block_size, blocks.page_bytes(cache, block_size, cache_dtypes(plan, layer)))
        for cache, layer in on_rank
    ]
    hybrid = rules.rule("hybrid_manager", plan.version) and not deployment.disable_hybrid_kv_cache_manager
    groups, bytes_per_block = blocks.plan_groups(specs, bool(hybrid))
    encoder = step_tokens if any(isinstance(cache, CrossAttention) for cache in caches) else 0
    context_parallel = deployment.decode_context_parallel_size * deployment.prefill_context_parallel_size
    speculative = plan.speculation.num_speculative_tokens
    return blocks.Layout(
        groups, block_size, bytes_per_block, in_flight, cached, encoder, context_parallel, speculative, checkpoints
    )
