"""A model that huggingface_hub has already brought to this disk: found by the layout of its cache, without its package.

`models--ORG--NAME/refs/REVISION` holds a commit; `models--ORG--NAME/snapshots/COMMIT/` the files, as links into `blobs`.
Source: huggingface_hub 2.4.0 file_download.py try_to_load_from_cache.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from kvtax.sources.hub.names import HubName, is_commit
from kvtax.sources.hub.settings import hub_cache


class Snapshot(NamedTuple):
    """A folder of the cache, and the commit that it is of."""

    folder: str
    commit: str


def find_snapshot(name: HubName) -> Snapshot | None:
    """The folder of a revision that is in the cache with the config, or a GGUF file, of the model; None without one."""
    root = os.path.join(hub_cache(), "models--" + name.repository.replace("/", "--"))
    commit = name.revision if name.is_pinned else _reference(root, name.revision)
    if not commit:
        return None
    folder = os.path.join(root, "snapshots", commit)
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    wanted = any(one.endswith(".gguf") for one in names) if name.variant else "config.json" in names
    return Snapshot(folder, commit) if wanted else None


def _reference(root: str, revision: str) -> str:
    """The commit that a branch or tag stood for when it was fetched."""
    path = os.path.join(root, "refs", *revision.split("/"))
    try:
        if not os.path.isfile(path):  # a pipe would never end
            return ""
        with open(path, encoding="ascii") as file:
            commit = file.read(41).strip()
    except (OSError, ValueError):
        return ""
    return commit if is_commit(commit) else ""
