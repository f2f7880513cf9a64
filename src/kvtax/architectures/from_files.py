"""The weights of a checkpoint as its files hold them, matched by name with the inventory that says what each is for.

Headers say how many bytes there are; the inventory says which part of the model they are, how tensor parallelism splits them and whether
serving loads them. Names are compared without the wrappers that differ from one release of a library to the next (`model.`,
`language_model.`), and a scale or a packed weight belongs to the module that it stands in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.quantization.stored import StoredTensor
from kvtax.architectures.tensors import COLUMN, EXPERT, REPLICATED, ROW, VOCAB, Tensor
from kvtax.dtypes import DTYPES

_NUMBER = re.compile(r"(?<![^.])(\d{1,9})(?![^.])")
WRAPPERS = frozenset(
    ("model", "language_model", "text_model", "transformer", "llm", "thinker", "base_model", "module", "backbone",
     "gpt_neox", "rwkv", "bert", "roberta", "deberta", "electra", "distilbert")
)  # fmt: skip
"""First words of a name that say which class wraps the model."""
_TOWERS = {
    "vision": ("visual", "vision", "vision_tower", "vision_model", "image_newline", "vit", "img", "mm_projector", "multi_modal_projector",
               "patch_embed", "image_encoder", "resampler", "vpm", "aligner"),
    "audio": ("audio", "audio_tower", "speech", "apm", "audio_encoder", "conformer"),
}  # fmt: skip
_MTP = ("mtp", "nextn", "eh_proj", "enorm", "hnorm", "mtp_block", "multi_token")
_BUFFERS = (
    "inv_freq",
    "masked_bias",
    "position_ids",
    "num_batches_tracked",
    "rotary_emb",
    "k_scale",
    "v_scale",
    "q_scale",
    "kv_scale",
)
_SPLITS = {
    COLUMN: ("q_proj", "k_proj", "v_proj", "qkv_proj", "gate_proj", "up_proj", "gate_up_proj", "w1", "w3", "wq", "wk", "wv", "c_fc", "fc1"),
    ROW: ("o_proj", "down_proj", "w2", "wo", "c_proj", "out_proj", "fc2"),
    VOCAB: ("embed_tokens", "wte", "lm_head", "tok_embeddings", "output"),
}  # fmt: skip
_NOT_WEIGHTS = (
    "scale",
    "scales",
    "zeros",
    "qzeros",
    "zero_point",
    "g_idx",
    "weight_shape",
    "absmax",
    "quant_map",
    "quant_state",
    "nested",
    "bitsandbytes",
)
_FLOATS = ("float64", "float32", "float16", "bfloat16")


class TensorInFile(Protocol):
    """One tensor that a header names."""

    @property
    def name(self) -> str:
        """In the file."""

    @property
    def dtype(self) -> str:
        """A name of `dtypes`, anything else for a format that is not known."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[elements]."""

    @property
    def bytes(self) -> int:
        """In the file [bytes]."""


class Gap(NamedTuple):
    """What the files hold beside what the config counts, or the other way round.

    Args:
        what: a component, or the first words of the names.
        bytes: more in the files where positive [bytes].
    """

    what: str
    bytes: int


class Weighed(NamedTuple):
    """A checkpoint that was matched.

    Args:
        stored: its tensors.
        bytes: of all of them [bytes].
        counted_bytes: what the config makes of it [bytes].
        gaps: where the two differ, largest first.
    """

    stored: tuple[StoredTensor, ...]
    bytes: int
    counted_bytes: int
    gaps: tuple[Gap, ...]

    @property
    def differs(self) -> bool:
        """Whether files and config differ by more than 0.1 %."""
        return abs(self.bytes - self.counted_bytes) * 1000 > self.counted_bytes


class _Known(NamedTuple):
    """A place in the inventory: the tensor, whether what is stored is a scale, and its name with the numbers that are no index."""

    tensor: Tensor
    scale: bool
    name: str


def match(architecture: Architecture, tensors: Iterable[TensorInFile]) -> Weighed:
    """The tensors of files as the weights of a model.

    sum of bytes over all tensors of all headers

    Args:
        architecture: what the config says.
        tensors: of all files together.

    Returns:
        What is stored: groups of equal tensors, each with the tensor of the inventory that it stands for.

    Source: names as in the checkpoints of each family; safetensors format.
    """
    places = _Places(architecture)
    groups: dict[tuple[str, tuple[int, ...], str, int], list[tuple[int, ...]]] = {}
    total = 0
    for tensor in tensors:
        numbers = tuple(map(int, _NUMBER.findall(tensor.name)))
        size = tensor.bytes if tensor.dtype not in DTYPES else 0
        # a star in a name would be taken for an index
        key = (_NUMBER.sub("*", tensor.name.replace("*", "?")), tensor.shape, tensor.dtype, size)
        groups.setdefault(key, []).append(numbers)
        total += tensor.bytes
    stored: list[StoredTensor] = []
    for (pattern, shape, dtype, size), indices in groups.items():
        by_place: dict[_Known, list[tuple[int, ...]]] = {}
        of_layer: dict[tuple[int, ...], _Known] = {}
        for numbers in indices:
            place = of_layer.get(numbers[:1])
            if place is None or not places.by_layer(pattern):
                place = of_layer[numbers[:1]] = places.find(pattern, numbers, shape)
            by_place.setdefault(place, []).append(numbers)
        for place, held in by_place.items():
            form = (shape, dtype) if not size and dtype in DTYPES else ((size,), "uint8")
            stored += _stored(place, *form, held)
    stored += [
        made for made in architecture.stored_tensors() if not made.source.stored
    ]  # made when loading, in no file
    counted = architecture.checkpoint_bytes or 0
    return Weighed(tuple(stored), total, counted, _gaps(architecture.stored_tensors(), stored))


def _stored(
    place: _Known, shape: tuple[int, ...], dtype: str, indices: Sequence[tuple[int, ...]]
) -> Iterable[StoredTensor]:
    """Equal tensors of one place: the layers that have as many of them are one group."""
    tensor = place.tensor
    if dtype in _FLOATS and tensor.name == place.name and not place.scale:
        tensor = tensor._replace(shape=shape)
    free = [position for position, word in enumerate(_literals(place.name)) if word is None]
    if not free:
        for _ in indices:
            yield StoredTensor(place.name, shape, dtype, 1, tensor._replace(layers=(), per_layer=1), place.scale)
        return
    per_layer: dict[int, int] = {}
    for numbers in indices:
        per_layer[numbers[free[0]]] = per_layer.get(numbers[free[0]], 0) + 1
    by_count: dict[int, list[int]] = {}
    for layer, count in per_layer.items():
        by_count.setdefault(count, []).append(layer)
    for count, layers in sorted(by_count.items()):
        source = tensor._replace(layers=tuple(sorted(layers)), per_layer=count)
        yield StoredTensor(place.name, shape, dtype, count * len(layers), source, place.scale)


def _literals(name: str) -> list[int | None]:
    """The numbers in a name in order: None for an index, the number where it is part of the name."""
    return [None if word == "*" else int(word) for word in name.split(".") if word == "*" or _NUMBER.fullmatch(word)]


class _Places:
    """The inventory by name, as stored, as a module, and without wrappers."""

    def __init__(self, architecture: Architecture) -> None:
        self.layers = architecture.num_hidden_layers
        self.tied = not any(tensor.component == "lm_head" for tensor in architecture.tensors)
        self.exact: dict[str, list[_Known]] = {}
        self.core: dict[str, list[_Known]] = {}
        self.modules: dict[str, list[_Known]] = {}
        self._by_layer: dict[str, bool] = {}
        self.experts = next(
            (one for one in architecture.tensors if one.component == "routed_experts" and one.loaded), None
        )
        for stored in architecture.stored_tensors():
            if not stored.source.stored:
                continue
            known = _Known(stored.source, stored.scale, stored.name)
            self._add(self.exact, stored.name, known)
            self._add(self.core, _core(stored.name), known)
        for tensor in architecture.tensors:
            known = _Known(tensor, False, tensor.name)
            self._add(self.modules, _core(_module(tensor.name)), known)

    @staticmethod
    def _add(found: dict[str, list[_Known]], name: str, known: _Known) -> None:
        found.setdefault(_NUMBER.sub("*", name), []).append(known)

    def by_layer(self, pattern: str) -> bool:
        """Whether the first index of a name alone decides where it belongs: no other number in it is a part of the name."""
        known = self._by_layer.get(pattern)
        if known is None:
            keys = (pattern, _core(pattern), _core(_module(pattern)))
            places = [
                place for key in keys for names in (self.exact, self.core, self.modules) for place in names.get(key, ())
            ]
            known = all(literal is None for place in places for literal in _literals(place.name)[1:])
            self._by_layer[pattern] = known
        return known

    def find(self, pattern: str, numbers: tuple[int, ...], shape: tuple[int, ...]) -> _Known:
        """The place of a tensor in the inventory, or one made for it."""
        last = pattern.rpartition(".")[2]
        if (last in _BUFFERS or last.startswith("bitsandbytes")) and pattern not in self.exact:
            return self._made(pattern, numbers, shape)
        for names, key in (
            (self.exact, pattern),
            (self.core, _core(pattern)),
            (self.modules, _core(_module(pattern))),
            (self.modules, _core(pattern)),
        ):
            place = self._choose(names.get(key, ()), pattern, numbers)
            if place is not None:
                if names is not self.modules:
                    return place
                name = pattern if last == place.name.rpartition(".")[2] else f"{_module(place.name)}.{last}"
                named = name if _NUMBER.sub("*", name) == pattern else pattern
                return _Known(place.tensor, _is_scale(last), _with_literals(named, place.name))
        return self._made(pattern, numbers, shape)

    def _choose(self, known: Sequence[_Known], pattern: str, numbers: tuple[int, ...]) -> _Known | None:
        """Of places with the same name, the one whose own numbers are the same and whose layers have the index."""
        fallback = None
        for place in known:
            literals = _literals(place.name)
            if len(literals) != len(numbers):
                continue
            if any(want is not None and want != have for want, have in zip(literals, numbers, strict=True)):
                continue
            layer = next((have for want, have in zip(literals, numbers, strict=True) if want is None), None)
            named = place._replace(name=_with_literals(pattern, place.name))
            if layer is None or not place.tensor.layers or layer in place.tensor.layers:
                return named
            fallback = fallback or named
        if fallback is not None and self._beyond(pattern, numbers):
            return None
        return fallback

    def _beyond(self, pattern: str, numbers: tuple[int, ...]) -> bool:
        """Whether a tensor belongs to a decoder layer after the last one."""
        return (
            _core(pattern).startswith(("layers.*", "h.*", "blocks.*")) and bool(numbers) and numbers[0] >= self.layers
        )

    def _made(self, pattern: str, numbers: tuple[int, ...], shape: tuple[int, ...]) -> _Known:
        """A place for a tensor that the inventory lacks, from the words of its name."""
        words = pattern.lower().split(".")
        component, loaded, parameter = "other", True, True
        if any(word in _BUFFERS or word.startswith("bitsandbytes") for word in words[-2:]):
            loaded = parameter = False
        elif self._beyond(pattern, numbers) or any(word.startswith(_MTP) for word in words):
            component, loaded = "mtp", False
        elif words[-2:-1] == ["lm_head"] and self.tied:
            component, loaded = "lm_head", False
        elif self.experts is not None and "experts" in words:
            # one tensor for all experts of a layer where the inventory has one for each, or the other way round
            one_each = "*" in words[words.index("experts") + 1 :]
            made = self.experts._replace(
                name=pattern, shape=shape, shard=EXPERT if one_each or len(shape) > 1 else REPLICATED
            )
            return _Known(made, _is_scale(words[-1]), pattern)
        else:
            for tower, names in _TOWERS.items():
                if any(word in names for word in words):
                    component = tower
        shard = REPLICATED
        for split, names in _SPLITS.items():
            if component == "other" and any(word in names for word in words[-2:]):
                shard = split if len(shape) > 1 or split == COLUMN else REPLICATED
        tensor = Tensor(pattern, shape, component, shard=shard, parameter=parameter, loaded=loaded)
        return _Known(tensor, _is_scale(words[-1]), pattern)


def _with_literals(pattern: str, name: str) -> str:
    """A pattern with the numbers that belong to a name put back."""
    literals = iter(_literals(name))
    words = []
    for word in pattern.split("."):
        literal = next(literals, None) if word == "*" else None
        words.append(word if literal is None else str(literal))
    return ".".join(words)


def _core(name: str) -> str:
    """A name without the wrappers in front."""
    words = name.split(".")
    while len(words) > 2 and words[0] in WRAPPERS:
        words = words[1:]
    return ".".join(words)


def _module(name: str) -> str:
    """The module that a tensor stands in: without its last word, or without all that follows `.weight`."""
    before, weight, _ = name.partition(".weight.")
    return before if weight else name.rpartition(".")[0]


def _is_scale(word: str) -> bool:
    return any(part in word for part in _NOT_WEIGHTS)


def _gaps(counted: Iterable[StoredTensor], found: Iterable[StoredTensor]) -> tuple[Gap, ...]:
    """By component, where files and config differ."""
    sizes: dict[str, int] = {}
    for stored in counted:
        if stored.source.stored:
            sizes[stored.source.component] = sizes.get(stored.source.component, 0) - stored.bytes
    for stored in found:
        if stored.source.stored:
            sizes[stored.source.component] = sizes.get(stored.source.component, 0) + stored.bytes
    gaps = [Gap(what, size) for what, size in sizes.items() if size]
    return tuple(sorted(gaps, key=lambda gap: -abs(gap.bytes)))
