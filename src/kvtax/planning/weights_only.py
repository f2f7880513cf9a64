"""What can be said about a model whose architecture is not understood."""

from __future__ import annotations

from typing import Any

from kvtax.errors import KvtaxError
from kvtax.sources.models import find_model


def published_weights_bytes(model: Any) -> int | None:
    """Bytes of the weights in 16 bit, from the total published for a model of the catalogue; None where there is none."""
    if not isinstance(model, str):
        return None
    try:
        entry = find_model(model)
    except KvtaxError:
        return None
    return None if entry.parameters is None else 2 * entry.parameters
