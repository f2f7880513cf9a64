"""The header of a safetensors file: names, dtypes, shapes and bytes of its tensors, read without the tensors.

Source: safetensors 0.8.0, README.md (Format) and src/tensor.rs (what its reader refuses).
"""

from __future__ import annotations

import json
import re
from array import array
from math import prod
from typing import Any, NamedTuple

from kvtax.dtypes import DTYPES
from kvtax.errors import ConfigError
from kvtax.safe_text import safe
from kvtax.sources.byte_source import ByteSource
from kvtax.sources.json_scan import MAXIMUM_NAME_CHARACTERS, JsonScanner, check_utf8, shown, string_of
from kvtax.terms import Notice

FIRST_READ_BYTES = 100_000
"""What is read at once: most headers fit, so that most files take one request."""
MAXIMUM_HEADER_BYTES = 100_000_000
"""The format's own limit (safetensors 0.8.0 src/tensor.rs MAX_HEADER_SIZE)."""
REMOTE_HEADER_BYTES = 25_000_000
"""What is fetched at most from a server (huggingface_hub 2.4.0 constants.py SAFETENSORS_MAX_HEADER_LENGTH)."""
MAXIMUM_TENSORS = 1_000_000
MAXIMUM_DIMENSION = 2**48
KEPT_METADATA = frozenset(("format", "base_model", "base_model_name_or_path", "modelspec.architecture"))
MAXIMUM_METADATA_CHARACTERS = 1_024
MAXIMUM_METADATA_PAIRS = 100_000
UNKNOWN_PREFIX = "unknown:"

_LENGTH_BYTES = 8
_MAXIMUM_OFFSET = 2**63
_MAXIMUM_KINDS = 8_192
_BITS = {dtype.safetensors: (dtype.name, dtype.bits) for dtype in DTYPES.values() if dtype.safetensors}
_ENTRY = re.compile(
    rb'[S]*"([^"\\\x00-\x1f]{0,4096})"[S]*:[S]*\{[S]*"dtype"[S]*:[S]*"([A-Z0-9_]{1,64})"[S]*,'
    rb'[S]*"shape"[S]*:[S]*\[([0-9,S]{0,2048})\][S]*,'
    rb'[S]*"data_offsets"[S]*:[S]*\[[S]*(0|[1-9][0-9]{0,17})[S]*,[S]*(0|[1-9][0-9]{0,17})[S]*\][S]*\}'
    rb"[S]*([,}])".replace(b"S", rb" \t\n\r")
)
"""An entry as nearly every file has it: the three keys in their usual order, a name without escapes, and what follows."""


class FileTensor(NamedTuple):
    """One tensor of a file.

    Args:
        name: as the file has it, not made safe.
        dtype: canonical name; `unknown:` and the tag in lower case where the tag is not known.
        shape: as the file has it [elements].
        bytes: what it takes in the file [bytes].
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


class Header(NamedTuple):
    """What a safetensors file says of itself.

    Args:
        tensors: in the order of the header.
        metadata: the few keys of `__metadata__` that kvtax reads, made safe to show.
        header_bytes: 8 + the length of the JSON [bytes].
        file_bytes: the whole file [bytes].
        notices: dtypes that are not known.
    """

    tensors: tuple[FileTensor, ...]
    metadata: dict[str, str]
    header_bytes: int
    file_bytes: int
    notices: tuple[Notice, ...]

    @property
    def tensor_bytes(self) -> int:
        """file_bytes - header_bytes: tensors fill the rest without holes [bytes]."""
        return self.file_bytes - self.header_bytes


def read_header(source: ByteSource, maximum_bytes: int = MAXIMUM_HEADER_BYTES) -> Header:
    """The header of a file: one read of FIRST_READ_BYTES, a second of what is missing where the header is longer.

    Args:
        source: the file.
        maximum_bytes: a longer header is refused before it is read [bytes].

    Returns:
        Its tensors, in the order of the header.

    Raises:
        ConfigError: the file is cut or no safetensors file, or says something impossible; a code for each kind of fault.
        KvtaxError: the file cannot be read.

    Source: safetensors 0.8.0 README.md (Format): 8 bytes of length n (unsigned, little endian), n bytes of JSON, tensors.
    """
    where = source.name
    head = source.read(0, FIRST_READ_BYTES)
    size = source.size
    if size is None and len(head) < FIRST_READ_BYTES:
        size = len(head)
    length = _header_length(head, size, min(maximum_bytes, MAXIMUM_HEADER_BYTES), where)
    header_bytes = _LENGTH_BYTES + length
    data = head[_LENGTH_BYTES:header_bytes]
    if len(data) < length:
        data += source.read(len(head), length - len(data))
    if len(data) < length:
        problem = f"ends in its header, at byte {_LENGTH_BYTES + len(data)} of {header_bytes}"
        raise ConfigError(problem, code="header-cut", where=where)
    check_utf8(data, where, "header-not-utf8")
    reader = _HeaderReader(data, where)
    reader.read()
    tensor_bytes = reader.check_offsets(None if size is None else size - header_bytes)
    return Header(
        tuple(reader.tensors), reader.metadata, header_bytes, header_bytes + tensor_bytes, tuple(reader.notices())
    )


def _header_length(data: bytes, size: int | None, maximum: int, where: str) -> int:
    if len(data) < _LENGTH_BYTES:
        problem = f"has {len(data)} bytes: too short for a safetensors file"
        raise ConfigError(problem, code="header-cut", where=where)
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    if length > maximum:
        problem = f"its header would have {length} bytes, more than {maximum}: no safetensors file, or a broken one"
        raise ConfigError(problem, code="header-too-large", where=where)
    if size is not None and _LENGTH_BYTES + length > size:
        problem = f"has {size} bytes, fewer than the {_LENGTH_BYTES + length} of its header: the file is cut"
        raise ConfigError(problem, code="header-cut", where=where)
    return length


class _HeaderReader:
    """Reads the entries of one header, and then looks at what their offsets say together."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data = data
        self.scan = JsonScanner(data, where, "header-not-json")
        self.tensors: list[FileTensor] = []
        self.metadata: dict[str, str] = {}
        self.begins = array("Q")
        self.ends = array("Q")
        self.names: set[str] = set()
        self.has_metadata = False
        self.in_order = True
        self.unknown = 0
        # what a tag and a shape mean, for the layers that repeat them
        self.kinds: dict[tuple[bytes, bytes], tuple[str, tuple[int, ...], int]] = {}

    def read(self) -> None:
        """Every entry of the top object.

        Raises:
            ConfigError: one of them is wrong.
        """
        scan, data, match = self.scan, self.data, _ENTRY.match
        if data[:1] != b"{":
            scan.fail("its header does not begin with {", "header-not-json")
        scan.take(b"{")
        if scan.peek() == b"}":
            scan.take(b"}")
            scan.expect_end()
            return
        more = True
        while more:
            entry = match(data, scan.position)
            if entry is None or entry[1] == b"__metadata__":
                more = self._read_unusual()
                continue
            raw_name, tag, dimensions, begin, end, following = entry.groups()
            kind = self.kinds.get((tag, dimensions))
            if kind is None:
                kind = self._new_kind(tag, dimensions)
            self._add(raw_name.decode(), kind, int(begin), int(end))
            scan.position = entry.end()
            more = following == b","
        scan.expect_end()

    def _new_kind(self, tag: bytes, dimensions: bytes) -> tuple[str, tuple[int, ...], int]:
        try:
            shape = json.loads(b"[" + dimensions + b"]")
        except ValueError:
            self.scan.fail(f"is not JSON: a shape behind byte {self.scan.position}")
        kind = self._kind(tag.decode(), shape)
        if len(self.kinds) < _MAXIMUM_KINDS:
            self.kinds[tag, dimensions] = kind
        return kind

    def _kind(self, tag: str, shape: list[Any]) -> tuple[str, tuple[int, ...], int]:
        """Canonical dtype, shape and bytes (-1 where only the offsets can say) of a tag and a shape."""
        product = 1
        for size in shape:
            if type(size) is not int or not 0 <= size <= MAXIMUM_DIMENSION:
                problem = f"a shape in the entry at byte {self.scan.position} holds something else than whole numbers"
                self.scan.fail(f"{problem} of 0 to 2^48", "invalid-shape")
            product *= size
            if product >= 2**64:
                self.scan.fail(f"the shape in the entry at byte {self.scan.position} is too large", "invalid-shape")
        dtype, bits = _BITS.get(tag, ("", 0))
        if not dtype:
            return UNKNOWN_PREFIX + safe(tag.lower(), 64), tuple(shape), -1
        if product * bits % 8:
            problem = f"the shape in the entry at byte {self.scan.position} ends inside a byte"
            self.scan.fail(f"{problem} ({prod(shape)} elements of {bits} bits)", "size-mismatch")
        return dtype, tuple(shape), product * bits // 8

    def _add(self, name: str, kind: tuple[str, tuple[int, ...], int], begin: int, end: int) -> None:
        dtype, shape, size = kind
        if size < 0 or end - begin != size:
            if begin > end:
                self.scan.fail(f"tensor {shown(name)} ends at {end}, before it begins at {begin}", "invalid-offsets")
            if size >= 0:
                problem = f"tensor {shown(name)} has {end - begin} bytes; its shape and dtype need {size}"
                self.scan.fail(problem, "size-mismatch")
            size = end - begin
            self.unknown += 1
        if len(name) > MAXIMUM_NAME_CHARACTERS:
            self.scan.fail(f"tensor {shown(name)} has more than {MAXIMUM_NAME_CHARACTERS} characters", "name-too-long")
        if begin != (self.ends[-1] if self.ends else 0):
            self.in_order = False
        self.names.add(name)
        self.tensors.append(FileTensor(name, dtype, shape, size))
        self.begins.append(begin)
        self.ends.append(end)
        if len(self.names) != len(self.tensors):
            self.scan.fail(f"tensor {shown(name)} stands twice", "duplicate-key")
        if len(self.tensors) > MAXIMUM_TENSORS:
            self.scan.fail(f"has more than {MAXIMUM_TENSORS} tensors", "too-many-tensors")

    def _read_unusual(self) -> bool:
        """An entry in any other form; whether another one follows."""
        scan = self.scan
        scan.space()
        name = scan.string()
        scan.take(b":")
        if name == "__metadata__":
            self._read_metadata()
        else:
            self._read_tensor(name)
        return scan.take(b",", b"}") == b","

    def _read_tensor(self, name: str) -> None:
        scan = self.scan
        place = scan.position
        found = scan.value()
        if not isinstance(found, dict) or not found.keys() >= {"dtype", "shape", "data_offsets"}:
            scan.fail(f"tensor {shown(name)} is no object with dtype, shape and data_offsets", "invalid-tensor")
        tag, shape, offsets = found["dtype"], found["shape"], found["data_offsets"]
        if not isinstance(tag, str):
            scan.fail(f"the dtype of tensor {shown(name)} is not a string", "invalid-tensor")
        if not isinstance(shape, list):
            scan.fail(f"the shape of tensor {shown(name)} is not a list", "invalid-shape")
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_offset, offsets)):
            problem = f"the data_offsets of tensor {shown(name)} are not two whole numbers from 0 on"
            scan.fail(problem, "invalid-offsets")
        after, scan.position = scan.position, place
        self._add(name, self._kind(tag, shape), *offsets)
        scan.position = after

    def _read_metadata(self) -> None:
        """Pairs of strings, of which few are kept; null, which the format's own reader takes for none."""
        scan = self.scan
        if self.has_metadata:
            scan.fail("__metadata__ stands twice", "duplicate-key")
        self.has_metadata = True
        if scan.data[scan.position : scan.position + 4] == b"null":
            scan.position += 4
            return
        if scan.peek() != b"{":
            scan.fail("__metadata__ is not an object", "invalid-metadata")
        scan.take(b"{")
        seen: set[bytes] = set()
        more = scan.peek() != b"}"
        if not more:
            scan.take(b"}")
        while more:
            start, end = scan.skip_string()
            key = string_of(scan.data[start:end]).encode()
            scan.take(b":")
            if scan.peek() != b'"':
                problem = f"the value of {shown(key.decode())} in __metadata__ is not a string"
                scan.fail(problem, "invalid-metadata")
            start, end = scan.skip_string()
            if key in seen:
                scan.fail(f"{shown(key.decode())} stands twice in __metadata__", "duplicate-key")
            seen.add(key)
            if len(seen) > MAXIMUM_METADATA_PAIRS:
                scan.fail(f"__metadata__ has more than {MAXIMUM_METADATA_PAIRS} keys", "metadata-too-large")
            self._keep(key, start, end)
            more = scan.take(b",", b"}") == b","

    def _keep(self, key: bytes, start: int, end: int) -> None:
        name = key.decode()
        if name in KEPT_METADATA and end - start <= 12 * MAXIMUM_METADATA_CHARACTERS:
            value = string_of(self.data[start:end])
            if len(value) <= MAXIMUM_METADATA_CHARACTERS:
                self.metadata[name] = safe(value, MAXIMUM_METADATA_CHARACTERS)

    def check_offsets(self, tensor_bytes: int | None) -> int:
        """Whether tensors fill what follows the header, one behind the other; its length [bytes].

        Raises:
            ConfigError: they overlap, leave holes, or end elsewhere than the file.
        """
        begins, ends, fail = self.begins, self.ends, self.scan.fail
        last = max(ends, default=0)
        if tensor_bytes is not None and last > tensor_bytes:
            name = shown(self.tensors[ends.index(last)].name)
            problem = (
                f"tensor {name} ends {last - tensor_bytes} bytes behind the end of the file: cut, or not all there"
            )
            fail(problem, "tensor-outside-file")
        if not self.in_order:
            order = sorted(range(len(ends)), key=ends.__getitem__)
            order.sort(key=begins.__getitem__)
            expected = 0
            for each in order:
                if begins[each] != expected:
                    self._refuse_place(each, expected)
                expected = ends[each]
        if tensor_bytes is not None and last < tensor_bytes:
            fail(f"{tensor_bytes - last} bytes at the end of the file belong to no tensor", "trailing-bytes")
        return last

    def _refuse_place(self, index: int, expected: int) -> None:
        name, begin = shown(self.tensors[index].name), self.begins[index]
        if begin < expected:
            self.scan.fail(f"tensor {name} begins at {begin}, inside another that ends at {expected}", "tensor-overlap")
        self.scan.fail(f"a hole of {begin - expected} bytes before tensor {name}", "tensor-hole")

    def notices(self) -> list[Notice]:
        """One notice for dtypes that are not known."""
        if not self.unknown:
            return []
        first = next(tensor for tensor in self.tensors if tensor.dtype.startswith(UNKNOWN_PREFIX))
        tag = first.dtype.removeprefix(UNKNOWN_PREFIX)
        message = f"{self.scan.where}: {self.unknown} tensors have a dtype that kvtax does not know (first: {tag} of {shown(first.name)})"
        return [Notice("unknown-dtype", message, "their bytes are taken from their offsets")]


def _is_offset(value: object) -> bool:
    return type(value) is int and 0 <= value < _MAXIMUM_OFFSET
