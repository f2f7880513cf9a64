"""Safetensors files made in code, valid unless a test asks otherwise, and a source that counts what is read of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
"""Bits of every tag (safetensors 0.8.0 src/tensor.rs), written a second time so that the project's table is checked by it."""


def with_length(text: bytes) -> bytes:
    """The eight bytes of length before a header."""
    return len(text).to_bytes(8, "little") + text


def entries(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> dict[str, Any]:
    """The header's object: tensors (name, tag, shape) one behind the other."""
    found: dict[str, Any] = {}
    begin = 0
    for name, tag, shape in tensors:
        end = begin + prod(shape) * BITS[tag] // 8
        found[name] = {"dtype": tag, "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    return found


def data_bytes(header: Mapping[str, Any]) -> int:
    """Where the last tensor ends [bytes]."""
    return max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)


def build(
    tensors: Iterable[tuple[str, str, tuple[int, ...]]],
    metadata: Mapping[str, str] | None = None,
    header_bytes: int = 0,
    compact: bool = True,
) -> tuple[bytes, int]:
    """The header of a valid file, padded to `header_bytes` (8 + n) where given, and the length of the whole file."""
    header = entries(tensors)
    everything = header if metadata is None else {"__metadata__": dict(metadata), **header}
    text = json.dumps(everything, ensure_ascii=False, separators=(",", ":") if compact else None).encode()
    text += b" " * (header_bytes - 8 - len(text))
    made = with_length(text)
    assert not header_bytes or len(made) == header_bytes, "the entries alone are longer"
    return made, len(made) + data_bytes(header)


def whole(tensors: Iterable[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str] | None = None) -> bytes:
    """A whole valid file, of zeros."""
    header, size = build(tensors, metadata)
    return header.ljust(size, b"\0")


class Sparse:
    """A file of which only the beginning is there; the rest would be zeros, which no reader should ask for.

    Args:
        head: its beginning.
        size: its length; None where it is told by nobody.
        told: whether the length is known before the first read.
    """

    name = "model.safetensors"

    def __init__(self, head: bytes, size: int | None, told: bool = True) -> None:
        self.head = head
        self.later = size
        self.size = size if told else None
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, length: int) -> bytes:
        self.reads.append((start, length))
        self.size = self.later
        return self.head[start : start + length]
