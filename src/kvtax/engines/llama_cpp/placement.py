"""Which card gets which layer: -ngl, --tensor-split, --split-mode, experts in RAM."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from kvtax.architectures.gguf.tensor import GgufTensor
from kvtax.dtypes import find_dtype

HOST = -1
FILE_ALIGNMENT = 32
"""Bytes that files, and buffers in RAM, align tensors to."""
ALIGNMENT = 128
"""Bytes that CUDA buffers align tensors to."""
PADDED_ROW = 512
"""Quantised rows on CUDA are padded to a multiple of this many elements, once a tensor [elements]."""
_INPUT = ("token_embd", "per_layer_token_embd", "position_embd", "token_types", "token_embd_norm")
_FIRST_BLOCK = ("per_layer_model_proj", "per_layer_proj_norm")
_EVERYWHERE = ("rope_freqs", "rope_factors_long", "rope_factors_short")
"""Tables of frequencies, which stand wherever a block is."""
"""What stands once in the file and goes where the first block is."""


class LayerBytes(NamedTuple):
    """Weights of one block on a card, and in RAM, where nothing is padded for its kernels [bytes]."""

    rest_bytes: int
    expert_bytes: int
    host_rest_bytes: int
    host_expert_bytes: int


class Weights(NamedTuple):
    """Weights of a model by where they can go [bytes].

    Args:
        input_bytes: embedding tables, always in RAM.
        layers: of the blocks.
        output_bytes: output matrix and final norm, on a card.
        host_output_bytes: the same in RAM.
        tied_bytes: the embedding that is the output matrix too: held a second time where that is on a card.
        largest_bytes: the largest matrix among blocks and output.
        largest_expert_bytes: the largest stack of experts.
        repeated_bytes: tables that every card with a block, and RAM with one, has for itself.
        tied_in_ram: whether RAM holds a tied embedding twice too, where the output is there.
    """

    input_bytes: int
    layers: tuple[LayerBytes, ...]
    output_bytes: int
    tied_bytes: int
    largest_bytes: int
    largest_expert_bytes: int
    repeated_bytes: int = 0
    host_output_bytes: int = 0
    tied_in_ram: bool = False

    @property
    def total_bytes(self) -> int:
        """All of them [bytes]."""
        blocks = sum(layer.rest_bytes + layer.expert_bytes for layer in self.layers)
        return self.input_bytes + self.output_bytes + self.repeated_bytes + blocks


class Share(NamedTuple):
    """What one card, or RAM, holds.

    Args:
        weights_bytes: model buffer [bytes].
        layers: indices of the blocks whose caches are here.
        output: whether the output matrix is here.
    """

    weights_bytes: int
    layers: tuple[int, ...]
    output: bool


def weigh(tensors: Sequence[GgufTensor], types: Sequence[str], block_count: int, *, padded: bool = False) -> Weights:
    """The bytes of a file by block.

    Args:
        tensors: of the file.
        types: one for each.
        block_count: blocks of the main model [layers].
        padded: rows padded and tensors aligned as CUDA buffers have them.

    Returns:
        The weights.

    Source: ggml-org/llama.cpp b11434 src/llama-model.cpp load_tensors; ggml-cuda.cu get_alloc_size.
    """
    rest, experts = [0] * block_count, [0] * block_count
    host_rest, host_experts, host_output = [0] * block_count, [0] * block_count, 0
    inputs = output = largest = largest_expert = embedding = repeated = 0
    tied = not any(tensor.kind == "output" for tensor in tensors)
    for tensor, dtype in zip(tensors, types, strict=True):
        size = -(-tensor.bytes(dtype) // FILE_ALIGNMENT) * FILE_ALIGNMENT
        if tensor.kind in _INPUT:
            inputs += size
            embedding = size if tensor.kind == "token_embd" else embedding
            continue
        in_ram, size = size, device_bytes(tensor, dtype) if padded else size
        largest = max(largest, size)
        if 0 <= tensor.layer < block_count and "_exps" in tensor.kind:
            experts[tensor.layer] += size
            host_experts[tensor.layer] += in_ram
            largest_expert = max(largest_expert, size)
        elif 0 <= tensor.layer < block_count:
            rest[tensor.layer] += size
            host_rest[tensor.layer] += in_ram
        elif tensor.kind in _EVERYWHERE:
            repeated += size
        elif tensor.kind in _FIRST_BLOCK:
            rest[0] += size
            host_rest[0] += in_ram
        else:
            output += size
            host_output += in_ram
    layers = tuple(LayerBytes(*sizes) for sizes in zip(rest, experts, host_rest, host_experts, strict=True))
    again = embedding if tied else 0
    return Weights(inputs, layers, output, again, max(largest, again), largest_expert, repeated, host_output)


def device_bytes(tensor: GgufTensor, dtype: str) -> int:
    """One tensor in a CUDA buffer: padded to 128 bytes, a quantised one by what its row lacks to a multiple of 512 elements [bytes]."""
    return -(-(tensor.bytes(dtype) + _padding(tensor.shape[0], dtype)) // ALIGNMENT) * ALIGNMENT


@lru_cache(maxsize=4096)
def _padding(columns: int, dtype: str) -> int:
    found, lacking = find_dtype(dtype), -columns % PADDED_ROW
    return found.bytes(lacking) if found.block and lacking else 0


def assign(block_count: int, n_gpu_layers: int, shares: Sequence[float]) -> list[int]:
    """The card of each block and, last, of the output: HOST for the first block_count + 1 - n_gpu_layers units.

    A unit i of n goes to the first card whose cumulative share exceeds i / n.

    Args:
        block_count: [layers].
        n_gpu_layers: units on cards [layers].
        shares: of each card, in any unit.

    Returns:
        block_count + 1 numbers of cards.

    Source: ggml-org/llama.cpp b11434 src/llama-model.cpp get_layer_buft_list.

    >>> assign(4, 3, [1, 1])
    [-1, -1, 0, 0, 1]
    """
    units = min(max(n_gpu_layers, 0), block_count + 1) if shares else 0
    total = sum(shares)
    edges = [part / total for part in accumulate(shares)] if total else []
    found = [HOST] * (block_count + 1 - units)
    for unit in range(units):
        found.append(next((card for card, edge in enumerate(edges) if edge > unit / units), len(edges) - 1))
    return found


def place(weights: Weights, cards: Sequence[int], *, experts_in_ram: int = 0) -> dict[int, Share]:
    """What each card and RAM hold.

    Args:
        weights: of the model.
        cards: as `assign` says.
        experts_in_ram: blocks, from the first, whose experts stay in RAM [layers].

    Returns:
        A share for RAM (HOST) and for each card that has something.

    Source: ggml-org/llama.cpp b11434 common/arg.cpp --n-cpu-moe, src/llama-model.cpp load_tensors.
    """
    sizes: dict[int, int] = {HOST: weights.input_bytes}
    layers: dict[int, list[int]] = {HOST: []}
    for index, (layer, card) in enumerate(zip(weights.layers, cards[:-1], strict=True)):
        home = HOST if index < experts_in_ram else card
        sizes[home] = sizes.get(home, 0) + (layer.host_expert_bytes if home == HOST else layer.expert_bytes)
        sizes[card] = sizes.get(card, 0) + (layer.host_rest_bytes if card == HOST else layer.rest_bytes)
        layers.setdefault(card, []).append(index)
    for card in {*cards[:-1]}:
        sizes[card] = sizes.get(card, 0) + weights.repeated_bytes
    last = cards[-1]
    output = weights.host_output_bytes if last == HOST else weights.output_bytes
    again = weights.tied_bytes if last != HOST or weights.tied_in_ram else 0
    sizes[last] = sizes.get(last, 0) + output + again
    return {card: Share(size, tuple(layers.get(card, ())), card == last) for card, size in sizes.items()}


def share_out(weights: Weights, shares: Sequence[float]) -> dict[int, Share]:
    """Split mode row or tensor: every matrix is cut over the cards by their shares; all caches are cut too.

    Source: ggml-org/llama.cpp b11434 tools/server/README.md --split-mode; the cut is taken as exact, rounding is not modelled.
    """
    total = sum(shares) or 1
    whole = weights.total_bytes - weights.input_bytes + weights.tied_bytes
    every = tuple(range(len(weights.layers)))
    found = {HOST: Share(weights.input_bytes, (), False)}
    for card, share in enumerate(shares):
        found[card] = Share(-int(-whole * share // total), every, True)
    return found
