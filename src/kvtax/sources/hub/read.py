"""A model from the hub: what is on this disk first, then as few requests as tell what it is.

config.json, the index, one range a shard; a listing only where these are not there; never a weight.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from kvtax.errors import ConfigError, InputError, UnknownNameError
from kvtax.safe_text import safe
from kvtax.sources.byte_source import ByteSource, LocalFile
from kvtax.sources.folder import Contents, sort_files
from kvtax.sources.folder_model import add_tensors, described, with_headers
from kvtax.sources.found import Found, looks_quantized, with_old_quantization
from kvtax.sources.gguf import GgufFile, read_gguf
from kvtax.sources.gguf_folder import pick
from kvtax.sources.gguf_model import REMOTE_FIRST_READ_BYTES
from kvtax.sources.gguf_split import join
from kvtax.sources.hub import answers, failures, settings
from kvtax.sources.hub.answers import Answer
from kvtax.sources.hub.client import Client, in_parallel
from kvtax.sources.hub.names import HubName
from kvtax.sources.hub.repository import Repository
from kvtax.sources.hub.snapshot import find_snapshot
from kvtax.sources.safe_json import MAXIMUM_CONFIG_BYTES, parse_json
from kvtax.sources.safetensors import REMOTE_HEADER_BYTES, Header, read_header
from kvtax.sources.safetensors_index import MAXIMUM_INDEX_BYTES, Index, read_index
from kvtax.sources.waiting import waiting
from kvtax.terms import Notice
from kvtax.units import format_bytes

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
BASE_SECONDS, SECONDS_A_FILE, MOST_SECONDS = 60.0, 1.0, 240.0
"""What all requests for headers together may take: enough for 200 shards on a slow line [s]."""
MOST_SHARDS = 256
_QUANT_FILES = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")


def read_hub(name: HubName) -> Found:
    """What the hub, or this disk for it, says of a model.

    Args:
        name: repository, revision, and the GGUF quantisation that is meant.

    Raises:
        SourceError: it cannot be had; the code and the sentence say why.
        KvtaxError: it can, and is wrong.
    """
    snapshot = find_snapshot(name)
    if snapshot is not None:
        from kvtax.sources.folder_model import read_folder

        place = f"hub cache on this disk, {safe(name.repository)} at commit {snapshot.commit[:12]}"
        try:
            found = read_folder(snapshot.folder, name.variant, model=safe(str(name)), place=place)
            return found._replace(commit=snapshot.commit)
        except UnknownNameError:  # another quantisation than those that were fetched: the hub may have it
            if settings.is_offline():
                raise
    endpoint = settings.endpoint()
    kept = answers.load(endpoint, name)
    if kept is not None and (name.is_pinned or settings.is_offline()):
        return kept.found
    if settings.is_offline():
        raise failures.offline(safe(str(name)))
    with waiting(f"reading {safe(str(name))} from {settings.host_of(endpoint) or 'the hub'}"):
        client = Client(endpoint)
        found = _fresh(Repository(client, name), kept, endpoint)
    return found._replace(notices=(*found.notices, *_about_token(client)))


def _about_token(client: Client) -> list[Notice]:
    """Where the token went, or that it was kept back, where the hub is not the public one."""
    host = safe(settings.host_of(client.endpoint), 96)
    if client.token_withheld:
        return [Notice("token-withheld", f"no token was sent to {host}: plain http to another machine", "use https")]
    if client.has_token and client.endpoint != settings.PUBLIC_ENDPOINT:
        return [Notice("token-sent", f"your token was sent to {host}, which HF_ENDPOINT names")]
    return []


def _fresh(repository: Repository, kept: Answer | None, endpoint: str) -> Found:
    """The kept answer where the revision has not moved: that takes one request; else what is there now."""
    data = repository.read_whole("config.json", MAXIMUM_CONFIG_BYTES)
    if kept is not None and repository.pin and kept.pin == repository.pin:
        return kept.found
    name = repository.hub_name
    at = repository.commit[:12] or "an unnamed commit"
    found = Found(safe(str(name)), f"hub, {safe(name.repository)} at commit {at}")
    if data is not None and not name.variant:
        found = found._replace(**_parsed(repository, data))
    listed = bool(name.variant) or data is None
    found = _from_listing(repository, found) if listed else _checkpoint(repository, found)
    found = found._replace(commit=repository.commit)
    if repository.pin:
        answers.save(endpoint, name, Answer(repository.pin, found))
    return found


def _parsed(repository: Repository, data: bytes) -> dict[str, Any]:
    config, notices = parse_json(data, f"{repository.title}: config.json")
    return {"config": config, "notices": tuple(notices)}


def _checkpoint(repository: Repository, found: Found) -> Found:
    """Index and headers, or one header; a listing where neither is there."""
    data = repository.read_whole(INDEX, MAXIMUM_INDEX_BYTES)
    if data is not None:
        index = read_index(data, f"{repository.title}: {INDEX}")
        headers = _headers(repository, index.files)
        return _with_quantization(repository, with_headers(found, headers, index))
    source = repository.open(SINGLE)
    try:
        header = read_header(source, REMOTE_HEADER_BYTES)
    except ConfigError:
        if source.found:
            raise
        return _from_listing(repository, found)
    return _with_quantization(repository, with_headers(found, {SINGLE: header}, None))


def _headers(repository: Repository, files: tuple[str, ...]) -> dict[str, Header]:
    """The header of each shard, eight at once."""
    count = 0

    def reading(file: str) -> Header:
        nonlocal count
        source = repository.open(file)
        try:
            header = read_header(source, REMOTE_HEADER_BYTES)
            count = add_tensors(count, header, repository.title)
            return header
        except ConfigError:
            if source.found:
                raise
            message = f"the index names {safe(file, 96)}, which is not in the repository"
            raise ConfigError(message, code="missing-shard", where=repository.title) from None

    seconds = _seconds(len(files))
    late = failures.timed_out(repository.title, repository.client.endpoint, seconds)
    headers = in_parallel([partial(reading, file) for file in files], seconds, lambda: late)
    return dict(zip(files, headers, strict=True))


def _seconds(files: int) -> float:
    """What all requests for so many headers together may take: a minute, a second more for each, five minutes at most [s]."""
    return max(BASE_SECONDS, settings.request_seconds()) + min(SECONDS_A_FILE * files, MOST_SECONDS)


def _with_quantization(repository: Repository, found: Found) -> Found:
    """With the quantisation's own file, where names in the headers are those of a quantised checkpoint and the config says nothing of it."""
    config = found.config
    if config is None or config.get("quantization_config") or not looks_quantized(found.tensors or ()):
        return found
    read: dict[str, dict[str, Any]] = {}
    for file in _QUANT_FILES:
        data = repository.read_whole(file, MAXIMUM_CONFIG_BYTES)
        if data is not None:
            read[file], _ = parse_json(data, f"{repository.title}: {file}")
            break
    return found._replace(
        config=with_old_quantization(config, read.get("quantize_config.json"), read.get("quant_config.json")),
        quant_config=read.get("hf_quant_config.json"),
    )


# ---- repositories that are not a config with safetensors ----


def _from_listing(repository: Repository, found: Found) -> Found:
    """What the list of files offers: a GGUF quantisation, shards under other names, or weights by their sizes alone."""
    files = repository.list_files()
    contents = sort_files(files)
    name = repository.hub_name
    if name.variant:
        return _gguf(repository, found, contents, files)
    if found.config is None:
        if contents.gguf.choices:
            return _gguf(repository, found, contents, files)
        raise ConfigError(
            f"the repository holds no config.json: it is {contents.what}",
            code="no-config",
            where=repository.title,
            hint="name the model that it belongs to" if contents.kind == "adapter" else "",
        )
    found = found._replace(runner="pooling" if contents.sentence_transformers else None)
    if contents.format == "safetensors" and contents.weights and not contents.missing:
        index: Index | None = None
        return _with_quantization(repository, with_headers(found, _headers(repository, contents.weights), index))
    if contents.bytes is None:
        return found
    message = f"weights are {safe(contents.format, 32)} files, which are never opened: {format_bytes(contents.bytes)} by their sizes"
    notice = Notice("weights-by-size", message + "; the config counts them")
    return found._replace(sized_bytes=contents.bytes, notices=(*found.notices, notice))


def _gguf(repository: Repository, found: Found, contents: Contents, files: Mapping[str, int | None]) -> Found:
    """The header of the quantisation that is named, or of the only one."""
    choices, name = contents.gguf.choices, repository.hub_name
    if not choices:
        raise InputError(
            f"holds no GGUF file, so {safe(name.variant, 64)!r} names nothing", code="no-gguf", where=repository.title,
            hint=f"leave it out: {safe(name.repository)}",
        )  # fmt: skip
    if not name.variant and len(choices) > 1:
        raise InputError(
            f"holds {len(choices)} quantisations: " + ", ".join(described(choices)),
            code="ambiguous-quantization",
            hint=f"name one: {safe(name.repository)}:{choices[min(len(choices) - 1, 2)].label}; "
            f"kvtax gguf {safe(name.repository)} -g CARD says which fit",
            where=repository.title,
        )
    choice = pick(choices, name.variant or choices[0].label)
    if len(choice.files) > MOST_SHARDS:
        raise ConfigError(f"more than {MOST_SHARDS} shards", code="too-many-shards", where=repository.title)
    seconds = _seconds(len(choice.files))
    late = failures.timed_out(repository.title, repository.client.endpoint, seconds)
    tasks = [partial(_gguf_header, repository, name) for name in choice.files]
    file = join(in_parallel(tasks, seconds, lambda: late), choice.files[0])
    words = f"header of {choice.files[0]}" if len(choice.files) == 1 else f"headers of {len(choice.files)} GGUF shards"
    found = found._replace(gguf=file, label=choice.label, weights=safe(words))
    if contents.gguf.projectors:
        notice = Notice(
            "mmproj-in-repository", f"the repository has a projector ({safe(contents.gguf.projectors[0], 96)}), which is not counted",
            f"to count it: --mmproj-bytes {files.get(contents.gguf.projectors[0]) or 'SIZE'}",
        )  # fmt: skip
        found = found._replace(notices=(*found.notices, notice))
    return found


def _gguf_header(repository: Repository, name: str) -> GgufFile:
    return read_gguf(repository.open(name), REMOTE_FIRST_READ_BYTES)


class Listing(NamedTuple):
    """What a repository offers.

    Args:
        files: names and sizes [bytes].
        place: where they lie, in words.
        open: one of them, to be read by range.
        folder: on this disk, '' where they are on the hub.
        parameters: of the GGUF files, where the hub says so.
    """

    files: dict[str, int | None]
    place: str
    open: Callable[[str], ByteSource]
    folder: str = ""
    parameters: int | None = None


def list_choices(name: HubName) -> Listing:
    """What a repository offers, by names and sizes: one request, or none offline.

    Raises:
        KvtaxError: it cannot be had.
    """
    shown = safe(name.repository)
    if settings.is_offline():
        snapshot = find_snapshot(name)
        if snapshot is None:
            raise failures.offline(safe(str(name)))
        from kvtax.sources.folder import list_files

        folder = snapshot.folder
        place = f"hub cache on this disk, {shown} at commit {snapshot.commit[:12]}"
        return Listing(list_files(folder)[0], place, lambda file: LocalFile(os.path.join(folder, file)), folder)
    with waiting(f"listing {shown}"):
        repository = Repository(Client(settings.endpoint()), name)
        files = repository.list_files()
    place = f"hub, {shown} at commit {repository.commit[:12] or 'an unnamed commit'}"
    return Listing(files, place, repository.open, parameters=repository.gguf_parameters)
