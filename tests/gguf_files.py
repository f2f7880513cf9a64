"""Builds GGUF files in code: valid ones from keys and tensors, and hostile ones by lying about a count.

Type numbers and block sizes are written down here once more, from ggml.h and ggml-common.h, so that the reader's own table is checked.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

VALUE_TYPES = {
    "u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I"), "i32": (5, "i"), "f32": (6, "f"),
    "bool": (7, "?"), "text": (8, ""), "array": (9, ""), "u64": (10, "Q"), "i64": (11, "q"), "f64": (12, "d"),
}  # fmt: skip
TENSOR_TYPES = {
    "float32": (0, 1, 4), "float16": (1, 1, 2), "q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22),
    "q5_1": (7, 32, 24), "q8_0": (8, 32, 34), "q2_k": (10, 256, 84), "q3_k": (11, 256, 110), "q4_k": (12, 256, 144),
    "q5_k": (13, 256, 176), "q6_k": (14, 256, 210), "iq2_xxs": (16, 256, 66), "iq2_xs": (17, 256, 74),
    "iq3_xxs": (18, 256, 98), "iq1_s": (19, 256, 50), "iq4_nl": (20, 32, 18), "iq3_s": (21, 256, 110),
    "iq2_s": (22, 256, 82), "iq4_xs": (23, 256, 136), "int8": (24, 1, 1), "int16": (25, 1, 2), "int32": (26, 1, 4),
    "int64": (27, 1, 8), "float64": (28, 1, 8), "iq1_m": (29, 256, 56), "bfloat16": (30, 1, 2), "tq1_0": (34, 256, 54),
    "tq2_0": (35, 256, 66), "mxfp4": (39, 32, 17), "nvfp4": (40, 64, 36), "q1_0": (41, 128, 18), "q2_0": (42, 64, 18),
}  # fmt: skip
"""Number, elements of a block, bytes of a block (ggml-org/llama.cpp b11434)."""


class Typed(NamedTuple):
    """A value of a stated type; an array where the value is a list."""

    kind: str
    value: Any


class TensorOf(NamedTuple):
    """A tensor; `type_id` and `offset` only to lie."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    type_id: int | None = None
    offset: int | None = None

    @property
    def bytes(self) -> int:
        _, block, size = TENSOR_TYPES[self.dtype]
        return prod(self.shape) // block * size


def u32(number: int) -> bytes:
    return struct.pack("<I", number)


def u64(number: int) -> bytes:
    return struct.pack("<Q", number)


def text(word: str | bytes) -> bytes:
    raw = word.encode() if isinstance(word, str) else word
    return u64(len(raw)) + raw


def typed(value: Any) -> Typed:
    """A plain value in the type that converters write it in."""
    if isinstance(value, Typed):
        return value
    if isinstance(value, (list, tuple)):
        return Typed(typed(value[0]).kind if value else "i32", list(value))
    if isinstance(value, bool):
        return Typed("bool", value)
    if isinstance(value, int):
        return Typed("u32" if 0 <= value < 2**32 else "i32" if -(2**31) <= value < 0 else "u64", value)
    return Typed("f32" if isinstance(value, float) else "text", value)


def packed(kind: str, value: Any) -> bytes:
    return text(value) if kind == "text" else struct.pack("<" + VALUE_TYPES[kind][1], value)


def key_value(key: str | bytes, value: Any) -> bytes:
    """A key with its value."""
    kind, inner = typed(value)
    number = VALUE_TYPES[kind][0]
    if not isinstance(inner, list):
        return text(key) + u32(number) + packed(kind, inner)
    body = b"".join(packed(kind, entry) for entry in inner)
    return text(key) + u32(9) + u32(number) + u64(len(inner)) + body


def tensor_info(tensor: TensorOf, offset: int) -> bytes:
    type_id = TENSOR_TYPES[tensor.dtype][0] if tensor.type_id is None else tensor.type_id
    return (
        text(tensor.name)
        + u32(len(tensor.shape))
        + b"".join(map(u64, tensor.shape))
        + u32(type_id)
        + u64(offset if tensor.offset is None else tensor.offset)
    )


def gguf_header(
    keys: Mapping[str, Any],
    tensors: Sequence[TensorOf] = (),
    *,
    version: int = 3,
    key_count: int | None = None,
    tensor_count: int | None = None,
) -> bytes:
    """Everything before the data, padded to the alignment where there are tensors; other counts only to lie."""
    alignment = alignment_of(keys)
    parts = [b"GGUF", u32(version), u64(len(tensors) if tensor_count is None else tensor_count)]
    parts.append(u64(len(keys) if key_count is None else key_count))
    parts += [key_value(key, value) for key, value in keys.items()]
    offset = 0
    for tensor in tensors:
        parts.append(tensor_info(tensor, offset))
        offset += padded(tensor.bytes, alignment)
    header = b"".join(parts)
    return header.ljust(padded(len(header), alignment), b"\0") if tensors else header


def gguf_bytes(keys: Mapping[str, Any], tensors: Sequence[TensorOf] = (), **lies: Any) -> bytes:
    """A whole file, its weights zeros."""
    return gguf_header(keys, tensors, **lies) + bytes(data_bytes(keys, tensors))


def write_gguf(path: Path, keys: Mapping[str, Any], tensors: Sequence[TensorOf] = (), **lies: Any) -> Path:
    """A whole file on disk, its weights a hole: it may be as large as a model and takes no room."""
    header = gguf_header(keys, tensors, **lies)
    path.write_bytes(header)
    with path.open("r+b") as file:
        file.truncate(len(header) + data_bytes(keys, tensors))
    return path


def data_bytes(keys: Mapping[str, Any], tensors: Sequence[TensorOf]) -> int:
    return sum(padded(tensor.bytes, alignment_of(keys)) for tensor in tensors)


def alignment_of(keys: Mapping[str, Any]) -> int:
    value = typed(keys.get("general.alignment", 32)).value
    return value if isinstance(value, int) and value > 0 else 32


def padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def vocabulary(tokens: int, merges: int, width: int = 7) -> dict[str, Any]:
    """The keys of a byte-pair tokenizer with so many tokens and merges, of about so many letters each."""
    words = [f"{index:x}".rjust(width - 2 + index % 5, "t") for index in range(tokens)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": Typed("i32", [1] * tokens),
        "tokenizer.ggml.merges": [f"{words[index % tokens]} {words[-index % tokens]}" for index in range(merges)],
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    }


LLAMA_KEYS: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "A small Llama",
    "general.file_type": 15,
    "general.tags": ["text-generation", "test"],
    "llama.block_count": 2,
    "llama.context_length": 4096,
    "llama.embedding_length": 256,
    "llama.feed_forward_length": [512, 768],
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": [2, 1],
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.attention.sliding_window_pattern": [True, False],
    "llama.rope.freq_base": 500000.0,
    "llama.vocab_size": 300,
}


def llama_tensors(layers: int = 2) -> list[TensorOf]:
    """Tensors that LLAMA_KEYS may have."""
    found = [TensorOf("token_embd.weight", (256, 300), "q6_k"), TensorOf("output_norm.weight", (256,))]
    for layer in range(layers):
        found += [
            TensorOf(f"blk.{layer}.attn_q.weight", (256, 256), "q4_k"),
            TensorOf(f"blk.{layer}.attn_k.weight", (256, 128), "q4_k"),
            TensorOf(f"blk.{layer}.attn_v.weight", (256, 128), "q8_0"),
            TensorOf(f"blk.{layer}.attn_norm.weight", (256,), "float32"),
            TensorOf(f"blk.{layer}.ffn_gate_exps.weight", (256, 64, 4), "mxfp4"),
        ]
    return found
