"""The cards of a deployment, what is taken on them before, and their shares of the model."""

from __future__ import annotations

from kvtax.architectures.gguf.shape import Shape
from kvtax.engines.answer import Card, Question
from kvtax.engines.llama_cpp.budgeting import OUTSIDE_BYTES, Machine
from kvtax.engines.llama_cpp.settle import Asked
from kvtax.errors import InputError


def make_machine(question: Question, shape: Shape, asked: Asked) -> Machine:
    """The machine that a deployment describes.

    Args:
        question: names resolved.
        shape: of the model.
        asked: its flags.

    Returns:
        The machine, before --fit.

    Raises:
        InputError: shares that cannot be.

    Source: ggml-org/llama.cpp b11434 src/llama-model.cpp: shares are those of --tensor-split, else what is free on each card.
    """
    deployment = question.deployment
    cards = question.cards or (Card(question.gpu, question.total_bytes, question.total_origin),)
    if asked.split_mode == "none":
        cards = cards[:1]
    outside = tuple(_outside(card, deployment.free_memory) for card in cards)
    free = tuple(max(float(card.total_bytes - taken), 0.0) for card, taken in zip(cards, outside, strict=True))
    blocks = len(shape.layers)
    spared = blocks if deployment.cpu_moe else min(deployment.n_cpu_moe or 0, blocks)
    return Machine(
        cards=tuple(cards),
        outside_bytes=outside,
        shares=_given_shares(question, len(cards)) or (free if sum(free) else (1.0,) * len(cards)),
        split_mode=asked.split_mode,
        n_gpu_layers=blocks + 1 if asked.n_gpu_layers is None else min(asked.n_gpu_layers, blocks + 1),
        experts_in_ram=spared if shape.expert_count else 0,
        kv_offload=deployment.kv_offload is not False,
        mmproj_bytes=deployment.mmproj_bytes or 0,
        on_cuda=all(card.gpu.vendor == "NVIDIA" for card in cards),
    )


def _outside(card: Card, free_memory: int | None) -> int:
    """What is taken on a card before llama.cpp allocates: by a context, or whatever is not free [bytes]."""
    if free_memory is not None:
        return card.total_bytes - min(free_memory, card.total_bytes)
    return 0 if card.gpu.unified_memory else min(OUTSIDE_BYTES, card.total_bytes)


def _given_shares(question: Question, cards: int) -> tuple[float, ...]:
    """The shares of --tensor-split, with nothing for cards that it leaves out."""
    asked = question.deployment.tensor_split
    if asked is None:
        return ()
    given = tuple(float(value) for value in asked.values)
    if not 0 < len(given) <= cards or min(given) < 0 or not sum(given):
        raise InputError(
            f"needs at most {cards} shares, not negative, not all zero", code="invalid-quantity", where="tensor_split"
        )
    return given + (0.0,) * (cards - len(given))
