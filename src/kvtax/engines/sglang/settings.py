"""The settings of a SGLang server: what was asked, else its defaults, each with where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtax.architectures.cache import ChunkedLocal, CompressedLatent, Recurrent, SlidingWindow
from kvtax.engines.answer import Setting
from kvtax.engines.sglang import checks, memory
from kvtax.engines.sglang.fraction import Reserve, automatic_fraction, step_defaults, vision_shape, vision_share
from kvtax.engines.sglang.rules import TRACKED_STATES, WINDOW_RATIO, has_window_pool, rule

if TYPE_CHECKING:
    from kvtax.engines.sglang.plan import SglangPlan

WINDOW_RATIO_DEFAULT = 0.8
STATE_RATIO = 0.9
MAX_PREFILL_TOKENS = 16384
MOST_REQUESTS = 4096
"""max_running_requests at most, where none is asked for (srt/mem_cache/kv_cache_configurator.py); the pool may allow fewer."""


def settle(plan: SglangPlan) -> None:
    """Note every setting of the plan, in the order in which the server settles them."""
    deployment, architecture, gpu = plan.question.deployment, plan.question.architecture, plan.question.gpu
    dtype, origin = checks.resolve_dtype(deployment, architecture, gpu)
    plan.settings["dtype"] = Setting(dtype, origin)
    kv, origin = checks.resolve_kv_cache_dtype(deployment, architecture, gpu, dtype, plan.version)
    plan.settings["kv_cache_dtype"] = Setting(kv, origin)
    plan.set_from("block_size", deployment.block_size, checks.page_size(deployment, architecture, gpu))
    caching = deployment.enable_prefix_caching
    plan.set_from("enable_prefix_caching", caching, True)
    plan.set_from("enforce_eager", deployment.enforce_eager or None, False)
    _settle_pools(plan)
    _settle_steps(plan)
    _settle_fraction(plan)


def _settle_pools(plan: SglangPlan) -> None:
    deployment, architecture = plan.question.deployment, plan.question.architecture
    groups = [cache for cache, _ in architecture.cache_groups]
    windows = any(isinstance(cache, (SlidingWindow, ChunkedLocal)) for cache in groups)
    compressed = any(isinstance(cache, CompressedLatent) for cache in groups)
    apart = windows and has_window_pool(architecture.name, plan.version) and not deployment.disable_hybrid_swa_memory
    if windows:
        why = "" if deployment.disable_hybrid_swa_memory else f"{plan.label}: classes with a window pool"
        plan.set_from("disable_hybrid_swa_memory", deployment.disable_hybrid_swa_memory or None, not apart, why)
    if apart or compressed:
        usual = WINDOW_RATIO.get(architecture.name, WINDOW_RATIO_DEFAULT)
        plan.set_from("swa_full_tokens_ratio", deployment.swa_full_tokens_ratio, usual)
    if any(isinstance(cache, Recurrent) for cache in groups):
        plan.set_from("mamba_full_memory_ratio", deployment.mamba_full_memory_ratio, STATE_RATIO)


def tracking_slots(plan: SglangPlan) -> int:
    """State slots that a cached request keeps beside its states, by release and model type [states]."""
    if plan.question.architecture.model_type not in TRACKED_STATES:
        return 0
    usual = int(rule("state_tracking_slots", plan.version))
    return min(usual, 1) if plan.question.deployment.async_scheduling is False else usual


def _settle_steps(plan: SglangPlan) -> None:
    deployment = plan.question.deployment
    card = memory.card_mib(plan.question.gpu, plan.question.total_bytes)
    tokens, largest = step_defaults(card, deployment.tensor_parallel_size, plan.version)
    asked = deployment.max_num_batched_tokens
    if deployment.enable_chunked_prefill is False:
        asked = 0
    plan.set_from("max_num_batched_tokens", asked, tokens)
    plan.set_from("max_prefill_tokens", deployment.max_prefill_tokens, MAX_PREFILL_TOKENS)
    requests = deployment.max_num_seqs
    drafting = deployment.speculative is not None
    plan.set_from("max_num_seqs", requests, int(rule("draft_requests", plan.version)) if drafting else MOST_REQUESTS)
    if requests is not None and rule("graphs_end_at_requests", plan.version):
        largest = min(largest, requests)
    plan.set_from("cuda_graph_max_bs", deployment.cuda_graph_max_bs, largest)


def reserve_of(plan: SglangPlan) -> Reserve:
    """What the automatic share depends on, for this deployment."""
    deployment, architecture = plan.question.deployment, plan.question.architecture
    latent = checks.is_latent(architecture)
    tokens = int(plan.settings["max_num_batched_tokens"].value)
    limit = min(tokens or MAX_PREFILL_TOKENS, deployment.max_total_tokens or 1 << 62)
    graphs = not plan.settings["enforce_eager"].value
    draft = deployment.speculative.method if deployment.speculative else ""
    return Reserve(
        card_mib=memory.card_mib(plan.question.gpu, plan.question.total_bytes),
        tp=deployment.tensor_parallel_size,
        pp=deployment.pipeline_parallel_size,
        attention_ranks_apart=deployment.data_parallel_size if deployment.enable_dp_attention else 1,
        chunked_prefill_size=tokens,
        max_prefill_tokens=int(plan.settings["max_prefill_tokens"].value),
        graph_max_bs=int(plan.settings["cuda_graph_max_bs"].value),
        decode_graphs=graphs,
        prefill_graphs=graphs and not deployment.disable_piecewise_cuda_graph,
        latent=latent,
        draft="" if draft == "ngram" else draft,
        prefill_limit=limit,
    )


def _settle_fraction(plan: SglangPlan) -> None:
    deployment, architecture = plan.question.deployment, plan.question.architecture
    share = automatic_fraction(reserve_of(plan), plan.version)
    tower = None if deployment.language_model_only else vision_shape(architecture)
    why = ""
    if deployment.gpu_memory_utilization is None:
        why = f"default of {plan.label}: by card, step and graphs"
        if tower is not None:
            share *= vision_share(*tower, plan.version)
            why += ", less for the vision tower"
    plan.set_from("gpu_memory_utilization", deployment.gpu_memory_utilization, share, why)
