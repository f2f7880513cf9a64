"""The index of a model in several safetensors files: which tensor lies in which shard, and whether the shards agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kvtax.errors import ConfigError
from kvtax.sources.json_scan import JsonScanner, check_utf8, shown
from kvtax.sources.safetensors import Header
from kvtax.terms import Notice

MAXIMUM_INDEX_BYTES = 64 * 2**20
MAXIMUM_SHARDS = 4_096
MAXIMUM_NAMES = 2_000_000
MAXIMUM_FILE_NAME_CHARACTERS = 255
_MAXIMUM_OTHER_BYTES = 65_536
_ENDING = ".safetensors"


class Index(NamedTuple):
    """What a model.safetensors.index.json says.

    Args:
        files: base names of the shards, sorted.
        weight_map: tensor -> shard.
        total_bytes: its own sum (`metadata.total_size`), None where it says none [bytes].
    """

    files: tuple[str, ...]
    weight_map: dict[str, str]
    total_bytes: int | None


def read_index(data: bytes, where: str) -> Index:
    """The index of a model, read entry by entry.

    Args:
        data: the bytes of the file.
        where: its name, for messages.

    Returns:
        The shards, which are plain names in the index's own folder, and what lies in each.

    Raises:
        ConfigError: too large, not UTF-8, not JSON, a key twice, no weight_map, a shard that is no plain name.

    Source: huggingface_hub 2.4.0 hf_api.py get_safetensors_metadata (weight_map: tensor -> file in the repository; metadata.total_size).
    """
    if len(data) > MAXIMUM_INDEX_BYTES:
        problem = f"more than {MAXIMUM_INDEX_BYTES // 2**20} MiB: too large for an index"
        raise ConfigError(problem, code="file-too-large", where=where)
    check_utf8(data, where, "invalid-json")
    scan = JsonScanner(data.removeprefix(b"\xef\xbb\xbf"), where, "invalid-json")
    weight_map: dict[str, str] | None = None
    total: int | None = None
    seen: set[str] = set()
    for key in _keys(scan):
        if key in seen:
            scan.fail(f"{shown(key)} stands twice", "duplicate-key")
        seen.add(key)
        if key == "weight_map":
            weight_map = _read_weight_map(scan)
            continue
        value = scan.value(_MAXIMUM_OTHER_BYTES)
        if key == "metadata":
            total = _total_bytes(value)
    scan.expect_end()
    if weight_map is None:
        scan.fail("has no weight_map", "invalid-index")
    return Index(tuple(sorted(set(weight_map.values()))), weight_map, total)


def _keys(scan: JsonScanner) -> Iterable[str]:
    """The keys of an object; whoever asks for the next one has gone past the value."""
    scan.take(b"{")
    if scan.peek() == b"}":
        scan.take(b"}")
        return
    more = True
    while more:
        key = scan.string()
        scan.take(b":")
        yield key
        more = scan.take(b",", b"}") == b","


def _read_weight_map(scan: JsonScanner) -> dict[str, str]:
    found: dict[str, str] = {}
    files: dict[str, str] = {}
    if scan.peek() != b"{":
        scan.fail("weight_map is not an object", "invalid-index")
    for name in _keys(scan):
        if scan.peek() != b'"':
            scan.fail(f"the shard of {shown(name)} is not a string", "invalid-index")
        file = scan.string()
        if file not in files:
            _check_file_name(scan, file)
            if len(files) == MAXIMUM_SHARDS:
                scan.fail(f"names more than {MAXIMUM_SHARDS} shards", "too-many-shards")
        if name in found:
            scan.fail(f"{shown(name)} stands twice", "duplicate-key")
        found[name] = files.setdefault(file, file)
        if len(found) > MAXIMUM_NAMES:
            scan.fail(f"has more than {MAXIMUM_NAMES} tensors", "too-many-tensors")
    return found


def _check_file_name(scan: JsonScanner, name: str) -> None:
    plain = name.isprintable() and len(name) <= MAXIMUM_FILE_NAME_CHARACTERS and len(name.encode()) <= 4 * 255
    if not plain or not name.endswith(_ENDING) or name == _ENDING or ".." in name or "/" in name or "\\" in name:
        problem = f"the shard {shown(name)} is not a plain name of a {_ENDING} file beside the index"
        scan.fail(problem, "invalid-shard-name")


def _total_bytes(metadata: object) -> int | None:
    """metadata.total_size where it is a whole number (some writers give it as 4096.0); what is none says nothing."""
    value = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**63 else None


def compare(index: Index, headers: Mapping[str, Header]) -> list[Notice]:
    """Where an index and the headers of its shards disagree: one notice for each kind, with a count and the first example.

    Args:
        index: of the model.
        headers: shard -> header.

    Returns:
        Notices `index-names-missing`, `index-names-extra`, `index-names-elsewhere`, `index-total-size`; none where all agree.

    Raises:
        ConfigError: code `index-mismatch`: not one tensor of the index is in the headers, or the other way round.
    """
    stored: set[str] = set()
    extra: list[str] = []
    elsewhere: list[str] = []
    matching = False
    for file, header in headers.items():
        for tensor in header.tensors:
            expected = index.weight_map.get(tensor.name)
            stored.add(tensor.name)
            if expected is None:
                extra.append(tensor.name)
            else:
                matching = True
                if expected != file:
                    elsewhere.append(tensor.name)
    if not matching and (index.weight_map or stored):
        problem = f"not one of its {len(index.weight_map)} tensors is in the {len(headers)} files: they belong to another model"
        raise ConfigError(problem, code="index-mismatch", where="model.safetensors.index.json")
    missing = [name for name in index.weight_map if name not in stored]
    notices = [
        *_names_notice("index-names-missing", missing, "tensors of the index are in no file"),
        *_names_notice("index-names-extra", extra, "tensors of the files are not in the index"),
        *_names_notice("index-names-elsewhere", elsewhere, "tensors lie in another file than the index says"),
    ]
    total = sum(header.tensor_bytes for header in headers.values())
    if index.total_bytes is not None and index.total_bytes != total:
        message = f"the index says {index.total_bytes} bytes of tensors, the files have {total}"
        notices.append(Notice("index-total-size", message, "the files' own figure is used"))
    return notices


def _names_notice(code: str, names: list[str], problem: str) -> list[Notice]:
    if not names:
        return []
    return [Notice(code, f"{len(names)} {problem} (first: {shown(names[0])})")]
