"""What a checkpoint stores in place of its tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from kvtax.architectures.tensors import Tensor, numel
from kvtax.dtypes import find_dtype


class StoredTensor(NamedTuple):
    """One tensor (of `copies` equal ones) as a checkpoint stores it.

    Args:
        name: with `*` for indices.
        shape: as stored, packed [elements].
        dtype: as stored.
        copies: how many [tensors].
        source: the tensor before quantisation, which says how it is split and whether it is loaded.
        scale: whether it holds scales, zero points or orders rather than weights.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    copies: int
    source: Tensor
    scale: bool = False

    @property
    def elements(self) -> int:
        """Elements of all of them, as stored."""
        return numel(self.shape) * self.copies

    @property
    def bytes(self) -> int:
        """Bytes of all of them."""
        return find_dtype(self.dtype).bytes(numel(self.shape)) * self.copies


class Quantization(Protocol):
    """What a quantization_config says."""

    @property
    def name(self) -> str:
        """As a deployment names it: `fp8-block`, `awq-int4-g32`."""

    @property
    def method(self) -> str:
        """The quant_method of the config, empty for one that was asked for by name."""

    @property
    def bits(self) -> int:
        """Bits of a quantised weight, the fewest where formats are mixed [bit]."""

    @property
    def group_size(self) -> int:
        """Weights along the input that share a scale, 0 where that is a whole row or tensor [elements]."""

    @property
    def kv_cache_dtype(self) -> str | None:
        """The cache format that the checkpoint was calibrated for, None where it names none."""

    def stored(self, tensor: Tensor, dtype: str) -> Iterable[StoredTensor]:
        """What is stored for one group of tensors."""


def plain(tensor: Tensor, dtype: str) -> StoredTensor:
    """A tensor that is stored as it is."""
    return StoredTensor(tensor.name, tensor.shape, tensor.dtype or dtype, tensor.copies, tensor)


def store(tensors: Iterable[Tensor], quantization: Quantization | None, dtype: str) -> tuple[StoredTensor, ...]:
    """The tensors as stored: one for one where nothing is quantised."""
    found: list[StoredTensor] = []
    for tensor in tensors:
        if quantization is not None and tensor.linear:
            found.extend(quantization.stored(tensor, dtype))
        else:
            found.append(plain(tensor, dtype))
    return tuple(found)
