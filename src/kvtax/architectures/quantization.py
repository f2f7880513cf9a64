"""Quantised checkpoints: which weights a quantization_config touches, and what is stored in their place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from kvtax.architectures.tensors import Tensor, numel
from kvtax.dtypes import find_dtype


class StoredTensor(NamedTuple):
    """One tensor (of `count` equal ones) as a checkpoint stores it.

    Args:
        name: with `*` for indices.
        shape: as stored, packed [elements].
        dtype: as stored.
        count: how many [tensors].
        source: the tensor before quantisation, which says how it is split and whether it is loaded.
        scale: whether it holds scales, zero points or orders rather than weights.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    count: int
    source: Tensor
    scale: bool = False

    @property
    def elements(self) -> int:
        """Elements of all of them, as stored."""
        return numel(self.shape) * self.count

    @property
    def bytes(self) -> int:
        """Bytes of all of them."""
        return find_dtype(self.dtype).bytes(numel(self.shape)) * self.count


class Quantization(Protocol):
    """What a quantization_config says."""

    name: str

    def stored(self, tensor: Tensor, dtype: str) -> Iterable[StoredTensor]:
        """What is stored for one group of tensors."""


def store(tensors: Iterable[Tensor], quantization: Quantization | None, dtype: str) -> tuple[StoredTensor, ...]:
    """The tensors as stored: one for one where nothing is quantised."""
    found: list[StoredTensor] = []
    for tensor in tensors:
        if quantization is not None and tensor.linear:
            found.extend(quantization.stored(tensor, dtype))
        else:
            found.append(StoredTensor(tensor.name, tensor.shape, tensor.dtype or dtype, tensor.count, tensor))
    return tuple(found)
