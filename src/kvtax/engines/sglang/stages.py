"""Pipeline stages of SGLang: their layers, weights on one rank, and caches."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import ChunkedLocal, FullAttention, LayerCache, Shared, SlidingWindow
from kvtax.deployment import Deployment
from kvtax.engines.loading import components_left_out
from kvtax.engines.sglang.cells import per_attention_rank
from kvtax.engines.stages import Stage
from kvtax.formulas.weights import RankTensor, element_bytes, rank_tensors, sum_elements

ATTENTION = ("attention", "linear_or_ssm")


class RankStage(NamedTuple):
    """One pipeline stage on one rank: its elements, bytes and caches, and the tensors they are counted from."""

    held: Stage
    tensors: tuple[RankTensor, ...]

    @property
    def caches(self) -> tuple[LayerCache, ...]:
        """What its layers keep."""
        return self.held.caches


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


def tensors_by_part(
    architecture: Architecture, deployment: Deployment, dtype: str, stage: range | None, first: bool, last: bool
) -> list[RankTensor]:
    """The weights on one rank; with DP attention its own are split over fewer ranks, and the embedding is whole on each.

    Source: sglang srt/layers/dp_attention.py, srt/models (VocabParallelEmbedding without tensor parallelism under DP attention).
    """
    without = components_left_out(language_model_only=bool(deployment.language_model_only))

    def on(ranks: int) -> list[RankTensor]:
        return rank_tensors(
            architecture,
            ranks,
            expert_parallel=deployment.expert_parallel,
            stage=stage,
            first=first,
            last=last,
            dtype=dtype,
            without=without,
        )

    usual = on(deployment.tensor_parallel_size)
    if not (deployment.enable_dp_attention and deployment.data_parallel_size > 1):
        return usual
    attention, single = on(attention_ranks(deployment)), on(1)
    return [
        shared if tensor.component in ATTENTION else whole if tensor.component == "embedding" else tensor
        for tensor, shared, whole in zip(usual, attention, single, strict=True)
    ]


def allocated_caches(architecture: Architecture, ranks: int, windows_apart: bool) -> list[tuple[LayerCache, int]]:
    """What each layer allocates on one attention rank, with its layer; a layer that shares another's allocates its own all the same.

    Window and chunked layers without a pool of their own keep every token.

    Source: sglang 0.5.23 srt/model_executor/pool_configurator.py: layers are counted, whether they write or read.
    """
    if architecture.kind == "encoder":
        # rows are laid out for every layer, though an encoder's attention never writes them
        heads, width = architecture.num_key_value_heads, architecture.head_dim
        rows = per_attention_rank(FullAttention(heads, width, width), ranks)
        return [(rows, layer) for layer in range(architecture.num_hidden_layers)] if heads else []
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
) -> list[RankStage]:
    """The stages of a deployment with their weights and caches."""
    pp = deployment.pipeline_parallel_size
    whole = pp == 1 or pp > architecture.num_hidden_layers
    ranges = [range(architecture.num_hidden_layers)] if whole else stage_ranges(architecture.num_hidden_layers, pp)
    found = []
    for index, layers in enumerate(ranges):
        only = None if whole else layers
        last = index == len(ranges) - 1
        tensors = tensors_by_part(architecture, deployment, dtype, only, index == 0, last)
        elements = sum_elements(tensors)
        size = sum(element_bytes(count, held) for (_, held), count in elements.items())
        kept = tuple(cache for cache, layer in caches if whole or layer in layers)
        found.append(RankStage(Stage(elements, size, len(layers), kept), tuple(tensors)))
    return found
