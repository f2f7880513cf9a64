"""The many ways to write the name of a GPU, and the index of them.

`nvidia-smi`, Kubernetes node labels, clouds and people write one card as `NVIDIA A100-SXM4-80GB`, `a100-80g`,
`A100 80 GB SXM`. A name becomes a key (`a10080sxm`): lower case, without separators or noise. The file
`configs/gpus/index.json` maps every key to a vendor file and an id. After a change of a vendor file, write it anew:

    python -m kvtax.sources.gpu_names
"""

from __future__ import annotations

import json
import os
from typing import Any

from kvtax.sources.data_files import configs_dir, read_json

VENDORS = ("nvidia", "amd", "intel", "apple", "google", "aws")
"""The vendor files, in the order they are listed."""

_MAKERS = frozenset(
    ("nvidia", "amd", "intel", "apple", "google", "aws", "habana", "geforce", "tesla", "instinct", "radeon", "quadro")
)
_SERIES = frozenset(("rtx", "arc", "ai"))
_NOISE = frozenset(("gpu", "gb", "gib", "generation", "edition", "graphics", "accelerator", "oam", "shared"))
_SEPARATORS = str.maketrans(
    {" ": "-", "_": "-", "/": "-", ":": "-", "\t": "-", ",": "-", "(": "-", ")": "-", "+": None}
)


def tokens(name: str) -> list[str]:
    """The words of a name that tell cards apart: `NVIDIA H100 80GB HBM3` -> nvidia, h100, 80."""
    words = []
    for word in name.strip().lower().translate(_SEPARATORS).split("-"):
        for suffix in ("gib", "gb", "g"):
            if word.endswith(suffix) and word[: -len(suffix)].isdecimal():
                word = word[: -len(suffix)]
                break
        if word.startswith("sxm") and word[3:].isdecimal():
            word = "sxm"
        if word and word not in _NOISE and not word.startswith("hbm"):
            words.append(word)
    return words


def key(name: str) -> str:
    """The key of a name as it stands in the index."""
    return _join(tokens(name))


def keys(name: str) -> tuple[str, ...]:
    """The keys to try for a name, the most literal first: with the maker, without, without the series."""
    words = tokens(name)
    found = [_join(words)]
    while len(words) > 1 and words[0] in _MAKERS:
        words = words[1:]
        found.append(_join(words))
    if len(words) > 1 and words[0] in _SERIES:
        found.append(_join(words[1:]))
    return tuple(found)


def _join(words: list[str]) -> str:
    text = "".join(words)
    for suffix in ("gib", "gb"):
        if text.endswith(suffix) and text[: -len(suffix)][-1:].isdecimal():
            return text[: -len(suffix)]
    return text


def split_slice(name: str) -> tuple[str, str]:
    """The card and the MIG profile of a name: `h100-sxm:1g.10gb` -> h100-sxm and 1g.10gb; no profile is ''."""
    text = name.strip().lower().translate(_SEPARATORS)
    card, _, profile = text.rpartition("-")
    profile = profile.removesuffix(".me").removesuffix("me") if "gb" in profile else profile
    slices, _, memory = profile.partition("g.")
    if not (card and slices.isdecimal() and memory.endswith("gb") and memory[:-2].isdecimal()):
        return name, ""
    return card.removesuffix("-mig"), profile


def build_index(folder: str) -> dict[str, Any]:
    """The index of names of all vendor files in `folder`.

    Raises:
        ValueError: a name stands for two cards.
    """
    names: dict[str, str] = {}
    ambiguous: dict[str, dict[str, Any]] = {}

    def add(name: str, target: str) -> None:
        if names.setdefault(key(name), target) != target:
            raise ValueError(f"{name!r} is both {names[key(name)]} and {target}")

    for vendor in VENDORS:
        data = read_json(os.path.join(folder, f"{vendor}.json"))
        for name, ids in data.get("ambiguous", {}).items():
            ambiguous[key(name)] = {"name": name, "gpus": [f"{vendor}/{id_}" for id_ in ids]}
        for entry in data["gpus"]:
            for name in (entry["id"], *entry.get("aliases", ())):
                add(name, f"{vendor}/{entry['id']}")
            for option in entry.get("memory_options", ()):
                add(option["id"], f"{vendor}/{option['id']}")
    both = sorted(set(names) & set(ambiguous))
    if both:
        raise ValueError(f"these names are one card and several: {both}")
    return {"schema": "kvtax.gpu-names/1", "ambiguous": ambiguous, "names": dict(sorted(names.items()))}


def index_text(index: dict[str, Any]) -> str:
    """The index as its file has it: one name per line."""
    return json.dumps(index, indent=0, ensure_ascii=False) + "\n"


def _write() -> None:
    folder = os.path.join(configs_dir(), "gpus")
    text = index_text(build_index(folder))
    with open(os.path.join(folder, "index.json"), "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


if __name__ == "__main__":
    _write()
