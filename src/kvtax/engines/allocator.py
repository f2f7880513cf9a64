"""torch's caching allocator: what tensors really take of a card."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple

from kvtax.units import MIB

ROUNDING = 512
"""Every block is a multiple of this [bytes]."""
SMALL = MIB
"""Up to this, tensors come from segments of their own [bytes]; what a split would leave must be larger."""
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
"""What is asked of the driver for tensors of less than LARGE [bytes]."""
LARGE = 10 * MIB
"""From this on a tensor has a segment of its own, a multiple of 2 MiB [bytes]."""


class Allocation(NamedTuple):
    """What tensors asked for, what the blocks that they got hold, and what the driver gave [bytes]."""

    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int


def allocate(sizes: Iterable[int]) -> Allocation:
    """What tensors take that are allocated one after the other and stay.

    A block is the smallest free one that holds the tensor, else a new segment: 2 MiB up to 1 MiB, 20 MiB below 10 MiB,
    else the next multiple of 2 MiB. What is left of it becomes a free block where that is more than 1 MiB (512 B up to 1 MiB);
    else it goes to the tensor.

    Args:
        sizes: of the tensors in order [bytes].

    Returns:
        Sums over all of them.

    Source: pytorch 2.4 to 2.13 c10/cuda/CUDACachingAllocator.cpp (default settings, no expandable segments); `allocated` equals the
    weights that vllm prints for Qwen3-4B, Qwen2.5-3B, Qwen2.5-14B and Qwen2-7B at two ranks to its four digits.

    >>> allocate([43 * MIB]).allocated_bytes // MIB
    44
    """
    free: list[int] = []
    requested = allocated = reserved = small = 0
    for size in sizes:
        requested += size
        needed = -(-size // ROUNDING) * ROUNDING
        if needed <= SMALL:
            small += needed
            continue
        index = bisect_left(free, needed)
        if index < len(free):
            block = free.pop(index)
        else:
            block = LARGE_SEGMENT if needed < LARGE else -(-needed // SMALL_SEGMENT) * SMALL_SEGMENT
            reserved += block
        if block - needed > SMALL:
            insort(free, block - needed)
            block = needed
        allocated += block
    return Allocation(requested, allocated + small, reserved + -(-small // SMALL_SEGMENT) * SMALL_SEGMENT)
