"""One tensor of a GGUF file."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

from kvtax.dtypes import find_dtype


class GgufTensor(NamedTuple):
    """One tensor of a GGUF file.

    Args:
        kind: its name without block and suffix (`attn_q`, `ffn_down_exps`, `token_embd`).
        shape: columns first, as ggml has it (ne0, ne1, ne2) [elements].
        layer: the block, -1 for none.
        kept: the type that it keeps whatever the preset, empty where the preset decides.
    """

    kind: str
    shape: tuple[int, ...]
    layer: int = -1
    kept: str = ""

    @property
    def elements(self) -> int:
        """Product of the shape [elements]."""
        return prod(self.shape)

    def bytes(self, dtype: str) -> int:
        """Rows x bytes of a row [bytes]."""
        return _bytes(self.shape, dtype)


@lru_cache(maxsize=8192)  # a file has hundreds of tensors of a few shapes
def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    return find_dtype(dtype).bytes(shape[0]) * (prod(shape) // max(shape[0], 1))
