"""A quantization_config as rules: which weights are stored in which format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvtax.architectures.quantization.formats import Format
from kvtax.architectures.quantization.modules import Hits, ModuleList
from kvtax.architectures.quantization.stored import StoredTensor, plain
from kvtax.architectures.tensors import Tensor

TOWERS = frozenset(("vision", "audio"))
# what recipes leave in 16 bit unless a list says otherwise
USUAL = frozenset(("lm_head", "embedding", "router", "norms")) | TOWERS


class Rule(NamedTuple):
    """Modules and what they are stored in; None leaves them as they are."""

    modules: ModuleList
    format: Format | None


class _Piece(NamedTuple):
    """Part of a group of tensors: whole layers, and layers of which only some experts are meant."""

    layers: tuple[int, ...]
    experts: dict[int, frozenset[int]]


class Scheme:
    """Rules in order, the first that names a module wins; then a default for the linear layers that a method touches.

    Args:
        method: the quant_method of the config.
        default: format of what no rule names, None to leave it.
        rules: in order.
        untouched: components that the default leaves alone.
        only: components that the default is for; empty for all others.
        formats: whose names and bits stand for the whole, `default` and those of the rules unless given.
        kv_cache_dtype: declared by the checkpoint.
        hidden_size: tells the sides of stacked experts apart, 0 where unknown.
    """

    def __init__(
        self,
        method: str,
        default: Format | None,
        rules: Sequence[Rule] = (),
        *,
        untouched: Iterable[str] = USUAL,
        only: Iterable[str] = (),
        kv_cache_dtype: str | None = None,
        hidden_size: int = 0,
    ) -> None:
        self.method = method
        self.default = default
        self.rules = tuple(rule for rule in rules if not rule.modules.empty)
        self.untouched = frozenset(untouched)
        self.only = frozenset(only)
        self.kv_cache_dtype = kv_cache_dtype
        self.hidden_size = hidden_size
        formats = [*((default,) if default else ()), *(rule.format for rule in rules if rule.format)]
        names = {format.name for format in formats}
        main = min(formats, key=lambda format: format.bits) if formats else None
        self.name = "" if main is None else main.name if len(names) == 1 else f"{main.name}-mixed"
        self.bits = main.bits if main else 16
        self.group_size = main.group_size if main else 0

    def __eq__(self, other: object) -> bool:
        """Whether it is the same object: two configs are not compared."""
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        """The name."""
        return f"<quantization {self.name}>"

    def stored(self, tensor: Tensor, dtype: str) -> Iterable[StoredTensor]:
        """What is stored for one group of tensors."""
        if not tensor.linear or len(tensor.shape) not in (2, 3):
            return (plain(tensor, dtype),)
        if len(tensor.shape) == 2:
            return self._stored_matrices(tensor, tensor.shape[0], tensor.shape[1], dtype)
        found: list[StoredTensor] = []
        count, out, inner, stack = _sides(tensor, self.hidden_size)
        parts = self._assign(stack, tensor.name)
        if all(format is None for format, _ in parts):
            return (plain(tensor, dtype),)
        for format, group in parts:
            whole = tensor._replace(layers=group.layers)
            if format is None:
                left = whole if group.per_layer == count else whole._replace(shape=(group.per_layer, *tensor.shape[1:]))
                found.append(plain(left, dtype))
            elif format.stacked:
                base = tensor.name.removesuffix(".weight")
                for part in format.parts(out, inner, tensor.dtype or dtype):
                    source = whole if part.counted else whole._replace(parameter=False)
                    found.append(
                        StoredTensor(base + part.suffix, (count, *part.shape), part.dtype, whole.count, source, part.scale)
                    )
            else:
                for one in _unstack(group, out, inner):
                    found.extend(_pack(one, format, one.shape[0], one.shape[1], dtype))
        return found

    def _stored_matrices(self, tensor: Tensor, out: int, inner: int, dtype: str) -> list[StoredTensor]:
        found: list[StoredTensor] = []
        for format, group in self._assign(tensor):
            if format is None:
                found.append(plain(group, dtype))
            else:
                found.extend(_pack(group, format, out, inner, dtype))
        return found

    # ---- which format ----

    def _default_for(self, tensor: Tensor) -> Format | None:
        if tensor.component in self.untouched or (self.only and tensor.component not in self.only):
            return None
        return self.default

    def _assign(self, tensor: Tensor, *others: str) -> list[tuple[Format | None, Tensor]]:
        """The group, parted by format."""
        taken: dict[Format | None, list[_Piece]] = {}
        left = _Piece(tensor.layers, {})
        done = False
        for rule in self.rules:
            hits = rule.modules.find(tensor, *others)
            if hits.everything:
                taken.setdefault(rule.format, []).append(left)
                done = True
                break
            if hits.layers or hits.experts:
                piece, left = _split(left, hits, tensor.per_layer)
                taken.setdefault(rule.format, []).append(piece)
        if not done:
            taken.setdefault(self._default_for(tensor), []).append(left)
        if len(taken) == 1:
            return [(next(iter(taken)), tensor)]
        return [(format, group) for format, pieces in taken.items() for group in _groups(tensor, pieces)]


def _split(left: _Piece, hits: Hits, per_layer: int) -> tuple[_Piece, _Piece]:
    """What the hits take of a piece, and what stays."""
    every = frozenset(range(per_layer)) if hits.experts else frozenset()
    taken_layers: list[int] = []
    kept_layers: list[int] = []
    taken: dict[int, frozenset[int]] = {}
    kept: dict[int, frozenset[int]] = {}
    for layer in left.layers:
        if layer in hits.layers:
            taken_layers.append(layer)
        elif layer in hits.experts:
            taken[layer] = frozenset(hits.experts[layer])
            kept[layer] = every - taken[layer]
        else:
            kept_layers.append(layer)
    for layer, experts in left.experts.items():
        chosen = experts if layer in hits.layers else experts & hits.experts.get(layer, set())
        taken[layer] = chosen
        kept[layer] = experts - chosen
    return _Piece(tuple(taken_layers), taken), _Piece(tuple(kept_layers), kept)


def _groups(tensor: Tensor, pieces: Iterable[_Piece]) -> Iterable[Tensor]:
    """The pieces of one format as groups of equal tensors."""
    layers: set[int] = set()
    experts: dict[int, int] = {}
    for piece in pieces:
        layers.update(piece.layers)
        for layer, chosen in piece.experts.items():
            experts[layer] = experts.get(layer, 0) + len(chosen)
    by_count: dict[int, list[int]] = {}
    for layer, count in experts.items():
        if count == tensor.per_layer:
            layers.add(layer)
        elif count:
            by_count.setdefault(count, []).append(layer)
    if layers:
        yield tensor._replace(layers=tuple(sorted(layers)))
    for count, chosen_layers in sorted(by_count.items()):
        yield tensor._replace(layers=tuple(sorted(chosen_layers)), per_layer=count)


def _sides(tensor: Tensor, hidden_size: int) -> tuple[int, int, int, Tensor]:
    """Of a stack of experts: how many, rows and columns of one, and the stack as single matrices.

    The residual stream is the input of `gate_up_proj` and the output of `down_proj`, whichever dimension it stands in.
    """
    count, first, second = tensor.shape
    last = tensor.name.removesuffix(".weight").rpartition(".")[2]
    out, inner = first, second
    if (last.startswith("gate") or last.startswith("up")) and first == hidden_size != second:
        out, inner = second, first
    elif last.startswith("down") and second == hidden_size != first:
        out, inner = second, first
    module, _, _ = tensor.name.rpartition(".")
    name = f"{module}.*.{last}.weight" if last in ("gate_up_proj", "down_proj", "up_proj", "gate_proj") else tensor.name
    return count, out, inner, tensor._replace(name=name, shape=(out, inner), per_layer=tensor.per_layer * count)


def _unstack(stack: Tensor, out: int, inner: int) -> Iterable[Tensor]:
    """The linear layers that a stack becomes where a method takes linear layers only."""
    if stack.name.endswith(".gate_up_proj.weight") and out % 2 == 0:
        module = stack.name.removesuffix("gate_up_proj.weight")
        return [stack._replace(name=f"{module}{name}.weight", shape=(out // 2, inner)) for name in ("gate_proj", "up_proj")]
    return [stack]


def _pack(tensor: Tensor, format: Format, out: int, inner: int, dtype: str) -> Iterable[StoredTensor]:
    """What a format stores for equal matrices."""
    base = tensor.name.removesuffix(".weight")
    for part in format.parts(out, inner, tensor.dtype or dtype):
        source = tensor if part.counted else tensor._replace(parameter=False)
        yield StoredTensor(base + part.suffix, part.shape, part.dtype, tensor.count, source, part.scale)
