"""The quantisations that people serve with an engine, the widest first."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.engines.base import Plan


class Format(NamedTuple):
    """A quantisation by its name (None: the checkpoint as it is) and its nominal bits."""

    name: str | None
    bits: int


GGUF_FORMATS = (
    Format("bf16", 16), Format("q8_0", 8), Format("q6_k", 6), Format("q5_k_m", 5), Format("q4_k_m", 4), Format("iq4_xs", 4),
    Format("q3_k_m", 3), Format("q2_k", 2),
)  # fmt: skip
"""Presets that are published for nearly every model."""


def usual_formats(plan: Plan | type[Plan], architecture: Architecture) -> tuple[Format, ...]:
    """The formats to look at for a model; of a checkpoint that is quantised already its own alone.

    Args:
        plan: of the engine.
        architecture: of the model.
    """
    if plan.OWN_QUANTIZATION and architecture.gguf is None:
        return GGUF_FORMATS
    own = Format(None, 16)
    if architecture.quantization is not None or architecture.gguf is not None:
        return (own,)
    if "attn_implementation" in plan.FIELDS:
        return own, Format("bnb-int8", 8), Format("bnb-nf4", 4)
    return own, Format("fp8", 8), Format("awq-int4", 4)
