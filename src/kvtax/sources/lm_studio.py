"""A model in LM Studio's folder, which has the layout of the hub: `{models}/{publisher}/{repository}/{files}`.

Source: lmstudio-js packages/lms-common-server/src/findLMStudioHome.ts at 7c40eb8 (pointer file, then ~/.cache/lm-studio, then ~/.lmstudio);
    lms src/subcommands/importCmd.ts at 07b7252 (settings.json `downloadsFolder`, user/repository/file);
    LM Studio docs 0_app/5_advanced/import-model.md at c6854fb (the layout).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kvtax.errors import ConfigError, InputError, SourceError, UnknownNameError
from kvtax.safe_text import safe
from kvtax.sources.byte_source import LocalFile
from kvtax.sources.folder import Contents, scan
from kvtax.sources.gguf_folder import GgufChoice, pick
from kvtax.sources.listing import FOLDER, MAXIMUM_ENTRIES, list_folder, name_in_folder
from kvtax.sources.safe_json import parse_json

_MAXIMUM_POINTER_BYTES = 4096
_MAXIMUM_SETTINGS_BYTES = 2**20
_MAXIMUM_PART_CHARACTERS = 255


class LmStudioModel(NamedTuple):
    """The files of a model; paths are not safe to show.

    Args:
        name: publisher/repository as they are on the disk, safe to show.
        folder: that holds the files.
        choice: the GGUF model that was named, or the only one; None for a model of safetensors (MLX), read as a folder.
        model_paths: the files of `choice`, shards in order.
        projector_paths: mmproj files of the folder.
        contents: everything in the folder, all quantisations included.
    """

    name: str
    folder: str
    choice: GgufChoice | None
    model_paths: tuple[str, ...]
    projector_paths: tuple[str, ...]
    contents: Contents


def find_lm_studio(name: str, environment: Mapping[str, str] = os.environ) -> LmStudioModel:
    """The model of a name below LM Studio's folder of models.

    Args:
        name: `publisher/repository`, with `/file.gguf` or `:Q4_K_M` where it holds several; case does not matter.
            A full path below the folder of models does as well.
        environment: HOME is looked at.

    Raises:
        InputError: no such name is possible (`invalid-model-name`).
        SourceError: LM Studio has no folder here (`no-lm-studio-store`).
        UnknownNameError: it is not there (`unknown-model`), has no such quantisation (`unknown-quantization`), or has several
            (`ambiguous-quantization`).
        ConfigError: the folder holds no model (`no-model`), or cannot be read.
    """
    folder, shown, wanted = find_lm_studio_folder(name, environment)
    return _model(folder, shown, wanted)


def find_lm_studio_folder(name: str, environment: Mapping[str, str] = os.environ) -> tuple[str, str, str]:
    """The folder of a model, how it is called (safe to show), and the quantisation or file that is named, '' for none.

    Args:
        name: as for `find_lm_studio`.
        environment: HOME is looked at.

    Raises:
        KvtaxError: as `find_lm_studio`, but for what is in the folder.
    """
    stores = lm_studio_stores(environment)
    publisher, repository, wanted = _parts(_inside(name.strip(), stores))
    if not stores:
        raise SourceError(
            "LM Studio has no folder of models on this machine",
            code="no-lm-studio-store",
            hint="pass the path of the model's file or folder instead",
        )
    for store in stores:
        found = _folder_of(store, publisher, repository)
        if found:
            return os.path.join(store, *found), safe("/".join(found)), wanted
    raise _not_there(f"{publisher}/{repository}", stores, environment)


def lm_studio_stores(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The folders of models that are there: the one in LM Studio's settings first, then those below its homes."""
    home = environment.get("HOME") or environment.get("USERPROFILE") or os.path.expanduser("~")
    homes = [_pointer(home), os.path.join(home, ".cache", "lm-studio"), os.path.join(home, ".lmstudio")]
    places = []
    for place in filter(None, homes):
        places += [_downloads_folder(place), os.path.join(place, "models")]
    return tuple(dict.fromkeys(place for place in places if place and os.path.isdir(place)))


def list_lm_studio(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The names publisher/repository that are there, safe to show; what cannot be read is passed over."""
    names: set[str] = set()
    for store in lm_studio_stores(environment):
        left = MAXIMUM_ENTRIES
        for publisher in _folders(store, left):
            repositories = list(_folders(os.path.join(store, publisher), left))
            left = max(0, left - len(repositories))
            names.update(safe(f"{publisher}/{repository}") for repository in repositories)
    return tuple(sorted(names))


def _parts(name: str) -> tuple[str, str, str]:
    """Publisher, repository and what is named in it ('' for nothing)."""
    path, _, label = name.partition(":")
    parts = path.removesuffix("/").split("/")
    good = all(
        part not in ("", ".", "..")
        and part.isprintable()
        and "\\" not in part
        and len(part) <= _MAXIMUM_PART_CHARACTERS
        for part in parts
    )
    file = "/".join(parts[2:])
    if not good or not 2 <= len(parts) <= 4 or (label and file):
        raise InputError(
            f"{safe(name, 96)!r} is not the name of a model in LM Studio's folder",
            code="invalid-model-name",
            hint="write publisher/repository, publisher/repository/file.gguf or publisher/repository:Q4_K_M",
        )
    return parts[0], parts[1], file or label


def _inside(name: str, stores: tuple[str, ...]) -> str:
    """A full path below one of the stores as a name, anything else as it is."""
    if os.path.isabs(name):
        path = os.path.normpath(name)
        for store in stores:
            start = os.path.join(os.path.normpath(store), "")
            if path.startswith(start):
                return path[len(start) :].replace(os.sep, "/")
    return name


def _pointer(home: str) -> str:
    """The home that LM Studio wrote down, '' where it wrote none."""
    path = os.path.join(home, ".lmstudio-home-pointer")
    try:
        text = LocalFile(path).read(0, _MAXIMUM_POINTER_BYTES).decode("utf-8").strip()
    except (ConfigError, UnicodeDecodeError):
        return ""
    return text if os.path.isabs(text) and text.isprintable() else ""


def _downloads_folder(home: str) -> str:
    """The folder of models that a person chose in LM Studio's settings, '' where none."""
    path = os.path.join(home, "settings.json")
    try:
        data = LocalFile(path).read(0, _MAXIMUM_SETTINGS_BYTES + 1)
        settings, _ = parse_json(data, safe(path), maximum_bytes=_MAXIMUM_SETTINGS_BYTES)
    except ConfigError:
        return ""
    folder = settings.get("downloadsFolder")
    return folder if isinstance(folder, str) and os.path.isabs(folder) and folder.isprintable() else ""


def _folder_of(store: str, publisher: str, repository: str) -> tuple[str, str] | None:
    try:
        first = name_in_folder(store, publisher)
        second = first and name_in_folder(os.path.join(store, first), repository)
    except ConfigError as error:
        if error.code == "too-many-files":
            raise
        return None
    return (first, second) if first and second else None


def _model(folder: str, name: str, wanted: str) -> LmStudioModel:
    contents = scan(folder)
    choices = contents.gguf.choices
    choice: GgufChoice | None = None
    if wanted:
        choice = pick(choices, wanted)
    elif choices and contents.format != "safetensors":
        labels = [one.label for one in choices]
        if len(choices) > 1:
            raise UnknownNameError(
                f"{name} holds {len(choices)} GGUF models",
                code="ambiguous-quantization",
                suggestions=[f"{name}:{label}" for label in labels],
                hint=f"name one: {', '.join(f'{name}:{label}' for label in labels[:8])}; kvtax gguf lmstudio:{name} -g CARD says which fit",
            )
        choice = pick(choices, choices[0].files[0])
    elif contents.format != "safetensors":
        problem = f"{name} holds no GGUF or safetensors weights: it is {contents.what}"
        raise ConfigError(problem, code="no-model", where=safe(folder))

    def paths(files: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(os.path.join(folder, *file.split("/")) for file in files)

    model_paths = paths(choice.files) if choice else ()
    return LmStudioModel(name, folder, choice, model_paths, paths(contents.gguf.projectors), contents)


def _folders(path: str, maximum: int) -> Iterator[str]:
    try:
        entries = list_folder(path, maximum)
    except ConfigError:
        return
    yield from (entry.name for entry in entries if entry.kind == FOLDER and not entry.name.startswith("."))


def _not_there(wanted: str, stores: tuple[str, ...], environment: Mapping[str, str]) -> UnknownNameError:
    from difflib import get_close_matches

    names = list_lm_studio(environment)
    lower = {name.lower(): name for name in names}
    close = [lower[match] for match in get_close_matches(wanted.lower(), lower, n=3, cutoff=0.5)]
    meant = f"did you mean {', '.join(close)}? " if close else ""
    return UnknownNameError(
        f"LM Studio has no model {safe(wanted, 96)!r} in {' or '.join(safe(store, 200) for store in stores)}",
        code="unknown-model",
        suggestions=close,
        hint=f"{meant}A name is publisher/repository, as the folders are called",
    )
