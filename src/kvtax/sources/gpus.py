"""The catalogue of GPUs in `configs/gpus/`: one file per vendor and an index of names.

Looking one up reads the index and one vendor file. Adding a GPU is one line in its vendor's file (then rewrite the
index, see `gpu_names`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from kvtax.errors import UnknownNameError
from kvtax.hardware.gpu import Gpu, Price
from kvtax.sources.data_files import configs_dir, read_json
from kvtax.sources.gpu_names import VENDORS, key, keys, split_slice, tokens
from kvtax.units import GIB, format_gib

_cache: dict[str, Any] = {}


def find_gpu(name: str, extra: Sequence[Gpu] = ()) -> Gpu:
    """The GPU, MIG slice or machine called `name`, in any of the usual spellings; entries of `extra` come first.

    Raises:
        UnknownNameError: no such GPU (`unknown-gpu`), or the name fits several (`ambiguous-gpu`).
    """
    wanted = keys(name[:200])
    for gpu in extra:
        if any(key(known) in wanted for known in (gpu.id, *gpu.aliases)):
            return gpu
    found = _find_shipped(name)
    if found is None:
        raise _unknown(name, extra)
    return found


@lru_cache(maxsize=1024)
def _find_shipped(name: str) -> Gpu | None:
    """The card of the catalogue; None where there is none, an error where there are several."""
    index = _file("index")
    card, profile = split_slice(name[:200])
    for spelling in keys(card):
        if spelling in index["names"]:
            return _pick(_load(index["names"][spelling]), profile)
        if spelling in index["ambiguous"]:
            return _one_of(name, index["ambiguous"][spelling]["gpus"], profile)
    words = tokens(card)
    if len(words) > 1 and words[-1].isdecimal():  # a size added to the name of a card that has one size only
        for spelling in keys("-".join(words[:-1])):
            if spelling in index["names"]:
                gpu = _pick(_load(index["names"][spelling]), profile)
                if gpu.nominal_gb == int(words[-1][:9]):
                    return gpu
    return None


def list_gpus() -> tuple[Gpu, ...]:
    """Every GPU of the catalogue, each followed by its MIG slices or its other memory sizes."""
    return tuple(gpu for vendor in VENDORS for entry in _file(vendor)["gpus"] for gpu in _expand(entry, _file(vendor)))


def search_gpus(query: str) -> tuple[Gpu, ...]:
    """The GPUs whose id, name or alias contains every word of `query`; MIG slices only where the query names one."""
    words = [word.replace("-", "") for word in query.lower().split()]
    with_slices = any("g." in word or word == "mig" for word in words)
    words = [word for word in words if word != "mig"]
    found = []
    for gpu in list_gpus():
        text = " ".join((gpu.id, gpu.name, gpu.vendor, *gpu.aliases)).lower()
        text = f"{text} {text.replace('-', '').replace(' ', '')}"
        if (gpu.parent is None or with_slices) and all(word in text for word in words):
            found.append(gpu)
    return tuple(found)


def _file(stem: str) -> Any:
    if stem not in _cache:
        _cache[stem] = read_json(os.path.join(configs_dir(), "gpus", f"{stem}.json"))
    return _cache[stem]


def _load(target: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The entry, its file, and the id that is meant (that of the entry, or of one of its memory sizes)."""
    vendor, _, id_ = target.partition("/")
    file = _file(vendor)
    for entry in file["gpus"]:
        if entry["id"] == id_ or any(option["id"] == id_ for option in entry.get("memory_options", ())):
            return entry, file, id_
    raise UnknownNameError(f"the index of GPU names points to {target}, which is not there", code="unknown-gpu")


def _pick(found: tuple[dict[str, Any], dict[str, Any], str], profile: str) -> Gpu:
    entry, file, id_ = found
    if not profile:
        return next(gpu for gpu in _expand(entry, file) if gpu.id == id_)
    wanted = f"{id_}-{profile}"
    slices = [gpu for gpu in _expand(entry, file) if gpu.parent]
    for gpu in slices:
        if gpu.id == wanted:
            return gpu
    known = ", ".join(gpu.id for gpu in slices)
    raise UnknownNameError(
        f"{entry['id']} has no MIG slice {profile!r}" if slices else f"{entry['id']} has no known MIG slices",
        code="unknown-gpu",
        suggestions=[gpu.id for gpu in slices][:3],
        hint=f"its slices are {known}" if slices else "give the memory instead, as in --vram 10GiB",
    )


def _one_of(name: str, targets: Sequence[str], profile: str) -> Gpu:
    variants = [next(iter(_expand(entry, file))) for entry, file, _ in map(_load, targets)]
    if profile:
        slices = [gpu for target in targets for gpu in _expand(*_load(target)[:2]) if gpu.id.endswith(f"-{profile}")]
        if len(slices) == 1:
            return slices[0]
        variants = slices or variants
    shown = ", ".join(f"{gpu.id} ({format_gib(gpu.total_bytes)} GiB)" for gpu in variants)
    raise UnknownNameError(
        f"{name.strip()[:64]!r} is more than one GPU: {shown}",
        code="ambiguous-gpu",
        suggestions=[gpu.id for gpu in variants],
        hint="name one of them",
    )


def _unknown(name: str, extra: Sequence[Gpu]) -> UnknownNameError:
    from difflib import get_close_matches

    index = _file("index")
    ids = {key(known): gpu.id for gpu in extra for known in (gpu.id, *gpu.aliases)}
    ids.update((spelling, target.partition("/")[2]) for spelling, target in index["names"].items())
    ids.update((spelling, several["name"]) for spelling, several in index["ambiguous"].items())
    suggestions: list[str] = []
    for spelling in reversed(keys(split_slice(name[:64])[0])):
        for match in get_close_matches(spelling, ids, n=12, cutoff=0.0):
            if ids[match] not in suggestions:
                suggestions.append(ids[match])
    suggestions = suggestions[:3]
    closest = f"did you mean {', '.join(suggestions)}? " if suggestions else ""
    return UnknownNameError(
        f"no GPU is called {name.strip()[:64]!r}",
        code="unknown-gpu",
        suggestions=suggestions,
        hint=f"{closest}{_several(name)}Any card can be sized by its memory, as in --vram 48GiB",
    )


def _several(name: str) -> str:
    """What to do where a name holds a count (`2x4090`) or a list (`a100-80,h100-sxm`)."""
    count, mark, _ = name.strip().lower().partition("x")
    if mark and count.isascii() and count.isdecimal():
        return f"Name one card and share the model over {count[:6]} with --tp {count[:6]}. "
    return "Name each card with its own --gpu. " if "," in name else ""


def _expand(entry: dict[str, Any], file: dict[str, Any]) -> Iterator[Gpu]:
    """An entry of a vendor file as Gpus: itself, its other memory sizes, its MIG slices."""
    gpu = _gpu(entry, file)
    yield gpu
    for option in entry.get("memory_options", ()):
        yield gpu._replace(
            id=option["id"],
            name=f"{gpu.name} {option['nominal_gb']} GB",
            total_bytes=option["total_bytes"],
            total_source=option["total_source"],
            nominal_gb=option["nominal_gb"],
            note="",
            aliases=(),
        )
    mig = entry.get("mig")
    if mig:
        for part in mig["slices"]:
            yield _slice(gpu, mig, part)


def _slice(gpu: Gpu, mig: dict[str, Any], part: dict[str, Any]) -> Gpu:
    memory, compute = part["memory_slices"], part["compute_slices"]

    def share(value: int | None, slices: int, of: int) -> int | None:
        return None if value is None else value * slices // of

    return gpu._replace(
        id=f"{gpu.id}-{part['profile']}",
        name=f"{gpu.name}, MIG {part['profile']}",
        total_bytes=part["total_bytes"],
        total_source=mig["source"],
        total_is_estimate=part["total_is_estimate"],
        nominal_gb=int(part["profile"].partition("g.")[2][:-2]),
        bandwidth_bytes_per_second=share(gpu.bandwidth_bytes_per_second, memory, mig["memory_slices"]),
        bf16_flops=share(gpu.bf16_flops, compute, mig["compute_slices"]),
        fp8_flops=share(gpu.fp8_flops, compute, mig["compute_slices"]),
        fp4_flops=share(gpu.fp4_flops, compute, mig["compute_slices"]),
        parent=gpu.id,
        note=f"{compute} of {mig['compute_slices']} compute slices and {memory} of {mig['memory_slices']} memory "
        f"slices of {gpu.id}",
        prices=(),
        aliases=(),
        total_seen_bytes=None,
        driver_total_mib=None,
    )


def _gpu(entry: dict[str, Any], file: dict[str, Any]) -> Gpu:
    get = entry.get
    sources = get("sources", {})
    seen = get("total_seen_gib")
    return Gpu(
        id=entry["id"],
        name=entry["name"],
        vendor=file["vendor"],
        kind=entry["kind"],
        total_bytes=entry["total_bytes"],
        total_source=entry["total_source"],
        total_is_estimate=entry["total_is_estimate"],
        nominal_gb=get("nominal_gb"),
        bandwidth_bytes_per_second=_scaled(get("bandwidth_gb_s"), 10**9),
        bf16_flops=_scaled(get("bf16_tflops"), 10**12),
        fp8_flops=_scaled(get("fp8_tflops"), 10**12),
        fp4_flops=_scaled(get("fp4_tflops"), 10**12),
        compute_capability=get("compute_capability"),
        unified_memory=get("unified_memory", False),
        source="; ".join(dict.fromkeys(sources.values())) or entry["total_source"],
        date=entry["date"],
        unverified=tuple(get("unverified", ())),
        note=get("note", ""),
        prices=tuple(
            Price(price["usd_per_gpu_hour"], price["provider"], price["date"], price["source"])
            for price in get("prices", ())
        ),
        aliases=tuple(get("aliases", ())),
        total_seen_bytes=(round(seen[0] * GIB), round(seen[1] * GIB)) if seen else None,
        driver_total_mib=get("nvidia_smi_total_mib"),
    )


def _scaled(value: float | None, factor: int) -> int | None:
    return None if value is None else round(value * factor)
