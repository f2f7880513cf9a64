"""What a GGUF file holds, as llama.cpp loads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kvtax.architectures.gguf.shape import Shape
from kvtax.architectures.gguf.tensor import GgufTensor
from kvtax.architectures.quantization.stored import StoredTensor, plain
from kvtax.architectures.tensors import Tensor
from kvtax.dtypes import find_dtype


class Gguf(NamedTuple):
    """A model in GGUF.

    Args:
        shape: its hyper-parameters.
        tensors: that llama.cpp loads, in the order of the file.
        types: one format for each.
        label: how the mix of formats is called: `Q4_K_M`.
        file_bytes: the data section [bytes].
    """

    shape: Shape
    tensors: tuple[GgufTensor, ...]
    types: tuple[str, ...]
    label: str
    file_bytes: int


class GgufMix(NamedTuple):
    """The formats of a GGUF file as a quantisation: every tensor is in the format that the file has it in.

    Args:
        name: `q4_k_m`.
        bits: of a weight in the format that most weights have [bit].
        method: `gguf`.
        group_size: 0: blocks carry their own scales [elements].
        kv_cache_dtype: None: the file asks for none.
    """

    name: str
    bits: int
    method: str = "gguf"
    group_size: int = 0
    kv_cache_dtype: str | None = None

    def stored(self, tensor: Tensor, dtype: str) -> Iterable[StoredTensor]:
        """As it is: the tensor's own dtype is the file's."""
        return (plain(tensor, dtype),)


FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L",
    14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M",
    32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE",
}  # fmt: skip
"""general.file_type -> name. Source: ggml-org/llama.cpp include/llama.h llama_ftype."""


def commonest(tensors: Iterable[GgufTensor], types: Iterable[str]) -> str:
    """The format that most elements have."""
    sizes: dict[str, int] = {}
    for tensor, dtype in zip(tensors, types, strict=True):
        sizes[dtype] = sizes.get(dtype, 0) + tensor.elements
    return max(sizes, key=lambda dtype: sizes[dtype], default="float16")


def bits(dtype: str) -> int:
    """Bits of one weight without its scales [bit]."""
    return find_dtype(dtype).bits
