"""What a hub name says: repository, revision, and the GGUF file or quantisation that is meant."""

from __future__ import annotations

import re
from typing import NamedTuple

from kvtax.errors import InputError
from kvtax.safe_text import safe

_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_REPOSITORY = re.compile(rf"{_PART}/{_PART}", re.ASCII)
_REVISION = re.compile(r"[\w./-]{1,128}", re.ASCII)
_VARIANT = re.compile(r"[\w.+/ -]{1,255}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)
_ADDRESSES = (
    "https://huggingface.co/",
    "http://huggingface.co/",
    "https://hf.co/",
    "hf.co/",
    "huggingface.co/",
    "hf://",
)
MAXIMUM_CHARACTERS = 512


class HubName(NamedTuple):
    """A model on the hub.

    Args:
        repository: `org/name`.
        revision: branch, tag or commit; `main` where none is given.
        variant: a GGUF quantisation or the name of a file, '' for none.
    """

    repository: str
    revision: str = "main"
    variant: str = ""

    def __str__(self) -> str:
        """As one would type it."""
        at = "" if self.revision == "main" else f"@{self.revision}"
        return f"{self.repository}{at}" + (f":{self.variant}" if self.variant else "")

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, so that its files never change."""
        return is_commit(self.revision)


def is_commit(revision: str) -> bool:
    """Whether a revision is a whole commit hash."""
    return _COMMIT.fullmatch(revision) is not None


def is_repository(name: str) -> bool:
    """Whether a text is `org/name` in the characters and lengths that the hub allows.

    Source: huggingface_hub 2.4.0 utils/_validators.py validate_repo_id.
    """
    return (
        len(name) <= 96 * 2 + 1
        and _REPOSITORY.fullmatch(name) is not None
        and "--" not in name
        and ".." not in name
        and not name.endswith(".git")
    )


def looks_like_hub_name(name: str) -> bool:
    """Whether a name can only mean a repository on the hub: `org/name`, with `@revision` or `:quantisation`, or its address."""
    if len(name) > MAXIMUM_CHARACTERS:
        return False
    bare = _without_address(name)
    repository = re.split(r"[@:]", bare, maxsplit=1)[0]
    return bare != name or is_repository(repository)


def parse_hub_name(name: str) -> HubName:
    """The parts of `org/name[@revision][:quantisation or file]`.

    Raises:
        InputError: code `invalid-hub-name`.
    """
    text = name.strip()
    if len(text) > MAXIMUM_CHARACTERS:
        raise _refused(text, f"is longer than {MAXIMUM_CHARACTERS} characters")
    bare = _without_address(text)
    if bare != text:
        bare = _from_address(bare)
    left, _, variant = bare.partition(":")
    repository, at, revision = left.partition("@")
    if not is_repository(repository):
        raise _refused(text, "is not `org/name` as the hub allows it")
    if at and (not _REVISION.fullmatch(revision) or ".." in revision or revision.startswith(("/", "-"))):
        raise _refused(text, "has a revision that cannot be one")
    if variant and (not _VARIANT.fullmatch(variant) or ".." in variant or variant.startswith(("/", "-"))):
        raise _refused(text, "names a file or quantisation that cannot be one")
    return HubName(repository, revision or "main", variant)


def _refused(text: str, problem: str) -> InputError:
    return InputError(
        f"{safe(text, 96)!r} {problem}",
        code="invalid-hub-name",
        hint="write Qwen/Qwen3-8B, Qwen/Qwen3-8B@main or org/name-GGUF:Q4_K_M",
    )


def _without_address(name: str) -> str:
    for start in _ADDRESSES:
        if name.lower().startswith(start):
            return name[len(start) :]
    return name


def _from_address(path: str) -> str:
    """`org/name/tree/main` and `org/name/blob/main/file.gguf`, as a browser shows them."""
    words = path.split("?")[0].split("#")[0].strip("/").split("/")
    name = "/".join(words[:2])
    if len(words) > 3 and words[2] in ("tree", "blob", "resolve"):
        name += f"@{words[3]}"
        file = "/".join(words[4:])
        if file.endswith(".gguf"):
            name += f":{file}"
    return name
