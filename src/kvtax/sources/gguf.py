"""What the header of a GGUF file says: its keys and its tensors, every count and length in it checked before it is used.

Layout (little-endian): magic `GGUF`, u32 version, u64 tensors, u64 keys; each key: text, u32 type, value; each tensor: text, u32 dimensions,
u64 for each, u32 type, u64 offset; then the data, from the next multiple of the alignment on. A text is a u64 length and its bytes.
Source: ggml-org/llama.cpp b11434 ggml/include/gguf.h, ggml/src/gguf.cpp, ggml/include/ggml.h.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any, NamedTuple

from kvtax.dtypes import DTYPES
from kvtax.errors import ConfigError
from kvtax.safe_text import safe
from kvtax.sources.byte_source import ByteSource
from kvtax.sources.gguf_window import FIRST_READ_BYTES, HeaderWindow

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
MAXIMUM_ALIGNMENT = 2**20
MAXIMUM_KEYS = 2**16
MAXIMUM_TENSORS = 2**17
MAXIMUM_KEY_BYTES = 2**16 - 1
MAXIMUM_NAME_BYTES = 1024
"""Of tensors; ggml takes 63 unless it was built for more."""
MAXIMUM_TEXT_BYTES = 2**20
MAXIMUM_KEPT_BYTES = 16 * 2**20
"""All texts of a file that are kept, together."""
MAXIMUM_KEPT_ENTRIES = 4096
"""Arrays up to this length are kept: what differs by layer."""
MAXIMUM_NUMBERS = 2**19
"""Entries of all arrays of numbers that are kept."""
MAXIMUM_TEXTS = 2**23
"""Entries of all arrays of texts; the largest published vocabularies have 0.8 million tokens and merges."""
MAXIMUM_DIMENSIONS = 4

DTYPE_OF_TYPE = {
    0: "float32", 1: "float16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0",
    10: "q2_k", 11: "q3_k", 12: "q4_k", 13: "q5_k", 14: "q6_k",
    16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s", 20: "iq4_nl", 21: "iq3_s", 22: "iq2_s", 23: "iq4_xs",
    24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 29: "iq1_m", 30: "bfloat16",
    34: "tq1_0", 35: "tq2_0", 39: "mxfp4", 40: "nvfp4", 41: "q1_0", 42: "q2_0",
}  # fmt: skip
"""Formats by their number (ggml.h enum ggml_type); 9 and 15 (q8_1, q8_k) are formats of activations, never of a file."""
REMOVED_TYPES = frozenset((4, 5, 31, 32, 33, 36, 37, 38))
ROW_BLOCK = {"nvfp4": 64}
"""ggml packs four blocks of NVFP4, each with its scale, into one."""

_U32, _TEXT, _ARRAY = 4, 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Types of values (gguf.h enum gguf_type), in the letters of `struct`."""
_LEAST_KEY_BYTES = 8 + 1 + 4 + 1
_LEAST_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8
_KEPT_OF_TOKENIZER = frozenset(("tokenizer.ggml.model", "tokenizer.ggml.pre"))


class GgufTensorInfo(NamedTuple):
    """One tensor of a GGUF file.

    Args:
        name: as in the file, not made safe to show.
        shape: columns first (ne0, ne1 ...), at least one; 1 for a tensor without dimensions [elements].
        dtype: canonical name in kvtax.dtypes.
        offset: from the beginning of the data of its file [bytes].
        bytes: ne0 / block x bytes of a block x ne1 x ne2 x ne3 [bytes].
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int
    bytes: int


class GgufFile(NamedTuple):
    """The header of a GGUF file, or of all shards of a model together.

    Args:
        version: 2 or 3.
        keys: numbers, texts and arrays of up to 4,096 entries (as tuples); of the tokenizer its numbers and its kind alone.
            Floats may be infinite or NaN, texts are not made safe to show.
        lengths: of every array, also of those that are not kept [entries].
        tensors: in the order of the file.
        alignment: each tensor begins at a multiple of it [bytes].
        data_offset: where the data begins [bytes].
        file_bytes: length of the file (of all shards), None where it is not known [bytes].
        shards: the files that this was joined from, empty for a file of its own.
    """

    version: int
    keys: dict[str, Any]
    lengths: dict[str, int]
    tensors: tuple[GgufTensorInfo, ...]
    alignment: int = DEFAULT_ALIGNMENT
    data_offset: int = 0
    file_bytes: int | None = None
    shards: tuple[GgufFile, ...] = ()

    @property
    def tensor_bytes(self) -> int:
        """Sum of the tensors, without what lies between them [bytes]."""
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def data_bytes(self) -> int:
        """Sum of ceil(tensor / alignment) x alignment: the data section of the file, or of all shards [bytes]."""
        if self.shards:
            return sum(shard.data_bytes for shard in self.shards)
        return sum(_padded(tensor.bytes, self.alignment) for tensor in self.tensors)


def is_gguf(first_bytes: bytes) -> bool:
    """Whether a file that begins so is a GGUF file (of whatever version)."""
    return first_bytes[:4] == MAGIC


def is_projector(file: GgufFile) -> bool:
    """Whether a file is the vision or audio part of a model (mmproj), whose architecture is called `clip`."""
    return file.keys.get("general.architecture") == "clip"


def read_gguf(source: ByteSource, first_read_bytes: int = FIRST_READ_BYTES) -> GgufFile:
    """The header of a GGUF file; of its data nothing is read on purpose.

    Tensors must lie one behind the other in the order in which they are named, each padded to the alignment, and end within the file: so
    ggml demands it, and a file that it would not load has no budget. Bytes after the last tensor are no error there, nor here. Stricter
    than ggml: names and texts must be UTF-8, tensors have a name and at least one element, and the bounds above are tighter.

    Args:
        source: the file.
        first_read_bytes: size of the first read; each further one is twice as large, up to 16 MiB [bytes].

    Returns:
        Keys and tensors.

    Raises:
        ConfigError: no GGUF file, one that kvtax does not read (version 1, big-endian), or one that contradicts itself; a code for each.

    Source: ggml-org/llama.cpp b11434 ggml/src/gguf.cpp gguf_init_from_reader, src/llama-model-loader.cpp (tensors end within the file).
    """
    window = HeaderWindow(source, first_read_bytes)
    version = _version(window)
    tensor_count, key_count = window.u64(), window.u64()
    window.check_room(tensor_count, _LEAST_TENSOR_BYTES, "tensors")
    window.check_room(key_count, _LEAST_KEY_BYTES, "keys")
    if tensor_count > MAXIMUM_TENSORS:
        raise window.error(f"{tensor_count} tensors, more than {MAXIMUM_TENSORS}", "too-many-tensors")
    if key_count > MAXIMUM_KEYS:
        raise window.error(f"{key_count} keys, more than {MAXIMUM_KEYS}", "too-many-keys")
    metadata = _Metadata(window)
    for _ in range(key_count):
        metadata.read_key()
    alignment = metadata.alignment()
    tensors: list[GgufTensorInfo] = []
    names: set[str] = set()
    for _ in range(tensor_count):
        tensors.append(_tensor(window))
        if tensors[-1].name in names:
            raise window.error("two tensors have one name", "duplicate-tensor", tensors[-1].name)
        names.add(tensors[-1].name)
    data_offset = _padded(window.position, alignment) if tensors else window.position
    _check_offsets(window, tensors, alignment, data_offset)
    return GgufFile(version, metadata.keys, metadata.lengths, tuple(tensors), alignment, data_offset, window.file_bytes)


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _version(window: HeaderWindow) -> int:
    """Magic and version.

    Raises:
        ConfigError: code `not-gguf`, `big-endian-gguf` or `unsupported-gguf-version`.
    """

    def refused(problem: str, code: str, hint: str = "") -> ConfigError:
        return ConfigError(problem, code=code, where=window.source.name, hint=hint)

    (magic,) = window.unpack(struct.Struct("4s"))
    if magic != MAGIC:
        hint = "it is a pointer of Git LFS: fetch the file itself" if magic == b"vers" else ""
        raise refused("is not a GGUF file: it does not begin with GGUF", "not-gguf", hint)
    version = window.u32()
    if version and not version & 0xFFFF:
        raise refused(
            "is a GGUF file for big-endian machines, which kvtax does not read", "big-endian-gguf", "convert it"
        )
    if version not in (2, 3):
        hint = "no engine reads version 1 any more: convert the model again" if version == 1 else ""
        raise refused(f"is GGUF of version {version}; kvtax reads 2 and 3", "unsupported-gguf-version", hint)
    return version


class _Metadata:
    """Keys and values, as far as they are kept."""

    def __init__(self, window: HeaderWindow) -> None:
        self.window = window
        self.keys: dict[str, Any] = {}
        self.lengths: dict[str, int] = {}
        self._names: set[str] = set()
        self._alignment_type = _U32
        self._kept_bytes = self._numbers = 0
        self._texts = 0

    def read_key(self) -> None:
        """The next key and its value.

        Raises:
            ConfigError: a name that cannot be or stands twice, or a value of no known type.
        """
        window = self.window
        length = window.u64()
        if not 0 < length <= MAXIMUM_KEY_BYTES:
            raise window.error(f"the name of a key cannot have {length} bytes", "invalid-key")
        key = window.text(length)
        if key in self._names:
            raise window.error("a key stands twice", "duplicate-key", key)
        self._names.add(key)
        self._keep(length, key)
        kind = window.u32()
        if key == "general.alignment":
            self._alignment_type = kind
        if kind in _NUMBERS:
            self.keys[key] = window.unpack(struct.Struct("<" + _NUMBERS[kind]))[0]
        elif kind == _TEXT:
            self._text_value(key)
        elif kind == _ARRAY:
            self._array(key)
        else:
            raise window.error(f"a value has type {kind}, which is none of GGUF", "unknown-value-type", key)

    def alignment(self) -> int:
        """`general.alignment`, 32 where there is none.

        Raises:
            ConfigError: code `invalid-alignment`: no uint32, no power of two, or more than 1 MiB.
        """
        value = self.keys.get("general.alignment", DEFAULT_ALIGNMENT)
        if self._alignment_type != _U32 or not 0 < value <= MAXIMUM_ALIGNMENT or value & (value - 1):
            message = f"must be a power of two up to {MAXIMUM_ALIGNMENT}, as a uint32"
            raise self.window.error(message, "invalid-alignment", "general.alignment")
        return int(value)

    def _text_value(self, key: str) -> None:
        """A text; those of the tokenizer (chat templates) and overlong ones are passed over."""
        length = self.window.u64()
        long = length > MAXIMUM_TEXT_BYTES
        if long and key.startswith("general."):
            raise self.window.error(f"a text of {length} bytes, more than 1 MiB", "text-too-long", key)
        if long or (key.startswith("tokenizer.") and (key not in _KEPT_OF_TOKENIZER or length > MAXIMUM_NAME_BYTES)):
            self.window.skip(length, key)
        else:
            self.keys[key] = self._text(length, key)

    def _text(self, length: int, key: str) -> str:
        self._keep(length, key)
        return self.window.text(length, key)

    def _keep(self, length: int, key: str) -> None:
        self._kept_bytes += length
        if self._kept_bytes > MAXIMUM_KEPT_BYTES:
            raise self.window.error("the texts of the header take more than 16 MiB", "text-too-long", key)

    def _array(self, key: str) -> None:
        """An array: kept where it is short and none of the tokenizer's, else passed over.

        Raises:
            ConfigError: code `nested-array`, `unknown-value-type`, `array-too-long` or `count-beyond-file`.
        """
        window = self.window
        kind, count = window.u32(), window.u64()
        kept = count <= MAXIMUM_KEPT_ENTRIES and not key.startswith("tokenizer.")
        self.lengths[key] = count
        if kind == _TEXT:
            window.check_room(count, 8, "texts", key)
            self._texts += count
            if self._texts > MAXIMUM_TEXTS:
                raise window.error(f"more than {MAXIMUM_TEXTS} texts in arrays", "array-too-long", key)
            if kept:
                self.keys[key] = tuple(self._entry(key) for _ in range(count))
            else:
                window.skip_texts(count, key)
        elif kind in _NUMBERS:
            layout = struct.Struct(f"<{count if kept else 1}{_NUMBERS[kind]}")
            window.check_room(count, struct.calcsize("<" + _NUMBERS[kind]), "numbers", key)
            if kept:
                self._numbers += count
                if self._numbers > MAXIMUM_NUMBERS:
                    raise window.error(f"more than {MAXIMUM_NUMBERS:,} numbers in arrays", "array-too-long", key)
                self.keys[key] = window.unpack(layout)
            else:
                window.skip(count * layout.size, key)
        elif kind == _ARRAY:
            raise window.error("an array of arrays, which GGUF files do not have", "nested-array", key)
        else:
            raise window.error(f"an array of type {kind}, which is none of GGUF", "unknown-value-type", key)

    def _entry(self, key: str) -> str:
        length = self.window.u64()
        if length > MAXIMUM_TEXT_BYTES:
            raise self.window.error(f"a text of {length} bytes, more than 1 MiB", "text-too-long", key)
        return self._text(length, key)


def _tensor(window: HeaderWindow) -> GgufTensorInfo:
    """The next tensor: name, dimensions, format, offset.

    Raises:
        ConfigError: code `invalid-tensor-name`, `too-many-dimensions`, `invalid-shape` or `unknown-dtype`.
    """
    length = window.u64()
    if not 0 < length <= MAXIMUM_NAME_BYTES:
        raise window.error(f"the name of a tensor cannot have {length} bytes", "invalid-tensor-name")
    name = window.text(length)
    dimensions = window.u32()
    if dimensions > MAXIMUM_DIMENSIONS:
        raise window.error(f"a tensor of {dimensions} dimensions, more than 4", "too-many-dimensions", name)
    shape = window.unpack(struct.Struct(f"<{dimensions}Q")) or (1,)
    type_id, offset = window.unpack(struct.Struct("<IQ"))
    dtype = DTYPES.get(DTYPE_OF_TYPE.get(type_id, ""))
    if dtype is None:
        removed = ", which ggml has removed" if type_id in REMOVED_TYPES else ""
        raise window.error(f"a tensor of type {type_id}{removed}: no format that kvtax knows", "unknown-dtype", name)
    elements = prod(shape)
    if not 0 < elements < 2**63:
        raise window.error(f"a tensor cannot have {safe(str(elements), 40)} elements", "invalid-shape", name)
    block = ROW_BLOCK.get(dtype.name) or dtype.block or 1
    if shape[0] % block:
        raise window.error(f"rows of {shape[0]} elements in blocks of {block} ({dtype.name})", "invalid-shape", name)
    return GgufTensorInfo(name, shape, dtype.name, offset, dtype.bytes(shape[0]) * (elements // shape[0]))


def _check_offsets(window: HeaderWindow, tensors: list[GgufTensorInfo], alignment: int, data_offset: int) -> None:
    """Each tensor begins where the one before it ends, padded to the alignment, and ends within the file.

    Raises:
        ConfigError: code `tensor-misaligned`, `tensor-overlap`, `tensor-gap` or `tensor-outside-file`.
    """
    expected, end = 0, window.file_bytes
    for tensor in tensors:
        if end is not None and data_offset + tensor.offset + tensor.bytes > end:
            message = f"a tensor goes beyond the end of the file ({end} bytes)"
            raise window.error(message, "tensor-outside-file", tensor.name, hint="is the file whole?")
        if tensor.offset % alignment:
            raise window.error(
                f"a tensor at {tensor.offset}, no multiple of {alignment}", "tensor-misaligned", tensor.name
            )
        if tensor.offset < expected:
            raise window.error("a tensor begins within the one before it", "tensor-overlap", tensor.name)
        if tensor.offset > expected:
            raise window.error("there is a hole before a tensor", "tensor-gap", tensor.name)
        expected += _padded(tensor.bytes, alignment)
