"""The weights of a deployment: preset, types and bytes by block."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.gguf import traits
from kvtax.architectures.gguf.file import Gguf
from kvtax.architectures.gguf.shape import Shape
from kvtax.architectures.gguf.tensor import GgufTensor
from kvtax.dtypes import find_dtype
from kvtax.engines.llama_cpp import inventory
from kvtax.engines.llama_cpp.converted import converted
from kvtax.engines.llama_cpp.from_architecture import shape_of
from kvtax.engines.llama_cpp.placement import Weights, weigh
from kvtax.engines.llama_cpp.presets import find_preset, tensor_types

_OF_DTYPE = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


class File(NamedTuple):
    """A GGUF file, real or worked out from a config.

    Args:
        preset: canonical name, or how the file itself calls its mix.
        origin: where the preset comes from.
        weights: bytes by block, as a card holds them.
        file_bytes: the data section [bytes].
    """

    preset: str
    origin: str
    weights: Weights
    file_bytes: int


def real_file(gguf: Gguf) -> File:
    """A file as its header has it.

    Args:
        gguf: what the header says.

    Returns:
        The file.

    Source: ggml-org/llama.cpp b11434 src/llama-model.cpp load_tensors.
    """
    weights = _weigh(gguf.shape, gguf.tensors, gguf.types)
    return File(gguf.label, "header of the GGUF file", weights, gguf.file_bytes)


def _weigh(shape: Shape, tensors: Sequence[GgufTensor], types: Sequence[str]) -> Weights:
    found = weigh(tensors, types, len(shape.layers), padded=True)
    return found._replace(tied_in_ram=shape.arch in traits.EMBEDDED_TWICE)


@lru_cache(maxsize=256)
def plain_file(
    architecture: Architecture, quantization: str | None, dtype: str | None, fused_qkv_is_value: bool
) -> tuple[Shape, File]:
    """The hyper-parameters of a checkpoint and its `gguf_file`: the same for every card and length, so it is kept.

    Raises:
        KvtaxError: no such file can be made.
    """
    shape = shape_of(architecture)
    return shape, gguf_file(architecture, shape, quantization, dtype, fused_qkv_is_value=fused_qkv_is_value)


def gguf_file(
    architecture: Architecture, shape: Shape, quantization: str | None, dtype: str | None, *, fused_qkv_is_value: bool
) -> File:
    """The file that `convert_hf_to_gguf.py` and plain `llama-quantize` would make.

    Experts that a checkpoint has in MXFP4 stay so, whatever the preset.

    Args:
        architecture: of the model.
        shape: its hyper-parameters.
        quantization: a preset, None for the checkpoint's dtype.
        dtype: of weights without a preset, None for the checkpoint's.
        fused_qkv_is_value: as the build has it.

    Returns:
        The file.

    Raises:
        UnknownNameError: not a preset.

    Source: ggml-org/llama.cpp b11434 src/llama-quant.cpp, convert_hf_to_gguf.py.
    """
    own = architecture.quantization
    released = own is not None and own.name.lower() == "mxfp4"
    if quantization is not None and not (own is not None and quantization.lower() == own.name.lower()):
        preset, origin = find_preset(quantization), "flag"
    elif dtype is not None:
        preset, origin = _OF_DTYPE.get(find_dtype(dtype).name, "f16"), "flag"
    else:
        preset, origin = _OF_DTYPE.get(architecture.dtype, "bf16"), "config.json: dtype"
    tensors = converted(architecture, shape)
    facts = inventory.facts(shape)._replace(fused_qkv_is_value=fused_qkv_is_value)
    types = tensor_types(preset, tensors, facts)
    if released:
        types = [
            "mxfp4" if "_exps" in tensor.kind and not tensor.kept else found
            for tensor, found in zip(tensors, types, strict=True)
        ]
    size = sum(-(-tensor.bytes(found) // 32) * 32 for tensor, found in zip(tensors, types, strict=True))
    return File(preset, origin, _weigh(shape, tensors, types), size)
