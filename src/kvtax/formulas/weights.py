"""Weights on one rank of tensor and pipeline parallelism."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.tensors import EXPERT, Tensor, numel, rank_elements
from kvtax.dtypes import find_dtype

_FLOATS = ("float64", "float32", "float16", "bfloat16")
"""Formats that engines turn into the one they run in, where the model does not keep a tensor in its own."""


def stage_layers(num_hidden_layers: int, pp: int, *, balanced: bool = True) -> list[range]:
    """The layers of each pipeline stage: equal shares, what is left over to the stages before the last.

    num_hidden_layers // pp, and one more for num_hidden_layers % pp stages

    Args:
        num_hidden_layers: of the decoder [layers].
        pp: pipeline_parallel_size [ranks].
        balanced: False: all of what is left over goes to the last stage, as vllm before 0.8 did [-].

    Returns:
        One range a stage.

    Source: vllm 0.33.0 distributed/utils.py get_pp_indices (DeepSeek-V3: 31 and 30).

    >>> [len(stage) for stage in stage_layers(61, 2)]
    [31, 30]
    """
    sizes = [num_hidden_layers // pp] * pp
    for index in range(num_hidden_layers % pp):
        sizes[-(index + 2) % pp if balanced else -1] += 1
    stages, start = [], 0
    for size in sizes:
        stages.append(range(start, start + size))
        start += size
    return stages


class RankTensor(NamedTuple):
    """Equal tensors of the weights on one rank.

    Args:
        name: as stored, `*` for indices.
        component: what they are part of.
        dtype: as held.
        layers: that have them; empty for a tensor that stands once.
        copies: tensors of this name, all layers together [tensors].
        elements: of all of them on this rank [elements].
        scale: whether they hold scales, zero points or orders.
    """

    name: str
    component: str
    dtype: str
    layers: tuple[int, ...]
    copies: int
    elements: int
    scale: bool


def rank_tensors(
    architecture: Architecture,
    tp: int,
    *,
    dp: int = 1,
    expert_parallel: bool = False,
    stage: range | None = None,
    first: bool = True,
    last: bool = True,
    dtype: str | None = None,
    without: frozenset[str] = frozenset(),
    whole: frozenset[str] = frozenset(),
) -> list[RankTensor]:
    """The loaded weights on one rank, scales included.

    every stored tensor: rank_elements * copies; routed experts are split over tp * dp ranks, whole where expert_parallel

    Args:
        architecture: of the model.
        tp: tensor_parallel_size [ranks].
        dp: data_parallel_size: replicas of attention that share the experts [ranks].
        expert_parallel: a rank holds ceil(num_experts / (tp * dp)) whole experts.
        stage: decoder layers of this pipeline stage; None: all.
        first: whether embedding and towers are on this stage.
        last: whether the final norm and lm_head are.
        dtype: that weights stored in the model's dtype are held in, as float32 checkpoints that run in 16 bit; None: as stored.
        without: components that are not loaded (the head of a pooling model, towers of a text-only server) [names].
        whole: components that every rank holds unsplit (towers whose encoder runs in data parallel) [names].

    Returns:
        What the rank holds, in the order of the inventory.

    Source: vllm 0.33.0 model_executor/layers (see tensors.rank_elements), reproduced with its planner; fused_moe/config.py for experts.
    """
    found: list[RankTensor] = []
    tied = not any(tensor.component == "lm_head" for tensor in architecture.tensors)
    for stored in architecture.stored_tensors():
        tensor = stored.source
        if not tensor.loaded or tensor.component in without:
            continue
        count, layers = stored.copies, tensor.layers
        if stage is not None:
            if tensor.component in ("vision", "audio", "embedding"):
                on_stage = first or (last and tied and tensor.component == "embedding")
                count = count if on_stage else 0
            elif tensor.layers:
                layers = tuple(layer for layer in tensor.layers if layer in stage)
                count = count // len(tensor.layers) * len(layers)
            else:
                count = count if last else 0
        if count:
            cast = dtype is not None and stored.dtype in _FLOATS and not (stored.scale or tensor.dtype)
            if tensor.shard == EXPERT:
                held = _expert_elements(stored.shape, tensor, count, tp * dp, expert_parallel)
            else:
                held = rank_elements(stored.shape, tensor, 1 if tensor.component in whole else tp) * count
            held_in = dtype if cast and dtype else stored.dtype
            found.append(RankTensor(stored.name, tensor.component, held_in, layers, count, held, stored.scale))
    return found


def sum_elements(tensors: Iterable[RankTensor]) -> dict[tuple[str, str], int]:
    """Elements by component and by dtype as held.

    sum of elements over tensors of one component and dtype

    Args:
        tensors: of one rank [tensors].

    Returns:
        (component, dtype) -> elements.

    Source: see `rank_tensors`.
    """
    found: dict[tuple[str, str], int] = {}
    for tensor in tensors:
        key = (tensor.component, tensor.dtype)
        found[key] = found.get(key, 0) + tensor.elements
    return found


def rank_weight_elements(
    architecture: Architecture,
    tp: int,
    *,
    dp: int = 1,
    expert_parallel: bool = False,
    stage: range | None = None,
    first: bool = True,
    last: bool = True,
    dtype: str | None = None,
    without: frozenset[str] = frozenset(),
) -> dict[tuple[str, str], int]:
    """Elements of the loaded weights on one rank, scales included, by component and by dtype as held.

    sum of `rank_tensors` by component and dtype

    Args:
        architecture: of the model.
        tp: tensor_parallel_size [ranks].
        dp: data_parallel_size [ranks].
        expert_parallel: a rank holds whole experts.
        stage: decoder layers of this pipeline stage; None: all.
        first: whether embedding and towers are on this stage.
        last: whether the final norm and lm_head are.
        dtype: that weights stored in the model's dtype are held in; None: as stored.
        without: components that are not loaded [names].

    Returns:
        (component, dtype) -> elements.

    Source: see `rank_tensors`.
    """
    return sum_elements(
        rank_tensors(
            architecture,
            tp,
            dp=dp,
            expert_parallel=expert_parallel,
            stage=stage,
            first=first,
            last=last,
            dtype=dtype,
            without=without,
        )
    )


def _expert_elements(shape: tuple[int, ...], tensor: Tensor, count: int, ranks: int, expert_parallel: bool) -> int:
    """Elements of `count` expert tensors on one of the ranks that share them; stacked experts are the first axis of one tensor."""
    if not expert_parallel:
        return rank_elements(shape, tensor, ranks) * count
    if tensor.per_layer > 1:
        return numel(shape) * (count // tensor.per_layer * -(-tensor.per_layer // ranks))
    return numel(shape) // shape[0] * -(-shape[0] // ranks) * count if len(shape) > 2 else numel(shape) * count


def element_bytes(elements: int, dtype: str) -> int:
    """Bytes of elements as stored: ceil(elements * bits / 8), and a scale for each block of a format that has blocks (GGUF).

    Args:
        elements: of one dtype [elements].
        dtype: as stored.

    Returns:
        Size [bytes].

    Source: safetensors format.

    >>> element_bytes(8030261248, "bfloat16")
    16060522496
    """
    return find_dtype(dtype).bytes(elements)
