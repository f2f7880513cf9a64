"""Pipeline stages of SGLang: their layers, weights on one rank, and caches."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import ChunkedLocal, FullAttention, LayerCache, Shared, SlidingWindow
from kvtax.deployment import Deployment
from kvtax.engines.sglang.cells import per_attention_rank
from kvtax.formulas.weights import element_bytes, rank_weight_elements

ATTENTION = ("attention", "linear_or_ssm")


class Stage(NamedTuple):
    """One pipeline stage on one rank: elements by component and dtype, bytes, and the caches of its layers."""

    elements: dict[tuple[str, str], int]
    weights_bytes: int
    layers: int
    caches: tuple[LayerCache, ...]


def stage_ranges(num_hidden_layers: int, pp: int) -> list[range]:
    """The layers of each stage: equal shares, what is left over to the last stages.

    num_hidden_layers // pp, and one more for the last num_hidden_layers % pp stages

    Args:
        num_hidden_layers: of the decoder [layers].
        pp: pipeline_parallel_size [ranks].

    Returns:
        One range a stage.

    Source: sglang 0.5.12 srt/distributed/utils.py get_pp_indices.

    >>> [len(stage) for stage in stage_ranges(61, 2)]
    [30, 31]
    """
    base, more = divmod(num_hidden_layers, pp)
    found, start = [], 0
    for index in range(pp):
        size = base + (index >= pp - more)
        found.append(range(start, start + size))
        start += size
    return found


def attention_ranks(deployment: Deployment) -> int:
    """Ranks that share the attention of one request: tp, with DP attention tp / dp [ranks]."""
    tp, dp = deployment.tensor_parallel_size, deployment.data_parallel_size
    return max(1, tp // dp) if deployment.enable_dp_attention else tp


def rank_elements_by_part(
    architecture: Architecture, deployment: Deployment, dtype: str, stage: range | None, first: bool, last: bool
) -> dict[tuple[str, str], int]:
    """Elements on one rank; with DP attention its weights are split over fewer ranks, and the embedding is whole on each.

    Source: sglang srt/layers/dp_attention.py, srt/models (VocabParallelEmbedding without tensor parallelism under DP attention).
    """
    tp = deployment.tensor_parallel_size
    whole = deployment.expert_parallel

    def on(ranks: int) -> dict[tuple[str, str], int]:
        return rank_weight_elements(
            architecture, ranks, expert_parallel=whole, stage=stage, first=first, last=last, dtype=dtype
        )

    usual = on(tp)
    if deployment.enable_dp_attention and deployment.data_parallel_size > 1:
        attention, single = on(attention_ranks(deployment)), on(1)
        for key in usual:
            if key[0] in ATTENTION:
                usual[key] = attention[key]
            elif key[0] == "embedding":
                usual[key] = single[key]
    if deployment.language_model_only:
        usual = {key: count for key, count in usual.items() if key[0] not in ("vision", "audio")}
    return usual


def allocated_caches(architecture: Architecture, ranks: int, windows_apart: bool) -> list[tuple[LayerCache, int]]:
    """What each layer allocates on one attention rank, with its layer; a layer that shares another's allocates its own all the same.

    Window and chunked layers without a pool of their own keep every token.

    Source: sglang 0.5.23 srt/model_executor/pool_configurator.py: layers are counted, whether they write or read.
    """
    by_layer = dict(zip(architecture.cache_layers, architecture.caches, strict=True))
    found: list[tuple[LayerCache, int]] = []
    for layer, stored in zip(architecture.cache_layers, architecture.caches, strict=True):
        cache = by_layer.get(stored.with_layer, stored) if isinstance(stored, Shared) else stored
        cache = per_attention_rank(cache, ranks)
        if not windows_apart and isinstance(cache, (SlidingWindow, ChunkedLocal)):
            cache = FullAttention(cache.num_key_value_heads, cache.head_dim, cache.v_head_dim)
        found.append((cache, layer))
    return found


def make_stages(
    architecture: Architecture, deployment: Deployment, dtype: str, caches: list[tuple[LayerCache, int]]
) -> list[Stage]:
    """The stages of a deployment with their weights and caches."""
    pp = deployment.pipeline_parallel_size
    whole = pp == 1 or pp > architecture.num_hidden_layers
    ranges = [range(architecture.num_hidden_layers)] if whole else stage_ranges(architecture.num_hidden_layers, pp)
    found = []
    for index, layers in enumerate(ranges):
        only = None if whole else layers
        last = index == len(ranges) - 1
        elements = rank_elements_by_part(architecture, deployment, dtype, only, index == 0, last)
        size = sum(element_bytes(count, held) for (_, held), count in elements.items())
        kept = tuple(cache for cache, layer in caches if whole or layer in layers)
        found.append(Stage(elements, size, len(layers), kept))
    return found
