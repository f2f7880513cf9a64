"""One rank's memory divided as SGLang does it: share, weights, states, tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvtax.architectures.cache import ChunkedLocal, CompressedLatent, Recurrent, SlidingWindow
from kvtax.engines.answer import Host, Memory, Pool, pool_bytes_per_token
from kvtax.engines.loading import Load, load_off_driver
from kvtax.engines.sglang import compressed, memory, rules
from kvtax.engines.sglang.cells import Cell, cell, row_bytes, state_bytes
from kvtax.engines.sglang.fraction import decode_graph_sizes, prefill_graph_sizes, vision_shape
from kvtax.engines.sglang.pool import StatePool, States, TokenPool, state_pool, tokens_of, window_tokens_for
from kvtax.engines.sglang.settings import tracking_slots
from kvtax.engines.sglang.stages import RankStage
from kvtax.units import MIB, ceil_div

if TYPE_CHECKING:
    from kvtax.engines.sglang.plan import SglangPlan


class Divided(NamedTuple):
    """One rank divided, with what its terms are made from [bytes].

    Args:
        stage: of the pipeline.
        memory: as every engine reports it.
        pool: as every engine reports it.
        host: what is kept in RAM.
        cell: of one token.
        tokens: of both pools.
        states: the state pool, None without recurrent layers.
        free_bytes: before loading.
        rest_bytes: what weights leave of the share, before states.
        multimodal_bytes: kept for images.
        draft_weights_bytes: loaded before the pool is sized.
        draft_kv_bytes: the draft's part of what is left for tokens.
        rest_tokens: tokens before max_total_tokens, negative where the share is overdrawn.
        max_running_requests: of one attention rank.
        window: the widest window of this stage [tokens].
        load: what is held beside the parameters.
        scale_copies_bytes: float32 scales that stay beside repacked experts.
        request_pools_bytes: states and windows of compressed layers that belong to requests.
    """

    stage: RankStage
    memory: Memory
    pool: Pool
    host: Host
    cell: Cell
    tokens: TokenPool
    states: StatePool | None
    free_bytes: int
    rest_bytes: int
    multimodal_bytes: int
    draft_weights_bytes: int
    draft_kv_bytes: int
    rest_tokens: int
    max_running_requests: int
    window: int
    load: Load
    scale_copies_bytes: int
    request_pools_bytes: int


class _Loaded(NamedTuple):
    weights_bytes: int
    load: Load
    scale_copies_bytes: int
    draft_bytes: int
    offloaded_bytes: int

    @property
    def extra_bytes(self) -> int:
        return self.load.total_bytes + self.scale_copies_bytes


def _loaded(plan: SglangPlan, stage: RankStage) -> _Loaded:
    """What loading takes: given, or parameters with rope tables, whole blocks, absorbed projections and scales."""
    question, deployment, size = plan.question, plan.question.deployment, stage.held.weights_bytes
    draft = plan.draft.weights_bytes if rules.rule("draft_counted", plan.version) else 0
    if deployment.weights_bytes is not None:
        return _Loaded(deployment.weights_bytes, Load(), 0, draft, 0)
    load = load_off_driver(question.architecture, stage.tensors, plan.element_bytes, cuda=question.gpu.vendor != "AMD")
    layers = max(question.architecture.num_hidden_layers, 1)
    scales = memory.scale_copy_bytes(question.architecture, question.gpu, deployment.tensor_parallel_size)
    offloaded = min(deployment.cpu_offload or 0, size)
    return _Loaded(size - offloaded, load, scales * stage.held.layers // layers, draft, offloaded)


def window_ratio(plan: SglangPlan) -> float:
    """swa_full_tokens_ratio, 0 where no layer has a pool of its own."""
    setting = plan.settings.get("swa_full_tokens_ratio")
    return float(setting.value) if setting is not None else 0.0


def stage_cell(plan: SglangPlan, stage: RankStage) -> tuple[Cell, float]:
    """The cell of a stage and the bytes that a draft adds to each token."""
    sizing = compressed_sizing(plan, stage)
    if sizing is not None:  # a draft is in the cell
        return Cell(round(compressed.token_bytes(sizing)), 0, len(sizing.caches), 0), 0
    found = cell(list(stage.caches), plan.kv_cache_dtype, plan.windows_apart)
    counted = bool(rules.rule("draft_counted", plan.version)) and plan.draft.layers > 0
    if counted and plan.draft.caches:
        return found, sum(row_bytes(cache, plan.kv_cache_dtype) for cache in plan.draft.caches)
    per_layer = found.full_bytes / found.full_layers if found.full_layers else 0
    return found, plan.draft.layers * per_layer if counted else 0


def compressed_sizing(plan: SglangPlan, stage: RankStage) -> compressed.Sizing | None:
    """How the pools of compressed layers are sized, None without any."""
    caches = tuple(cache for cache in stage.caches if isinstance(cache, CompressedLatent))
    if not caches:
        return None
    deployment = plan.question.deployment
    kind = str(rules.rule("compressed_pools", plan.version))
    mtp = {
        layer for tensor in plan.question.architecture.tensors if tensor.component == "mtp" for layer in tensor.layers
    }
    return compressed.Sizing(
        caches,
        len(caches) + (len(mtp) if kind != "by_requests" else 0),
        kind,
        window_ratio(plan),
        deployment.swa_full_tokens_ratio is not None,
        plan.asked_requests or compressed.DEFAULT_REQUESTS,
        int(plan.settings["max_num_batched_tokens"].value),
        bool(plan.settings["enable_prefix_caching"].value),
        plan.draft.verified_tokens,
    )


def _states(plan: SglangPlan, stage: RankStage) -> States | None:
    deployment = plan.question.deployment
    each = sum(state_bytes(cache, plan.formats) for cache in stage.caches if isinstance(cache, Recurrent))
    if not each:
        return None
    return States(
        each,
        float(plan.settings["mamba_full_memory_ratio"].value),
        deployment.max_mamba_cache_size,
        plan.asked_requests,
        bool(plan.settings["enable_prefix_caching"].value),
        tracking_slots(plan),
        int(rules.rule("state_padding_slot", plan.version)),
        plan.draft.verified_tokens,
        str(rules.rule("draft_states", plan.version)),
        deployment.data_parallel_size if deployment.enable_dp_attention else 1,
    )


def _fixed_window(plan: SglangPlan, window: int) -> int | None:
    """Tokens of a window pool that is sized by requests: the radix cache off, and max_running_requests given."""
    requests = plan.question.deployment.max_num_seqs
    step = int(plan.settings["max_num_batched_tokens"].value)
    by_requests = (
        rules.rule("window_pool_by_requests", plan.version) and not plan.settings["enable_prefix_caching"].value
    )
    if not (by_requests and plan.windows_apart and requests and step > 0 and window):
        return None
    return window_tokens_for(requests, window, plan.page_size, step, plan.draft.verified_tokens)


def _at_run_time(plan: SglangPlan, stage: RankStage) -> tuple[int, int]:
    """Estimates of activations and graphs, which run in what the share leaves."""
    deployment, architecture = plan.question.deployment, plan.question.architecture
    step = int(plan.settings["max_num_batched_tokens"].value) or int(plan.settings["max_prefill_tokens"].value)
    largest = int(plan.settings["cuda_graph_max_bs"].value)
    rows = min(largest, step)
    tp = deployment.tensor_parallel_size
    activation = memory.activation_bytes(architecture, tp, step, rows, plan.element_bytes)
    # graphs are those of decode steps, which an encoder has none of (srt/model_executor: not is_generation)
    if plan.settings["enforce_eager"].value or architecture.kind == "encoder":
        return activation, 0
    decode = len(decode_graph_sizes(largest, plan.draft.verified_tokens > 0))
    prefill = 0
    if rules.rule("prefill_graphs", plan.version) and not deployment.disable_piecewise_cuda_graph:
        prefill = len(prefill_graph_sizes(step))
    return activation, memory.graph_bytes(stage.held.layers, decode, prefill)


class _Supply(NamedTuple):
    outside_bytes: int
    free_bytes: int
    limit_bytes: int
    multimodal_bytes: int
    rest_bytes: int


def _supply(plan: SglangPlan, loaded: _Loaded) -> _Supply:
    """What is free, the share of it, and what weights leave of that."""
    question, deployment = plan.question, plan.question.deployment
    outside = memory.outside_bytes(question.gpu, deployment.tensor_parallel_size * deployment.pipeline_parallel_size)
    free = question.total_bytes - outside if deployment.free_memory is None else deployment.free_memory
    vision = vision_shape(question.architecture) is not None and not deployment.language_model_only
    multimodal = int(rules.rule("multimodal_reserve_mib", plan.version)) * MIB if vision else 0
    limit = int(free * plan.share)
    rest = limit - loaded.weights_bytes - loaded.extra_bytes - loaded.draft_bytes - multimodal
    return _Supply(question.total_bytes - free, free, limit, multimodal, rest)


class _Fitted(NamedTuple):
    cell: Cell
    every: TokenPool
    tokens: TokenPool
    kv_pool_bytes: int
    draft_kv_bytes: int
    window: int


def _fitted(plan: SglangPlan, stage: RankStage, left: int, most: int | None) -> _Fitted:
    """Tokens of both pools in what is left, and the draft's part of it."""
    one, draft_cell = stage_cell(plan, stage)
    ratio = window_ratio(plan)
    window = max((_window(cache) for cache in stage.caches), default=0)
    fixed = _fixed_window(plan, window)
    asked = plan.question.deployment.max_total_tokens
    cap = min((limit for limit in (asked, most) if limit is not None), default=None)

    def fit(limit: int | None) -> TokenPool:
        return tokens_of(
            left, one, plan.page_size, ratio, draft_bytes=round(draft_cell), window_tokens=fixed, most=limit
        )

    every, tokens = fit(None), fit(cap)
    cell_bytes = one.full_bytes + ratio * one.window_bytes if one.full_layers else one.window_bytes
    draft_kv = int(left * draft_cell / (cell_bytes + draft_cell)) if draft_cell and cell_bytes else 0
    if tokens.tokens < every.tokens:
        return _Fitted(one, every, tokens, tokens.kv_bytes, round(tokens.tokens * draft_cell), window)
    return _Fitted(one, every, tokens, left - draft_kv, draft_kv, window)


def divide(plan: SglangPlan, stage: RankStage, max_model_len: int, most: int | None = None) -> Divided:
    """One stage's rank divided.

    rest = free - weights - free * (1 - mem_fraction_static) - multimodal; states first; the others are tokens

    Args:
        plan: settings and stages.
        stage: of the pipeline.
        max_model_len: longest request [tokens].
        most: tokens of the tightest stage, None where it is not known yet [tokens].

    Returns:
        Memory, pools and what their terms are made from.

    Source: sglang 0.5.23 srt/mem_cache/kv_cache_configurator.py _profile_available_bytes.
    """
    deployment = plan.question.deployment
    loaded = _loaded(plan, stage)
    supply = _supply(plan, loaded)
    asked = _states(plan, stage)
    states = state_pool(supply.rest_bytes, asked) if asked is not None else None
    state_part = states.state_bytes + states.draft_bytes if states is not None else 0
    sizing = compressed_sizing(plan, stage)
    state_part += compressed.fixed_bytes(sizing) if sizing is not None else 0
    left = supply.rest_bytes - state_part
    if deployment.kv_cache_memory_bytes is not None:
        left = deployment.kv_cache_memory_bytes
    fitted = _fitted(plan, stage, left, most)
    activation, graphs = _at_run_time(plan, stage)
    beside = supply.multimodal_bytes + loaded.draft_bytes + fitted.draft_kv_bytes + state_part
    taken = Memory(
        plan.question.total_bytes, supply.limit_bytes, loaded.weights_bytes, loaded.extra_bytes, beside, supply.outside_bytes,
        activation, graphs, fitted.kv_pool_bytes,
    )  # fmt: skip
    keeps = fitted.cell.full_layers + fitted.cell.window_layers
    requests = plan.max_running_requests(max(fitted.tokens.tokens, 0) if keeps else 1 << 62, max_model_len)
    if states is not None:
        requests = max(0, min(requests, states.requests))
    return Divided(
        stage, taken, _pool(plan, fitted, max_model_len, requests), Host(loaded.offloaded_bytes), fitted.cell, fitted.tokens, states,
        supply.free_bytes, supply.rest_bytes, supply.multimodal_bytes, loaded.draft_bytes, fitted.draft_kv_bytes,
        fitted.every.tokens, requests, fitted.window, loaded.load, loaded.scale_copies_bytes,
        compressed.fixed_bytes(sizing) if sizing is not None else 0,
    )  # fmt: skip


def _window(cache: object) -> int:
    if isinstance(cache, SlidingWindow):
        return cache.window
    return cache.chunk if isinstance(cache, ChunkedLocal) else 0


def _pool(plan: SglangPlan, fitted: _Fitted, max_model_len: int, requests: int) -> Pool:
    """The pool as every engine reports it: pages of max_total_num_tokens; without a layer that keeps tokens as many requests as run at once."""
    if not fitted.cell.full_layers + fitted.cell.window_layers:
        return Pool(plan.page_size, 0, 0, 0, 0, float(requests), plan.state_bytes(), 0)
    page, count = plan.page_size, max(fitted.tokens.tokens, 0)
    pages, each = count // page, ceil_div(max_model_len, page)
    per_token = fitted.cell.full_bytes
    if fitted.cell.window_layers and count:
        per_token = pool_bytes_per_token(1, max(fitted.kv_pool_bytes, 0), count)
    request = plan.request_bytes(each * page)
    return Pool(page, per_token * page, pages, each, count, count / max_model_len, request, per_token)
