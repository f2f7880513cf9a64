"""A `[[model]]` table put into a TOML file of one's own, with the facts of the model in a file beside it.

The rest of the TOML file stays as it is, byte for byte; each file is written whole or not at all, and through no link.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from kvtax.errors import InputError
from kvtax.safe_text import safe
from kvtax.sources.found import Found
from kvtax.sources.found_json import MAXIMUM_BYTES, from_json, parse_facts, to_json
from kvtax.sources.local import is_written_as_path
from kvtax.sources.models import ModelEntry
from kvtax.sources.places import STORES
from kvtax.sources.user_catalogue import MAXIMUM_BYTES as MAXIMUM_TOML_BYTES
from kvtax.sources.user_catalogue import MAXIMUM_ENTRIES, load_catalogue
from kvtax.sources.write_whole import write_whole

FOLDER = "kvtax-models"
"""Of facts files, beside the TOML file."""
MAXIMUM_NAME_CHARACTERS = 200
MAXIMUM_ALIASES = 50
_OF_THE_RUN = frozenset(("token-sent", "token-withheld"))
"""Notices about how it was read, which are none about the model."""


class Added(NamedTuple):
    """What was written.

    Args:
        name: of the entry.
        aliases: of it.
        catalogue: the TOML file.
        facts: the facts file.
        replaced: whether the entry was there, and only its facts are new.
    """

    name: str
    aliases: tuple[str, ...]
    catalogue: str
    facts: str
    replaced: bool


def add_entry(path: str, name: str, aliases: Sequence[str], found: Found, *, replace: bool = False) -> Added:
    """Write an entry, or with `replace` the facts of one that is there.

    Args:
        path: of the TOML file, made where there is none.
        name: of the entry.
        aliases: other names of it.
        found: of the model.
        replace: whether the facts of an entry of this name are written anew.

    Raises:
        InputError: a name that cannot be (`invalid-name`) or is taken (`name-taken`); a file that cannot be read or written
            (`cannot-write`).
    """
    aliases = _checked(name, aliases)
    _refuse_link(path)
    there = os.path.lexists(path)
    models = load_catalogue(path)[0] if there else ()
    document = to_json(found._replace(notices=tuple(one for one in found.notices if one.code not in _OF_THE_RUN)))
    facts = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    if len(facts) > MAXIMUM_BYTES:
        raise InputError(f"what is known of {safe(name)} takes more than 64 MiB", code="facts-too-large")
    from_json(parse_facts(facts, safe(name)), safe(name))
    entry = _taken(models, name, aliases, path, replace)
    if entry is not None:
        _write(entry.facts or "", facts)
        return Added(entry.id, entry.aliases, path, entry.facts or "", True)
    if len(models) >= MAXIMUM_ENTRIES:
        raise InputError(f"has {len(models)} [[model]] tables, which is all it may have", code="too-many", where=path)
    folder = os.path.join(os.path.dirname(path), FOLDER)
    file = _free_name(folder, name)
    text = _appended(path, there, name, aliases, f"{FOLDER}/{file}")
    made = _make_folder(folder)
    target = os.path.join(folder, file)
    try:
        _write(target, facts)
        _write(path, text)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(target)
        with contextlib.suppress(OSError):
            if made:
                os.rmdir(folder)
        raise
    return Added(name, aliases, path, target, False)


# ---- names ----


def _checked(name: str, aliases: Sequence[str]) -> tuple[str, ...]:
    """The aliases without the name itself and each once.

    Raises:
        InputError: code `invalid-name`: one could not be written, or never be found.
    """
    for one in (name, *aliases):
        if not one or one != one.strip() or len(one) > MAXIMUM_NAME_CHARACTERS or not one.isprintable():
            problem = "is not a name of 1 to 200 characters that can be shown"
        elif one.startswith("-") or is_written_as_path(one) or one.lower().startswith(STORES):
            problem = "would be read as something else: an option, a path, or a model in another program's store"
        else:
            continue
        raise InputError(f"{safe(one, 96)!r} {problem}", code="invalid-name", hint="choose another: --name, --alias")
    found = {one.lower(): one for one in reversed(aliases) if one.lower() != name.lower()}
    if len(found) > MAXIMUM_ALIASES:
        raise InputError(f"{len(found)} aliases, more than {MAXIMUM_ALIASES}", code="invalid-name")
    return tuple(reversed(found.values()))


def _taken(
    models: Sequence[ModelEntry], name: str, aliases: Sequence[str], path: str, replace: bool
) -> ModelEntry | None:
    """The entry whose facts are replaced; None where a new one is written.

    Raises:
        InputError: code `name-taken`.
    """
    owners = {word: entry for entry in models for word in (entry.id.lower(), *entry.aliases)}
    entry = owners.get(name.lower()) if replace else None
    for word in (name, *aliases):
        owner = owners.get(word.lower())
        if owner is not None and owner is not entry:
            hint = "another name: --name, --alias"
            if word == name:
                hint = f"--replace writes the facts of that entry anew; {hint}"
            raise InputError(
                f"{safe(word, 96)!r} is taken by the entry {safe(owner.id, 96)!r}",
                code="name-taken",
                hint=hint,
                where=path,
            )
        if entry is not None and owner is None:
            hint = f"write {safe(word, 96)!r} into the file by hand"
            raise InputError("--replace writes facts, and no alias", code="name-taken", hint=hint, where=path)
    if entry is not None and entry.facts is None:
        raise InputError(
            f"the entry {safe(entry.id, 96)!r} has a config of its own, not facts", code="name-taken",
            hint="take it out of the file first, or choose another name: --name", where=path,
        )  # fmt: skip
    return entry


def _free_name(folder: str, name: str) -> str:
    """ORG--NAME.json, or with a number where a file has that name."""
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", re.sub(r"[/:]+", "--", name)).strip(".-")[:150] or "model"
    file, number = f"{stem}.json", 1
    while os.path.lexists(os.path.join(folder, file)):
        number += 1
        file = f"{stem}-{number}.json"
    return file


# ---- files ----


def _appended(path: str, there: bool, name: str, aliases: Sequence[str], facts: str) -> bytes:
    """The TOML file with one table more.

    Raises:
        InputError: code `cannot-write`: nothing can be put behind what it holds.
    """
    import tomllib

    before = b""
    if there:
        with open(path, "rb") as file:
            before = file.read(MAXIMUM_TOML_BYTES + 1)
    rows = ["[[model]]", f"name = {_quoted(name)}"]
    if aliases:
        rows.append(f"aliases = [{', '.join(map(_quoted, aliases))}]")
    rows.append(f"facts = {_quoted(facts)}")
    gap = b"" if not before else b"\n" if before.endswith(b"\n") else b"\n\n"
    text = before + gap + "".join(f"{row}\n" for row in rows).encode()
    try:
        last = tomllib.loads(text.decode("utf-8"))["model"][-1]
    except (ValueError, RecursionError):
        last = {}
    if last.get("facts") != facts or len(text) > MAXIMUM_TOML_BYTES:
        raise InputError(
            "no [[model]] table can be put at its end", code="cannot-write", where=path,
            hint="is `model` written as a list in brackets, or the file 1 MiB long? --catalogue names another file",
        )  # fmt: skip
    return text


def _quoted(text: str) -> str:
    """A basic string of TOML; the text holds nothing but printable characters."""
    return json.dumps(text, ensure_ascii=False)


def _refuse_link(path: str) -> None:
    if os.path.islink(path):
        raise InputError("is a link, which is not written through", code="cannot-write", where=safe(path))


def _make_folder(folder: str) -> bool:
    """Make the folder of facts; whether it was not there."""
    _refuse_link(folder)
    try:
        os.mkdir(folder)
    except FileExistsError:
        return False
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", code="cannot-write", where=safe(folder)) from None
    return True


def _write(path: str, data: bytes) -> None:
    _refuse_link(path)
    try:
        write_whole(path, data)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", code="cannot-write", where=safe(path)) from None
