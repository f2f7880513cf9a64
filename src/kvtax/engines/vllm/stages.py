"""The pipeline stages of a vLLM server: what each loads, and how its layers lie in the pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kvtax.architectures.cache import CrossAttention, LayerCache, Recurrent
from kvtax.dtypes import TURBOQUANT_BITS
from kvtax.engines import loading
from kvtax.engines.loading import Load
from kvtax.engines.vllm import blocks, rules
from kvtax.engines.vllm.load import load as load_beside
from kvtax.engines.vllm.offload import offloaded_bytes
from kvtax.formulas.weights import RankTensor, element_bytes, rank_tensors, stage_layers, sum_elements

if TYPE_CHECKING:
    from kvtax.engines.vllm.plan import VllmPlan

UNQUANTISED_EDGE = 2
"""Layers at each end of a model that TurboQuant leaves alone."""


class Stage(NamedTuple):
    """One pipeline stage: its weights by component and dtype [elements], and its layers in the pool."""

    elements: dict[tuple[str, str], int]
    weights_bytes: int
    layers: int
    layout: blocks.Layout | None
    caches: tuple[LayerCache, ...]
    load: Load
    offloaded_bytes: int = 0
    """Weights of a rank that are kept in RAM; not in weights_bytes."""
    tensors: tuple[RankTensor, ...] = ()
    formats: tuple[str, ...] = ()
    """Of keys and values, one for each of caches."""


class Loaded(NamedTuple):
    """What one stage loads."""

    layers: range
    elements: dict[tuple[str, str], int]
    weights_bytes: int
    load: Load
    offloaded_bytes: int
    tensors: tuple[RankTensor, ...]


def load_stages(plan: VllmPlan) -> list[Loaded]:
    """What each stage loads; a speculative draft is on the last.

    Source: vllm 0.33.0 distributed/utils.py get_pp_indices; v1/worker/gpu_model_runner.py: the drafter runs on the last rank.
    """
    question = plan.question
    deployment, architecture = question.deployment, question.architecture
    tp, pp = deployment.tensor_parallel_size, deployment.pipeline_parallel_size
    split = 1 < pp <= architecture.num_hidden_layers
    ranges = stage_layers(
        architecture.num_hidden_layers, pp if split else 1, balanced=rules.rule("balanced_stages", plan.version)
    )
    without = loading.components_left_out(
        str(plan.settings["runner"].value), deployment.language_model_only, deployment.limit_mm_per_prompt
    )
    found = []
    for index, layers in enumerate(ranges):
        last = index == len(ranges) - 1
        tensors = rank_tensors(
            architecture,
            tp,
            dp=deployment.data_parallel_size,
            expert_parallel=deployment.expert_parallel,
            stage=layers if split else None,
            first=index == 0,
            last=last,
            dtype=str(plan.settings["dtype"].value),
            without=without,
            whole=loading.TOWERS if deployment.mm_encoder_tp_mode == "data" else frozenset(),
        )
        tensors += plan.draft.tensors if last else ()
        elements = sum_elements(tensors)
        size = sum(element_bytes(count, dtype) for (_, dtype), count in elements.items())
        away = offloaded_bytes(tensors, deployment.cpu_offload or 0)
        found.append(Loaded(layers, elements, size - away, _beside(plan, tensors), away, tuple(tensors)))
    return found


def _beside(plan: VllmPlan, tensors: list[RankTensor]) -> Load:
    question = plan.question
    tokens = int(plan.settings["max_num_batched_tokens"].value)
    tp = question.deployment.tensor_parallel_size
    return load_beside(question.architecture, tensors, question.gpu, tp, plan.element_bytes, plan.version, tokens)


def lay_out(plan: VllmPlan, loaded: list[Loaded], in_flight: int, max_num_batched_tokens: int) -> list[Stage]:
    """The stages with their pools: layers are grouped over the whole model, and each stage has its part of every group.

    Source: vllm 0.33.0 v1/core/kv_cache_planning.py.
    """
    architecture = plan.question.architecture
    tp = plan.question.deployment.tensor_parallel_size
    placed = list(zip(architecture.cache_layers, architecture.caches, strict=True))
    placed += [(architecture.num_hidden_layers, cache) for cache in plan.draft.caches]
    kept = [(layer, cache) for layer, cache in placed if cache.kind not in ("shared", "no_cache")]
    ranked = {id(cache): cache.per_rank(tp) for cache in {id(cache): cache for _, cache in kept}.values()}
    on_rank = [(layer, ranked[id(cache)]) for layer, cache in kept]
    layout, specs = _layout(plan, on_rank, in_flight, max_num_batched_tokens)
    format_of = layer_formats(plan)
    found = []
    for index, part in enumerate(loaded):
        last = index == len(loaded) - 1
        places = [
            place
            for place, (layer, _) in enumerate(kept)
            if len(loaded) == 1 or layer in part.layers or (last and layer >= architecture.num_hidden_layers)
        ]
        own = None
        if layout is not None and places:
            own = layout._replace(bytes_per_block=blocks.stage_block_bytes(layout.groups, specs, places))
        caches = tuple(kept[place][1] for place in places)
        found.append(
            Stage(
                part.elements,
                part.weights_bytes,
                len(part.layers),
                own,
                caches,
                part.load,
                part.offloaded_bytes,
                part.tensors,
                tuple(format_of(kept[place][0]) for place in places),
            )
        )
    return found


def layer_formats(plan: VllmPlan) -> Callable[[int], str]:
    """The format of keys and values of each layer: TurboQuant leaves the first and last two in the model's dtype.

    Source: vllm model_executor/layers/quantization/turboquant/config.py get_boundary_skip_layers; hybrids are quantised in all layers.
    """
    dtypes, layers = plan.dtypes, plan.question.architecture.num_hidden_layers
    if dtypes.kv not in TURBOQUANT_BITS:
        return lambda _: dtypes.kv
    recurrent = any(isinstance(cache, Recurrent) for cache, _ in plan.question.architecture.cache_groups)
    edge = 0 if recurrent else min(UNQUANTISED_EDGE, layers // 2)
    return lambda layer: dtypes.model if layer < edge or layers - edge <= layer < layers else dtypes.kv


def _layout(
    plan: VllmPlan, placed: list[tuple[int, LayerCache]], in_flight: int, max_num_batched_tokens: int
) -> tuple[blocks.Layout | None, list[blocks.Spec]]:
    if not placed:
        return None, []
    on_rank = [cache for _, cache in placed]
    deployment, dtypes = plan.question.deployment, plan.dtypes
    prefix_caching = bool(plan.settings["enable_prefix_caching"].value)
    checkpoints = bool(rules.rule("prefill_checkpoints", plan.version))
    block_size = deployment.block_size or rules.attention_block_size(
        plan.question.architecture, plan.question.gpu, dtypes.kv, deployment.attention_backend
    )
    block_size = blocks.hybrid_block_size(on_rank, block_size, dtypes, prefix_caching and checkpoints)
    made: dict[
        tuple[type, LayerCache, str], blocks.Spec
    ] = {}  # most layers are alike; tuples of two kinds may be equal
    specs = []
    format_of = layer_formats(plan)
    for layer, cache in placed:
        key = (type(cache), cache, format_of(layer))
        if key not in made:
            page = blocks.page_bytes(cache, block_size, dtypes._replace(kv=key[2]))
            made[key] = blocks.Spec(cache, block_size, page)
        specs.append(made[key])
    grouped = not deployment.disable_hybrid_kv_cache_manager and bool(rules.rule("hybrid_manager", plan.version))
    groups, bytes_per_block = blocks.plan_groups(specs, grouped or any(isinstance(c, Recurrent) for c in on_rank))
    encoder = max_num_batched_tokens if any(isinstance(cache, CrossAttention) for cache in on_rank) else 0
    shared = deployment.decode_context_parallel_size * deployment.prefill_context_parallel_size
    layout = blocks.Layout(
        groups,
        block_size,
        bytes_per_block,
        in_flight,
        prefix_caching,
        encoder,
        shared,
        plan.draft.tokens,
        checkpoints,
    )
    return layout, specs
