"""The GGUF quantisations that a name offers: of a repository on the hub, a folder, a file's folder, or LM Studio's."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kvtax.errors import ConfigError, InputError, KvtaxError
from kvtax.safe_text import safe
from kvtax.sources.byte_source import ByteSource, LocalFile
from kvtax.sources.folder import list_files, sort_files
from kvtax.sources.folder_model import read_gguf_files
from kvtax.sources.found import Found
from kvtax.sources.found_model import model_of
from kvtax.sources.gguf_folder import GgufChoice, GgufFiles, pick, sort_gguf
from kvtax.sources.gguf_model import REMOTE_FIRST_READ_BYTES, read_shards
from kvtax.sources.local import GGUF, looks_like_path, split_variant
from kvtax.sources.models import hub_id_of
from kvtax.sources.places import STORES
from kvtax.sources.resolve import Model
from kvtax.sources.waiting import waiting


class GgufListing(NamedTuple):
    """What is offered; names of files are not safe to show.

    Args:
        id: what it is called; safe to show.
        place: where it lies, in words.
        files: sorted by what they are.
        sizes: of every file [bytes].
        open: one of them, to be read by range.
        folder: on this disk, '' on the hub.
        parameters: where the hub says so.
    """

    id: str
    place: str
    files: GgufFiles
    sizes: Mapping[str, int | None]
    open: Callable[[str], ByteSource]
    folder: str = ""
    parameters: int | None = None


def list_gguf(name: str) -> GgufListing:
    """What a name offers; with a quantisation in the name, that one alone.

    Args:
        name: `org/name-GGUF[@revision]`, a folder, a .gguf file, or `lmstudio:publisher/repository`.

    Raises:
        KvtaxError: it cannot be had (`no-gguf`: it holds no GGUF model).
    """
    lower = name.lower()
    path, variant = split_variant(os.path.expanduser(name))
    if lower.startswith(STORES):
        found, variant = _store(name)
    elif lower.endswith(GGUF) and looks_like_path(name):
        LocalFile(path)
        folder, variant = os.path.split(path)
        found = _folder(name, folder or ".", f"file {safe(path)}")
        if len(found.files.choices) > 1:  # whose projector it is, nobody says
            found = found._replace(files=found.files._replace(projectors=()))
    elif os.path.isdir(path):
        found = _folder(name, path, f"folder {safe(path)}")
    elif looks_like_path(name):
        raise ConfigError("is neither a folder nor a .gguf file", code="no-gguf", where=safe(name))
    else:
        found, variant = _hub(name)
    if not found.files.choices:
        contents = sort_files(found.sizes)
        of_this = f"kvtax budget -m {safe(name, 96)} --engine llama.cpp -q q4_k_m sizes the conversion that nobody has made yet"
        hint = (
            of_this
            if contents.kind in ("model", "config")
            else "pass the folder or the repository that holds .gguf files"
        )
        raise ConfigError(f"holds no GGUF file: it is {contents.what}", code="no-gguf", where=found.id, hint=hint)
    if variant:
        found = found._replace(files=found.files._replace(choices=(pick(found.files.choices, variant),)))
    return found


def _store(name: str) -> tuple[GgufListing, str]:
    if name.lower().startswith("ollama:"):
        raise InputError(
            "Ollama keeps one quantisation under a name", code="one-quantization", where=safe(name, 96),
            hint=f"kvtax budget {safe(name, 96)} --engine ollama sizes it",
        )  # fmt: skip
    from kvtax.sources.lm_studio import find_lm_studio_folder

    folder, shown, variant = find_lm_studio_folder(name.partition(":")[2])
    return _folder(f"lmstudio:{shown}", folder, f"LM Studio's folder, {shown}"), variant


def _folder(name: str, folder: str, place: str) -> GgufListing:
    files, _ = list_files(folder)
    return GgufListing(
        safe(name), place, sort_gguf(files), files, lambda file: LocalFile(os.path.join(folder, file)), folder
    )


def _hub(name: str) -> tuple[GgufListing, str]:
    from kvtax.sources.hub.names import parse_hub_name
    from kvtax.sources.hub.read import list_choices

    target = hub_id_of(name)
    if not target:
        raise InputError(
            f"{safe(name, 96)!r} is no repository, folder or file with GGUF models", code="invalid-model-name",
            hint="write org/name-GGUF, a path such as ./models, or lmstudio:publisher/repository",
        )  # fmt: skip
    hub_name = parse_hub_name(target)
    listing = list_choices(hub_name)
    whole = safe(str(hub_name._replace(variant="")))
    found = GgufListing(
        whole, listing.place, sort_gguf(listing.files), listing.files, listing.open, listing.folder, listing.parameters
    )
    return found, hub_name.variant


def read_choice(listing: GgufListing, choice: GgufChoice) -> Model:
    """The model of one quantisation, by the headers of its files; on this disk with the projector beside it, as everywhere.

    Raises:
        KvtaxError: they cannot be had, or are wrong.
    """
    found = Found(f"{listing.id}:{choice.label}", listing.place)
    if not choice.complete:
        pick((choice,), choice.files[0])
    if listing.folder:
        paths = [os.path.join(listing.folder, file) for file in choice.files]
        projector = next(iter(listing.files.projectors), "")
        path = os.path.join(listing.folder, projector) if projector else ""
        return model_of(read_gguf_files(found, paths, choice.label, path))
    with waiting(f"reading the header of {safe(choice.files[0], 96)}"):
        header = read_shards(choice.files, listing.open, REMOTE_FIRST_READ_BYTES)
    return model_of(found._replace(gguf=header, label=choice.label, weights=safe(f"header of {choice.files[0]}")))


def smallest_whole(listing: GgufListing) -> GgufChoice:
    """The smallest quantisation that is complete and whose size is known.

    Raises:
        KvtaxError: there is none.
    """
    for choice in listing.files.choices:
        if choice.complete and choice.bytes is not None:
            return choice
    try:
        return pick(listing.files.choices[:1], listing.files.choices[0].files[0])
    except KvtaxError as error:
        raise type(error)(error.message, code=error.code, hint=error.hint, where=listing.id) from None
