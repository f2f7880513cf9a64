"""What was read of a model on the hub, kept in small JSON files: a commit never changes, so neither does what was read of it.

One file a model and revision, named by a hash, written whole or not at all. It holds no token and no address with one. Whatever is wrong with
such a file, it counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from typing import NamedTuple

from kvtax.errors import InputError, KvtaxError
from kvtax.safe_text import safe
from kvtax.sources.found import Found
from kvtax.sources.found_json import MAXIMUM_BYTES, from_json, parse_facts, to_json
from kvtax.sources.hub.names import HubName
from kvtax.sources.write_whole import write_whole

SCHEMA = "kvtax.hub-answer/2"
_PARTIAL = "answer-"
_WRITTEN = re.compile(rf"[0-9a-f]{{64}}\.json|{_PARTIAL}[^/]*\.part")
"""Names of what is written here: answers, and what is left of one that was being written when the process was killed."""


class Answer(NamedTuple):
    """What is known of a revision: the commit (or what stands for it) that it was read at, and what was found."""

    pin: str
    found: Found


def cache_dir(environment: Mapping[str, str] = os.environ) -> str:
    """Where answers are kept: KVTAX_CACHE_DIR, else `kvtax` in the user's cache folder as the system has it."""
    explicit = environment.get("KVTAX_CACHE_DIR")
    if explicit:
        return os.path.expanduser(explicit)
    base = environment.get("XDG_CACHE_HOME")
    if not base:
        if sys.platform == "win32":
            base = environment.get("LOCALAPPDATA") or os.path.join("~", "AppData", "Local")
        else:
            base = os.path.join("~", "Library", "Caches") if sys.platform == "darwin" else os.path.join("~", ".cache")
    return os.path.join(os.path.expanduser(base), "kvtax")


def _folder() -> str:
    return os.path.join(cache_dir(), "hub")


def _path(endpoint: str, name: HubName) -> str:
    key = "\n".join((SCHEMA, endpoint, name.repository, name.revision, name.variant))
    return os.path.join(_folder(), hashlib.sha256(key.encode()).hexdigest() + ".json")


def load(endpoint: str, name: HubName) -> Answer | None:
    """The answer that was kept, None where there is none that can be read."""
    path = _path(endpoint, name)
    try:
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            data = file.read(MAXIMUM_BYTES + 1)
        value = parse_facts(data, path)
        if value.get("schema") != SCHEMA or value.get("model") != str(name) or not isinstance(value.get("pin"), str):
            return None
        return Answer(value["pin"], from_json(value.get("found"), path))
    except (OSError, KvtaxError):
        return None


def save(endpoint: str, name: HubName, answer: Answer) -> None:
    """Keep an answer; a disk that cannot be written to is no reason to fail."""
    document = {"schema": SCHEMA, "model": str(name), "pin": answer.pin, "found": to_json(answer.found)}
    folder = _folder()
    try:
        data = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if not os.path.islink(folder):
            write_whole(_path(endpoint, name), data, mode=0o600, prefix=_PARTIAL)
    except (OSError, ValueError):
        return


def kept() -> tuple[int, int]:
    """How many answers are kept, and their bytes."""
    sizes = [size for _, size in _files()]
    return len(sizes), sum(sizes)


def clear() -> tuple[int, int]:
    """Remove all answers, and nothing else; how many were removed, and their bytes.

    Raises:
        InputError: one is left that cannot be removed.
    """
    count = freed = 0
    for path, size in _files():
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise InputError(
                f"cannot be removed: {error.strerror}", code="cannot-write", where=safe(path),
                hint=f"{count} answers were removed before it",
            ) from None  # fmt: skip
        count, freed = count + 1, freed + size
    return count, freed


def _files() -> list[tuple[str, int]]:
    """The files in the folder that were written here, by name and kind, with their sizes [bytes]; a link is none of them."""
    folder = _folder()
    try:
        if os.path.islink(folder):
            return []
        with os.scandir(folder) as entries:
            return [
                (entry.path, entry.stat(follow_symlinks=False).st_size)
                for entry in entries
                if _WRITTEN.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
