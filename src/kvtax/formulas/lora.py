"""Slots that a server keeps for LoRA adapters."""

from __future__ import annotations

from collections.abc import Iterable

from kvtax.architectures.tensors import COLUMN, EXPERT, GROUPS, HEADS, ROW, VOCAB, Tensor, rank_elements


def slot_elements(tensor: Tensor, tp: int, *, expert_ranks: int = 1) -> tuple[int, int]:
    """Inputs and outputs of one linear layer on one rank: what a rank of an adapter takes in its slot, as (A, B).

    column: (in, out / tp); row: (in / tp, out); replicated: (in, out); heads: outputs as the layer's own are split

    Args:
        tensor: the weight of a linear layer, outputs first; stacked experts have a first axis of experts.
        tp: tensor_parallel_size [ranks].
        expert_ranks: ranks over which experts are split, whole or along their width [ranks].

    Returns:
        Elements of A and of B for a rank of one, all copies of the layer that one rank holds.

    Source: vllm 0.33.0 lora/layers/column_parallel_linear.py, row_parallel_linear.py, fused_moe.py.
    """
    outputs, inputs = tensor.shape[-2], tensor.shape[-1]
    copies = tensor.copies * (tensor.shape[0] if len(tensor.shape) == 3 else 1)
    if tensor.shard == EXPERT:
        # the width of an expert is split: outputs of gate and up, inputs of down
        if "down" in tensor.name or ".w2" in tensor.name:
            return copies * -(-inputs // expert_ranks), copies * outputs
        return copies * inputs, copies * -(-outputs // expert_ranks)
    if tensor.shard == ROW:
        return copies * -(-inputs // tp), copies * outputs
    if tensor.shard in (COLUMN, HEADS, GROUPS, VOCAB) and inputs:
        return copies * inputs, copies * rank_elements(tensor.shape, tensor, tp) // inputs
    return copies * inputs, copies * outputs


def lora_elements(tensors: Iterable[Tensor], tp: int, *, experts: bool, expert_ranks: int = 1) -> int:
    """Elements of a slot for a rank of one: sum over linear layers of inputs + outputs on one rank.

    sum of in + out over linear layers, copies counted

    Args:
        tensors: of the model.
        tp: tensor_parallel_size [ranks].
        experts: whether routed experts have slots.
        expert_ranks: ranks over which experts are split [ranks].

    Returns:
        Elements.

    Source: see `slot_elements`; towers, routers and heads have no slots.
    """
    left_out = {"vision", "audio", "router", "mtp", "lm_head", "embedding"} | (set() if experts else {"routed_experts"})
    return sum(
        sum(slot_elements(tensor, tp, expert_ranks=expert_ranks))
        for tensor in tensors
        if tensor.linear and tensor.loaded and tensor.component not in left_out and len(tensor.shape) in (2, 3)
    )


def lora_bytes(max_loras: int, max_lora_rank: int, elements: int, element_bytes: int) -> int:
    """Slots of all adapters: max_loras * max_lora_rank * elements * element_bytes.

    max_loras * max_lora_rank * elements * element_bytes

    Args:
        max_loras: adapters held at once [adapters].
        max_lora_rank: the highest rank; every slot has room for it.
        elements: of a slot for a rank of one, see `lora_elements` [elements].
        element_bytes: of the adapters' dtype [bytes].

    Returns:
        Size [bytes].

    Source: vllm 0.33.0 lora/layers/base_linear.py create_lora_weights.

    >>> lora_bytes(1, 16, 2621440, 2)
    83886080
    """
    return max_loras * max_lora_rank * elements * element_bytes
