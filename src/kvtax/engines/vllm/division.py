"""How the memory of one rank is divided: the limit, what is subtracted from it, and the pool that is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import Recurrent
from kvtax.engines.answer import Memory
from kvtax.engines.loading import Load
from kvtax.engines.vllm import memory, profile_run
from kvtax.engines.vllm.adapters import adapter_parts
from kvtax.engines.vllm.encoder import encoder_run
from kvtax.engines.vllm.loading_peak import loading_peak_bytes
from kvtax.engines.vllm.part import Part
from kvtax.engines.vllm.persistent import persistent_parts
from kvtax.engines.vllm.rules import rule
from kvtax.units import ceil_div

if TYPE_CHECKING:
    from kvtax.engines.vllm.plan import VllmPlan
    from kvtax.engines.vllm.stages import Stage


class Detail(NamedTuple):
    """What the terms of an answer are made from: the stage, what loading keeps beside its parameters, and the profile run."""

    stage: Stage
    load: Load
    max_model_len: int
    activation: Part
    persistent: tuple[Part, ...]
    graphs: Part | None


def divide(plan: VllmPlan, stage: Stage, seqs: int, tokens: int, max_model_len: int) -> tuple[Memory, Detail]:
    """The memory of one stage for steps of `tokens` tokens and `seqs` requests.

    pool = limit - weights - what loading keeps - activation - persistent buffers (- graphs, where their estimate is inside the limit)

    Source: vllm v1/worker/gpu_worker.py determine_available_memory, 0.8.5 to 0.33.0.
    """
    question, deployment = plan.question, plan.question.deployment
    tp, total = deployment.tensor_parallel_size, question.total_bytes
    limit = memory.limit_bytes(total, float(plan.settings["gpu_memory_utilization"].value))
    weights = deployment.weights_bytes if deployment.weights_bytes is not None else stage.weights_bytes
    load = stage.load if deployment.weights_bytes is None else Load()  # a figure from a log has it in it
    ranks = tp * deployment.pipeline_parallel_size * deployment.prefill_context_parallel_size
    step = profile_step(plan, stage, seqs, tokens, max_model_len)
    activation = profile_run.activation(step)
    persistent = (*persistent_parts(step, ranks), *adapter_parts(plan, stage))
    inside = bool(rule("cuda_graphs_inside", plan.version))
    graphs = None
    if not plan.settings["enforce_eager"].value:
        capability = question.gpu.compute_capability or ""
        # sizes go up to twice the requests, or to the largest that was asked for
        captured = seqs if deployment.cuda_graph_max_bs is None else ceil_div(deployment.cuda_graph_max_bs, 2)
        graphs = memory.graph_part(stage.layers, captured, capability, estimated=inside)
    graph_bytes = graphs.bytes if graphs is not None else 0
    workspace = sum(part.bytes for part in persistent)
    pool = deployment.kv_cache_memory_bytes
    if pool is None:
        pool = limit - weights - load.total_bytes - workspace - activation.bytes - (graph_bytes if inside else 0)
    if keeps_nothing(question.architecture):
        pool = min(pool, 0)  # the profile is skipped, and no blocks are made
    outside = _outside(plan, ranks, total - limit)
    beyond = loading_peak_bytes(plan, stage)
    taken = Memory(
        total, limit, weights, load.total_bytes, workspace, outside, activation.bytes, graph_bytes, pool, beyond
    )
    return taken, Detail(stage, load, max_model_len, activation, persistent, graphs)


def keeps_nothing(architecture: Architecture) -> bool:
    """Whether no layer keeps anything from step to step: then the engine makes no pool, whatever memory is left.

    Source: vllm 0.33.0 v1/engine/core.py _initialize_kv_caches: workers without a KV cache spec get 0 bytes (0.10 and later).
    """
    return all(cache.kind in ("no_cache", "shared") for cache, _ in architecture.cache_groups)


def profile_step(plan: VllmPlan, stage: Stage, seqs: int, tokens: int, max_model_len: int) -> profile_run.Step:
    """The step that the profile run takes on one rank of a stage."""
    architecture, deployment = plan.question.architecture, plan.question.deployment
    on_rank = [cache.per_rank(deployment.tensor_parallel_size) for cache in stage.caches]
    return profile_run.Step(
        architecture=architecture,
        gpu=plan.question.gpu,
        version=plan.version,
        tp=deployment.tensor_parallel_size,
        tokens=tokens,
        seqs=seqs,
        element_bytes=plan.element_bytes,
        pooling=plan.settings["runner"].value == "pooling",
        encoder=encoder_run(architecture, deployment, plan.version, tokens, seqs, max_model_len),
        state_bytes=sum(plan.recurrent_bytes(cache) for cache in on_rank if isinstance(cache, Recurrent)),
        max_model_len=max_model_len,
        encoder_split=deployment.mm_encoder_tp_mode != "data",
        dp=deployment.data_parallel_size,
        expert_parallel=deployment.expert_parallel,
    )


def _outside(plan: VllmPlan, ranks: int, beside_limit: int) -> int:
    """What lies outside the limit: what was said to be taken, else the estimate [bytes]."""
    deployment, gpu = plan.question.deployment, plan.question.gpu
    if deployment.free_memory is not None:
        return max(plan.question.total_bytes - deployment.free_memory, 0)
    if deployment.kv_cache_memory_bytes is not None:
        return memory.outside_bytes(gpu, ranks)
    return memory.outside_of_a_start(gpu, ranks, beside_limit)
