"""A model cut into pipeline stages: the weights and the caches that one rank of each holds."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import LayerCache
from kvtax.deployment import Deployment
from kvtax.formulas.weights import element_bytes, rank_tensors, sum_elements


class Stage(NamedTuple):
    """One pipeline stage on one rank: its weights by component and dtype [elements], and what its layers keep."""

    elements: dict[tuple[str, str], int]
    weights_bytes: int
    layers: int
    caches: tuple[LayerCache, ...]


def first_stages_longer(num_hidden_layers: int, pp: int) -> list[range]:
    """The layers of each stage: equal shares, one more for each of the first stages while layers are left over.

    num_hidden_layers // pp, and one more for the first num_hidden_layers % pp stages

    Args:
        num_hidden_layers: of the decoder [layers].
        pp: pipeline_parallel_size [ranks].

    Returns:
        One range a stage.

    Source: NVIDIA/TensorRT-LLM tensorrt_llm/mapping.py pp_layers, as its tests restate it.

    >>> [len(stage) for stage in first_stages_longer(62, 4)]
    [16, 16, 15, 15]
    """
    share, extra = divmod(num_hidden_layers, pp)
    found, start = [], 0
    for index in range(pp):
        size = share + (index < extra)
        found.append(range(start, start + size))
        start += size
    return found


def cut(
    architecture: Architecture,
    deployment: Deployment,
    dtype: str,
    *,
    tp: int,
    dp: int,
) -> list[Stage]:
    """The stages of a deployment.

    Args:
        architecture: of the model.
        deployment: its pipeline_parallel_size and expert_parallel are looked at.
        dtype: that weights stored in the model's dtype are held in.
        tp: ranks that share one copy of the attention layers [ranks].
        dp: copies of them that share the experts [ranks].

    Returns:
        One stage a pipeline rank, the caches as one of `tp` ranks holds them.

    Source: formulas.weights.rank_tensors.
    """
    pp = deployment.pipeline_parallel_size
    whole = deployment.expert_parallel
    if pp == 1 or pp > architecture.num_hidden_layers:
        elements = sum_elements(rank_tensors(architecture, tp, dp=dp, expert_parallel=whole, dtype=dtype))
        caches = tuple(cache.per_rank(tp) for cache in architecture.caches)
        return [Stage(elements, _size(elements), architecture.num_hidden_layers, caches)]
    found = []
    for index, layers in enumerate(first_stages_longer(architecture.num_hidden_layers, pp)):
        first, last = index == 0, index == pp - 1
        tensors = rank_tensors(
            architecture, tp, dp=dp, expert_parallel=whole, stage=layers, first=first, last=last, dtype=dtype
        )
        elements = sum_elements(tensors)
        caches = tuple(
            cache.per_rank(tp)
            for cache, layer in zip(architecture.caches, architecture.cache_layers, strict=True)
            if layer in layers
        )
        found.append(Stage(elements, _size(elements), len(layers), caches))
    return found


def _size(elements: dict[tuple[str, str], int]) -> int:
    return sum(element_bytes(count, dtype) for (_, dtype), count in elements.items())
