"""Weights and cache that vLLM keeps in RAM."""

from __future__ import annotations

from collections.abc import Sequence

from kvtax.formulas.weights import RankTensor, element_bytes


def offloaded_bytes(tensors: Sequence[RankTensor], wanted_bytes: int) -> int:
    """Parameters of decoder layers that are kept in RAM: whole parameters, in order, until their sum reaches what was asked for.

    sum of the first parameters in layer order, up to the one that reaches wanted_bytes

    Args:
        tensors: of the rank.
        wanted_bytes: --cpu-offload-gb of one rank [bytes].

    Returns:
        Size [bytes].

    Source: vllm 0.33.0 model_executor/offloader/uva.py (before it model_executor/models/utils.py maybe_offload_to_cpu): the sum is
    looked at before each parameter of a layer, so the last one may go beyond it.
    """
    if wanted_bytes <= 0:
        return 0
    in_order = sorted(
        (layer, index, element_bytes(tensor.elements, tensor.dtype) // len(tensor.layers))
        for index, tensor in enumerate(tensors)
        for layer in tensor.layers
        if tensor.component not in ("vision", "audio")
    )
    total = 0
    for _, _, size in in_order:
        if total >= wanted_bytes:
            break
        total += size
    return total
