"""How far the pools of real servers lie from the prediction: shares of the card that hold 90 % of 70 starts.

Fitted on starts of vLLM 0.8 to 0.19 from public reports (pool printed, card and flags known). Discrete cards only.
"""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, MultiHeadLatent
from kvtax.hardware.gpu import Gpu


class Margin(NamedTuple):
    """The ends of the interval as shares of the card's memory, and the starts they rest on."""

    low: float
    high: float
    starts: int
    why: str


ROCM = Margin(-0.07, 0.015, 26, "AMD cards: builds differ by 0.5 to 3 GiB, of which the rules know two")
UNIFIED = Margin(-0.10, 0.05, 3, "unified memory: what the system leaves differs by gigabytes from boot to boot")
SPECIAL = Margin(-0.03, 0.02, 22, "4-bit weights, windows or recurrent state: repacking and padding differ by kernel")
PLAIN = Margin(-0.025, 0.015, 27, "16- and 8-bit weights, plain attention")


def margin(architecture: Architecture, gpu: Gpu) -> Margin:
    """The margin of a kind of model on a kind of card."""
    if gpu.unified_memory:
        return UNIFIED
    if gpu.vendor == "AMD":
        return ROCM
    bits = getattr(architecture.quantization, "bits", None) or 16
    growing = all(isinstance(cache, (FullAttention, MultiHeadLatent)) for cache in architecture.caches)
    return PLAIN if bits >= 8 and growing else SPECIAL


def pool_margin(architecture: Architecture, gpu: Gpu, total_bytes: int) -> tuple[int, int]:
    """What to add to the pool for the ends of a 90 % interval [bytes]."""
    found = margin(architecture, gpu)
    return int(found.low * total_bytes), int(found.high * total_bytes)
