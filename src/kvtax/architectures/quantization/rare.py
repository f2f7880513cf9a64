"""Formats that few checkpoints have."""

from __future__ import annotations

from collections.abc import Callable

from kvtax.architectures.quantization.scheme import Scheme
from kvtax.architectures.quantization.section import Section

READERS: dict[str, Callable[[Section], Scheme | None]] = {}
