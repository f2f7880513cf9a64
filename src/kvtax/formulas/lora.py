"""Slots that a server keeps for LoRA adapters."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

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


def vocabulary_elements(vocab_size: int, hidden_size: int, *, embedding: bool, head: bool) -> int:
    """Elements of the slots of embedding and head for a rank of one; neither is split over ranks.

    embedding: vocab_size + hidden_size; head: hidden_size + vocab_size, padded to a multiple of 256

    Args:
        vocab_size: [tokens].
        hidden_size: [elements].
        embedding: whether the rank has the embedding.
        head: whether it has the head.

    Returns:
        Elements.

    Source: vllm lora/layers/vocal_parallel_embedding.py (org_vocab_size rows), lora/layers/logits_processor.py (vocabulary padded to
    lora_vocab_padding_size 256).

    >>> vocabulary_elements(128256, 4096, embedding=True, head=True)
    264704
    """
    found = vocab_size + hidden_size if embedding else 0
    return found + (hidden_size + -(-vocab_size // 256) * 256 if head else 0)


def adapter_elements(
    tensors: Iterable[Tensor], targets: Iterable[str], ranks: Mapping[str, int], rank: int,
    layers: Container[int] | None = None, *, magnitudes: bool = False,
) -> int:  # fmt: skip
    """Elements of one adapter: the rank times inputs and outputs of every linear layer that it targets.

    sum of rank * (in + out) over targeted layers (+ out, for DoRA's magnitudes)

    Args:
        tensors: of the base model.
        targets: ends of the names of modules; `all-linear` for all but the head.
        ranks: ends of names with a rank of their own.
        rank: of the others.
        layers: those that are adapted, None for all.
        magnitudes: whether each has a vector of its outputs besides (DoRA).

    Returns:
        Elements.

    Source: peft tuners/lora/layer.py: lora_A [r, in], lora_B [out, r]; a target matches the end of a module's name.

    >>> q = Tensor("model.layers.*.self_attn.q_proj.weight", (4096, 4096), "attention", tuple(range(32)), linear=True)
    >>> adapter_elements([q], ["q_proj"], {}, 16)
    4194304
    """
    wanted = tuple(targets)
    found = 0
    for tensor in tensors:
        module = tensor.name.removesuffix(".weight")
        if len(tensor.shape) < 2 or not _is_target(tensor, module, wanted):
            continue
        adapted = len([layer for layer in tensor.layers if layers is None or layer in layers]) if tensor.layers else 1
        own = next((value for name, value in ranks.items() if _ends(module, name)), rank)
        outputs, inputs = tensor.shape[-2], tensor.shape[-1]
        copies = adapted * tensor.per_layer * (tensor.shape[0] if len(tensor.shape) == 3 else 1)
        found += copies * (own * (inputs + outputs) + (outputs if magnitudes else 0))
    return found


def _ends(module: str, name: str) -> bool:
    return module == name or module.endswith(f".{name}")


def _is_target(tensor: Tensor, module: str, targets: tuple[str, ...]) -> bool:
    if "all-linear" in targets:
        return tensor.linear and tensor.component != "lm_head"
    return (tensor.linear or tensor.component == "embedding") and any(_ends(module, name) for name in targets)


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
