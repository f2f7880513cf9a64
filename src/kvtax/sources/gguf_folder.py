"""The GGUF files of a folder or a repository, grouped into quantisations by their names.

Source: llama.cpp common/download.cpp at 0216dab (split files, what is no model, the default quantisation);
    ggml docs/gguf.md, naming convention (LoRA, vocab and MTP as types of file); huggingface.js
    packages/tasks/src/gguf.ts (names of quantisations, `UD-`, the last one in a name counts). Layouts seen in repositories
    of bartowski, unsloth, ggml-org, lmstudio-community, mradermacher, TheBloke, Qwen, stepfun-ai.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kvtax.errors import ConfigError, UnknownNameError
from kvtax.safe_text import safe
from kvtax.units import format_bytes

MAXIMUM_NAME_CHARACTERS = 1024
DEFAULT_LABELS = ("Q4_K_M", "Q8_0")
"""What llama.cpp looks for, in this order, when a repository is named without a quantisation."""

_SHOWN_CHARACTERS = 500
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})$", re.IGNORECASE)
_PIECE = re.compile(r"\.gguf(?:\.part\d+of\d+|-split-[a-z]+|\.[a-z])$|-chunk-\d+-of-\d+\.gguf$", re.IGNORECASE)
_SUFFIX = r"(?:_(?:XXS|XS|S|M|L|XL|XXL|NL|K|KS|KSS|KL|KT|H|P|PT|R4|R8|[0-9]))"
_QUANTIZATION = re.compile(
    rf"(?<![A-Za-z0-9])((?:UD-)?(?:[A-Z]{{0,2}}Q[1-9]{_SUFFIX}+|(?:MX|NV)FP[468](?:_MOE)?|BF16|FP?(?:16|32|64)))(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_ROLES = ("mtp", "eagle3", "dflash", "dspark")
"""Marks of the small models that draft tokens for the one beside them."""
_ROLE_INSIDE = re.compile(rf"[-._](?:{'|'.join(_ROLES)})(?=[-._]|$)", re.IGNORECASE)
_ADAPTER = re.compile(r"^(?:lora[-_.]|ggml-adapter|adapter[-_.])|[-_.]lora$", re.IGNORECASE)
_VOCABULARY = re.compile(r"^ggml-vocab|[-_.]vocab$", re.IGNORECASE)


class GgufChoice(NamedTuple):
    """A model in one quantisation.

    Args:
        label: `Q4_K_M`, `UD-Q4_K_XL`, `BF16` ...; the name without its ending where it states none, or shares it with another model;
            safe to show.
        files: every shard in order, as the listing names them; not safe to show.
        bytes: of all these files [bytes]; None where a size is not known.
        complete: whether no shard is missing.
    """

    label: str
    files: tuple[str, ...]
    bytes: int | None
    complete: bool


class GgufFiles(NamedTuple):
    """The GGUF files of a listing by what they are; names as the listing has them.

    Args:
        choices: the models, the smallest first.
        projectors: vision or audio encoders (`mmproj`).
        drafts: heads and small models that draft tokens (MTP, EAGLE-3, DFlash, DSpark).
        adapters: LoRA adapters.
        pieces: parts cut by bytes, which nothing reads before they are joined.
        others: importance matrices, vocabularies alone, names out of bounds.
    """

    choices: tuple[GgufChoice, ...]
    projectors: tuple[str, ...]
    drafts: tuple[str, ...]
    adapters: tuple[str, ...]
    pieces: tuple[str, ...]
    others: tuple[str, ...]


def choices(files: Mapping[str, int | None]) -> tuple[GgufChoice, ...]:
    """The quantisations in a listing, the smallest first (unknown sizes last).

    Args:
        files: names, with folders where the listing has them (`Q4_K_M/model-Q4_K_M-00001-of-00003.gguf`), and sizes [bytes].
    """
    return sort_gguf(files).choices


def sort_gguf(files: Mapping[str, int | None]) -> GgufFiles:
    """Every GGUF file of a listing, sorted by what it is; files that are no GGUF are passed over.

    Args:
        files: names and sizes [bytes].
    """
    sorts: dict[str, list[str]] = {"projector": [], "draft": [], "adapter": [], "piece": [], "other": []}
    models: list[str] = []
    unsure: list[str] = []  # a role in the middle of its name: a draft, or a model that has the heads inside
    for name in sorted(files):
        sort = _sort_of(name)
        if sort == "model":
            models.append(name)
        elif sort == "role":
            unsure.append(name)
        elif sort:
            sorts[sort].append(name)
    sizes = {name: _size(files[name]) for name in (*models, *unsure)}
    smallest = min((choice.bytes for choice in _grouped(models, sizes) if choice.bytes is not None), default=None)
    for choice in _grouped(unsure, sizes):
        # the heads alone are a small part of a model
        alone = choice.bytes is None or smallest is None or 2 * choice.bytes < smallest
        if models and alone:
            sorts["draft"].extend(choice.files)
        else:
            models.extend(choice.files)
    found = _labelled(_grouped(models, sizes))
    return GgufFiles(
        tuple(sorted(found, key=lambda one: (one.bytes is None, one.bytes or 0, one.label))),
        tuple(sorts["projector"]),
        tuple(sorted(sorts["draft"])),
        tuple(sorts["adapter"]),
        tuple(sorts["piece"]),
        tuple(sorts["other"]),
    )


def pick(choices: Sequence[GgufChoice], wanted: str) -> GgufChoice:
    """The quantisation that is meant by a label or by the name of one of its files.

    Case does not matter, FP16 is F16, and `UD-` may be left out or added where only one is then meant.

    Args:
        choices: as `choices()` gives them.
        wanted: `Q4_K_M`, `model-Q4_K_M.gguf`, `Q4_K_M/model-Q4_K_M-00001-of-00003.gguf`.

    Raises:
        UnknownNameError: none is called so (`unknown-quantization`), or several are (`ambiguous-quantization`).
        ConfigError: a shard is missing (`missing-shard`).
    """
    key = _key(wanted.strip())
    tests: tuple[Callable[[GgufChoice], bool], ...] = (
        lambda choice: key in (_key(name) for name in choice.files),
        lambda choice: key in (_key(name.rpartition("/")[2]) for name in choice.files),
        lambda choice: key == _key(choice.label),
        lambda choice: key == _key(label_of(choice.label)),
        lambda choice: key.removeprefix("ud-") == _key(label_of(choice.label)).removeprefix("ud-"),
    )
    for test in tests:
        found = [choice for choice in choices if key and test(choice)]
        if len(found) > 1:
            raise UnknownNameError(
                f"{safe(wanted, 96)!r} is more than one of the GGUF files here",
                code="ambiguous-quantization",
                suggestions=[choice.files[0] for choice in found],
                hint=f"name the file: {_shown(found, files=True)}",
            )
        if found:
            return _whole(found[0])
    raise UnknownNameError(
        f"no GGUF file here is {safe(wanted, 96)!r}",
        code="unknown-quantization",
        suggestions=[choice.label for choice in choices],
        hint=f"there are {_shown(choices)}" if choices else "there are no GGUF models here",
    )


def default_choice(choices: Sequence[GgufChoice]) -> GgufChoice | None:
    """What llama.cpp takes where no quantisation is named: Q4_K_M, else Q8_0, else the first file by name; None of none."""
    for label in DEFAULT_LABELS:
        named = [choice for choice in choices if label_of(choice.label).removeprefix("UD-") == label]
        if named:
            return min(named, key=lambda choice: choice.files)
    return min(choices, key=lambda choice: choice.files, default=None)


def label_of(name: str) -> str:
    """The quantisation that a name states, in capitals, '' for none: the last in the file's own name, else in its folder's.

    >>> label_of("Q8_0/Qwen3-32B-UD-Q4_K_XL-00001-of-00002.gguf")
    'UD-Q4_K_XL'
    """
    for part in reversed(_stem(name).split("/")):
        found = _QUANTIZATION.findall(part)
        if found:
            return str(found[-1]).upper()
    return ""


def _sort_of(name: str) -> str:
    """What a file is by its name; '' for what is no GGUF file."""
    if len(name) > MAXIMUM_NAME_CHARACTERS:
        return "other" if name[-5:].lower() == ".gguf" else ""
    if _PIECE.search(name):
        return "piece"
    if not name.lower().endswith(".gguf"):
        return ""
    folders, _, file = _stem(name).rpartition("/")
    lower = file.lower()
    if "mmproj" in lower:
        return "projector"
    if _VOCABULARY.search(file) or ("imatrix" in lower and not label_of(file)):
        return "other"
    if _ADAPTER.search(file):
        return "adapter"
    if lower.startswith(tuple(f"{role}-" for role in _ROLES)) or folders.rpartition("/")[2].lower() in _ROLES:
        return "draft"
    return "role" if _ROLE_INSIDE.search(file) else "model"


def _stem(name: str) -> str:
    """A name without `.gguf` and without the number of its shard; folders stay."""
    stem = name[:-5] if name.lower().endswith(".gguf") else name
    return _SHARD.sub("", stem)


def _grouped(names: Iterable[str], sizes: Mapping[str, int | None]) -> list[GgufChoice]:
    """One choice for each model, its shards together, of names in order; the label is still the whole stem."""
    groups: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for name in names:
        match = _SHARD.search(name[:-5])
        number, count = (int(match[1]), int(match[2])) if match else (1, 1)
        groups.setdefault((_stem(name), count if match else 0), []).append((number, name))
    found = []
    for (stem, count), shards in groups.items():
        files = tuple(name for _, name in shards)
        each = [sizes[name] for name in files]
        total = None if None in each else sum(size for size in each if size is not None)
        # a group cannot be longer than the listing, so the count that a name claims costs nothing
        complete = len(shards) == max(count, 1) and all(
            number == place for place, (number, _) in enumerate(shards, start=1)
        )
        found.append(GgufChoice(stem, files, total, complete))
    return found


def _labelled(groups: list[GgufChoice]) -> list[GgufChoice]:
    """The same with the shortest label that tells them apart: the quantisation, the file's name, or its folders too."""
    forms = [(label_of(group.files[0]), group.label.rpartition("/")[2], group.files[0]) for group in groups]
    counts = [Counter(_key(form[level]) for form in forms) for level in (0, 1)]
    found = []
    for group, form in zip(groups, forms, strict=True):
        label = next(
            (form[level] for level in (0, 1) if form[level] and counts[level][_key(form[level])] == 1), form[2]
        )
        found.append(group._replace(label=safe(label)))
    return found


def _whole(choice: GgufChoice) -> GgufChoice:
    if choice.complete:
        return choice
    match = _SHARD.search(choice.files[0][:-5])
    count = int(match[2]) if match else 1
    raise ConfigError(
        f"{choice.label}: {len(choice.files)} of {count} shards are here",
        code="missing-shard",
        hint="the files of a split GGUF are numbered -00001-of-0000N and all are needed",
        where=safe(choice.files[0]),
    )


def _shown(choices: Sequence[GgufChoice], *, files: bool = False) -> str:
    """Labels (or first files) with sizes, as many as a readable line holds."""
    shown: list[str] = []
    for choice in choices:
        size = "size unknown" if choice.bytes is None else format_bytes(choice.bytes)
        part = "" if choice.complete else ", incomplete"
        shown.append(f"{safe(choice.files[0] if files else choice.label, 120)} ({size}{part})")
        if sum(map(len, shown)) > _SHOWN_CHARACTERS:
            break
    more = len(choices) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _key(text: str) -> str:
    key = text.lower()
    return {"fp16": "f16", "fp32": "f32"}.get(key, key)


def _size(size: object) -> int | None:
    return size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None
