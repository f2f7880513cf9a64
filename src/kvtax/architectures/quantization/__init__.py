"""Quantised checkpoints: which weights a quantization_config touches, and what is stored in their place.

The readers are imported when a config is quantised: most are not, and every start would pay for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvtax.architectures.config import Config
from kvtax.architectures.quantization.stored import Quantization, StoredTensor, store

__all__ = ["Quantization", "StoredTensor", "named_quantization", "read_quantization", "store"]

if TYPE_CHECKING:
    from kvtax.architectures.architecture import Architecture

KEYS = ("quantization_config", "compression_config")
LEVELS = ("text_config", "language_config", "llm_config", "thinker_config")
"""Nested configs that may hold the section of the whole model."""


def read_quantization(config: Config, extra: Mapping[str, Any] | None = None) -> Quantization | None:
    """What the quantization_config of a model says: see `reader.read_quantization`; None where there is none."""
    levels = [config.values, *(config.values.get(level) for level in LEVELS)]
    stated = any(isinstance(level, Mapping) and level.get(key) is not None for level in levels for key in KEYS)
    if not stated and not extra:
        return None
    from kvtax.architectures.quantization import reader

    return reader.read_quantization(config, extra)


def named_quantization(name: str, architecture: Architecture | None = None) -> Quantization:
    """The usual recipe of a name such as `fp8` or `awq-int4`: see `named.named_quantization`."""
    from kvtax.architectures.quantization import named

    return named.named_quantization(name, architecture)
