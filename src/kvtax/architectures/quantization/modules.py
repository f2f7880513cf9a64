"""Lists of modules in a quantization_config, and which layers and experts of a group of tensors they mean.

Lists name modules one by one (`model.layers.3.mlp.gate`), by a part of the path (`gate`, `visual`), with wildcards
(`model.layers.3*`, `*.attn.*`) or as regular expressions (`re:.*self_attn.*`), in the spelling of the checkpoint or of an engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kvtax.architectures.quantization.patterns import Pattern, PatternError, glob
from kvtax.architectures.tensors import Tensor

MAXIMUM_ENTRIES = 100_000
MAXIMUM_ENTRY = 512
MAXIMUM_PATTERNS = 2_000
MAXIMUM_STATES = 200_000
MAXIMUM_WORK = 1_500_000
# what stands before the layers in one spelling and not in another
_WRAPPERS = frozenset(("model", "language_model", "backbone", "transformer", "thinker", "llm"))
_LAYER_WORDS = frozenset(("layers", "h", "blocks", "layer"))
_SPELLINGS = ("", "model.", "language_model.model.", "model.language_model.")
# modules that an engine holds as one -> what the checkpoint has
_FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "gate_up": ("gate_proj", "up_proj"),
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
    "w13": ("w1", "w3"),
}
_PARTNERS: dict[str, tuple[str, ...]] = {}
for _whole, _parts in _FUSED.items():
    _PARTNERS[_whole] = (_parts[0],)
    for _part in _parts:
        _PARTNERS[_part] = (*_PARTNERS.get(_part, ()), _whole)

_REGEX_SIGNS = re.compile(r"[\\^$(){}|+]")
_DIGITS = re.compile(r"[0-9]+", re.ASCII)


class Hits(NamedTuple):
    """What a list means of a group of tensors.

    Args:
        everything: all of them.
        layers: whole layers.
        experts: some experts of a layer.
    """

    everything: bool
    layers: frozenset[int]
    experts: dict[int, set[int]]


NOTHING = Hits(False, frozenset(), {})
EVERYTHING = Hits(True, frozenset(), {})


class _Where(NamedTuple):
    """One entry: the numbers in it (None for a wildcard), and what the next part of a module must start with."""

    numbers: tuple[int | None, ...]
    rest: str | None = None


def _strip(segments: list[str]) -> tuple[list[str], bool]:
    at = 0
    while at < len(segments) - 1 and segments[at] in _WRAPPERS:
        at += 1
    return segments[at:], at > 0


def _key(segments: Iterable[str]) -> tuple[str, ...]:
    return tuple("#" if segment == "*" or _DIGITS.fullmatch(segment) else segment for segment in segments)


def _numbers(segments: Iterable[str]) -> tuple[int | None, ...]:
    return tuple(
        None if segment == "*" else int(segment[:9])
        for segment in segments
        if segment == "*" or _DIGITS.fullmatch(segment)
    )


def _index_blind(text: str) -> bool:
    """Whether a regular expression or wildcard can tell one layer or expert from another; True: it cannot."""
    text = re.sub(r"\\[^A-Za-z0-9]|\.[*+]\??", "", text)
    text = re.sub(r"(?<=[A-Za-z_])\.(?=[A-Za-z_(])", "", text)
    return re.search(r"[0-9.\\\[{]", text) is None


class ModuleList:
    """Modules that a config names.

    Args:
        entries: as the config has them.
        fail: raises the error for an entry that is not understood.

    Raises:
        ConfigError: not a list of strings, or too much of it.
    """

    def __init__(self, entries: Iterable[Any], fail: Callable[[str], Any]) -> None:
        self._fail = fail
        self._anchored: dict[tuple[str, ...], list[_Where]] = {}
        self._floating: dict[tuple[str, ...], list[_Where]] = {}
        self._patterns: list[tuple[Pattern, str, bool]] = []
        self._states = 0
        self._work = 0
        for number, entry in enumerate(entries):
            if number >= MAXIMUM_ENTRIES:
                fail(f"has more than {MAXIMUM_ENTRIES} entries")
            if not isinstance(entry, str) or not entry or len(entry) > MAXIMUM_ENTRY:
                fail(f"must hold names of at most {MAXIMUM_ENTRY} characters")
            self._add(entry)
        self.empty = not (self._anchored or self._floating or self._patterns)

    def _add(self, entry: str) -> None:
        if entry.startswith("re:"):
            self._add_pattern(Pattern, entry[3:])
        elif _REGEX_SIGNS.search(entry) or entry.startswith(".*."):
            self._add_pattern(Pattern, entry)
        else:
            self._add_name(entry.strip(".").removesuffix(".weight"), entry)

    def _add_pattern(self, kind: Callable[[str], Pattern], text: str) -> None:
        if len(self._patterns) >= MAXIMUM_PATTERNS:
            self._fail(f"has more than {MAXIMUM_PATTERNS} patterns")
        try:
            pattern = kind(text)
            self._patterns.append(
                (pattern, text, _index_blind(text.replace("*", "_").replace("?", "0") if kind is glob else text))
            )
        except PatternError as error:
            self._fail(f"has the pattern {ascii(text)[:64]}, which {error}")
            return
        self._states += pattern.size
        if self._states > MAXIMUM_STATES:
            self._fail("has patterns that are too large together")

    def _add_name(self, name: str, entry: str) -> None:
        segments, stripped = _strip(name.split("."))
        rest: str | None = None
        last = segments[-1]
        if last.endswith("*") and (len(segments) > 1 or last == "*"):
            rest = last[:-1]
            if _DIGITS.fullmatch(rest):
                segments, rest = [*segments[:-1], rest], None  # layers.1* is the tree below layers.1
            else:
                segments = segments[:-1]
        if (
            not segments
            or any(segment != "*" and re.search(r"[*?\[\]]", segment) for segment in segments)
            or segments[0] == "*"
        ):
            self._add_pattern(glob, entry)
            return
        anchored = stripped or segments[0] in _LAYER_WORDS or rest is not None
        index = self._anchored if anchored else self._floating
        index.setdefault(_key(segments), []).append(_Where(_numbers(segments), rest))

    # ---- asking ----

    def find(self, tensor: Tensor, *others: str) -> Hits:
        """Which of a group of tensors the list means.

        Args:
            tensor: the group.
            others: further names under which a list may have it.

        Returns:
            Whole layers, experts, or everything.

        Raises:
            ConfigError: the patterns would take too long.
        """
        if self.empty:
            return NOTHING
        layers: set[int] = set()
        experts: dict[int, set[int]] = {}
        for name in (tensor.name, *others):
            module = name.removesuffix(".weight")
            head, _, last = module.rpartition(".")
            for partner in ("", *_PARTNERS.get(last, ())):
                spelling = f"{head}.{partner}" if partner else module
                if self._find_names(spelling, partner, tensor, layers, experts) or self._find_patterns(
                    spelling, partner, tensor, layers
                ):
                    return EVERYTHING
        if not layers and not experts:
            return NOTHING
        return Hits(bool(layers.issuperset(tensor.layers)), frozenset(layers), experts)

    def _find_names(
        self, module: str, partner: str, tensor: Tensor, layers: set[int], experts: dict[int, set[int]]
    ) -> bool:
        segments, _ = _strip(module.split("."))
        stars = [at for at, segment in enumerate(segments) if segment == "*"]
        keys = _key(segments)
        for start in range(len(keys)):
            for end in range(start + 1, len(keys) + 1):
                found = self._floating.get(keys[start:end], ()) if self._floating else ()
                if not start and self._anchored:
                    found = (*found, *self._anchored.get(keys[:end], ()))
                self._count(len(found))
                for where in found:
                    if where.rest is not None:
                        if end == len(keys) or not segments[end].startswith(partner or where.rest):
                            continue
                        if partner and where.rest != partner:
                            continue
                    if self._meets(where, segments, start, end, stars, tensor, layers, experts):
                        return True
            if not self._floating:
                break
        return False

    def _meets(
        self,
        where: _Where,
        segments: list[str],
        start: int,
        end: int,
        stars: list[int],
        tensor: Tensor,
        layers: set[int],
        experts: dict[int, set[int]],
    ) -> bool:
        """Note what one entry means; True where it is everything."""
        layer: int | None = None
        expert: int | None = None
        slots = [at for at in range(start, end) if segments[at] == "*" or _DIGITS.fullmatch(segments[at])]
        for at, number in zip(slots, where.numbers, strict=True):
            if number is None:
                continue
            if segments[at] != "*":
                if int(segments[at][:9]) != number:
                    return False
            elif tensor.layers and at == stars[0]:
                layer = number
            else:
                expert = number
        if layer is None and expert is None:
            return True
        if expert is not None:
            if expert < tensor.per_layer:
                self._count(len(tensor.layers) if layer is None else 1)
                for index in tensor.layers if layer is None else (layer,):
                    experts.setdefault(index, set()).add(expert)
        elif layer is not None:
            layers.add(layer)
        return False

    def _find_patterns(self, module: str, partner: str, tensor: Tensor, layers: set[int]) -> bool:
        for pattern, text, blind in self._patterns:
            if partner not in text:
                continue  # `gate.*` does not mean the up_proj that an engine has in its gate_up_proj
            names = [module]
            if not text.startswith((".*", "*")):
                bare = ".".join(_strip(module.split("."))[0])
                names += [spelling + bare for spelling in _SPELLINGS if spelling + bare != module]
            if blind or "*" not in module or not tensor.layers:
                if any(self._match(pattern, name.replace("*", "0")) for name in names):
                    return True
                continue
            for layer in tensor.layers:
                if layer not in layers and any(
                    self._match(pattern, name.replace("*", str(layer), 1).replace("*", "0")) for name in names
                ):
                    layers.add(layer)
        return bool(tensor.layers) and layers.issuperset(tensor.layers)

    def _match(self, pattern: Pattern, name: str) -> bool:
        before = pattern.cost
        found = pattern.match(name)
        self._count(len(name) // 8 + pattern.cost - before)
        return found

    def _count(self, steps: int) -> None:
        self._work += steps
        if self._work > MAXIMUM_WORK:
            self._fail("takes too long to match")
