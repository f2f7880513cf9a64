"""A quantization_config as rules: which weights are stored in which format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kvtax.architectures.quantization.formats import Format
from kvtax.architectures.quantization.modules import Hits, ModuleList
from kvtax.architectures.quantization.stored import StoredTensor, plain
from kvtax.architectures.tensors import COLUMN, GROUPS, HEADS, REPLICATED, ROW, VOCAB, Tensor
from kvtax.errors import ConfigError

MAXIMUM_RULES = 256
TOWERS = frozenset(("vision", "audio"))
# what recipes leave in 16 bit unless a list says otherwise
USUAL = frozenset(("lm_head", "embedding", "router", "norms")) | TOWERS
# a scale for each row is whole on every rank of a weight whose columns are split, and the other way round
_WHOLE = {"out": (ROW,), "in": (COLUMN, HEADS, VOCAB, GROUPS)}


class Rule(NamedTuple):
    """Modules and what they are stored in; None leaves them as they are."""

    modules: ModuleList
    format: Format | None


class _Share:
    """What one format gets of a group of tensors: whole layers, and so many experts of others."""

    def __init__(self) -> None:
        self.layers: list[int] = []
        self.experts: dict[int, int] = {}

    def add(self, layer: int, experts: int) -> None:
        self.experts[layer] = self.experts.get(layer, 0) + experts

    def groups(self, tensor: Tensor) -> Iterable[Tensor]:
        """As groups of equal tensors."""
        by_count: dict[int, list[int]] = {}
        layers = list(self.layers)
        for layer, count in self.experts.items():
            if count == tensor.per_layer:
                layers.append(layer)
            elif count:
                by_count.setdefault(count, []).append(layer)
        if layers:
            yield tensor._replace(layers=tuple(sorted(layers)))
        for count, chosen in sorted(by_count.items()):
            yield tensor._replace(layers=tuple(sorted(chosen)), per_layer=count)


class Scheme:
    """Rules in order, the first that names a module wins; then a default for the linear layers that a method touches.

    Args:
        method: the quant_method of the config.
        default: format of what no rule names, None to leave it.
        rules: in order.
        untouched: components that the default leaves alone.
        only: components that the default is for; empty for all others.
        others: components that have a format of their own where no rule names them.
        formats: whose names and bits stand for the whole, `default` and those of the rules unless given.
        kv_cache_dtype: declared by the checkpoint.
        hidden_size: tells the sides of stacked experts apart, 0 where unknown.
        activation_order: GPTQ's desc_act with groups: rows are in the order of their activations.
    """

    def __init__(
        self,
        method: str,
        default: Format | None,
        rules: Sequence[Rule] = (),
        *,
        untouched: Iterable[str] = USUAL,
        only: Iterable[str] = (),
        others: Mapping[str, Format] | None = None,
        kv_cache_dtype: str | None = None,
        hidden_size: int = 0,
        activation_order: bool = False,
    ) -> None:
        self.method = method
        self.activation_order = activation_order
        self.default = default
        self.rules = tuple(rule for rule in rules if not rule.modules.empty)
        if len(self.rules) > MAXIMUM_RULES:
            raise ConfigError(f"has more than {MAXIMUM_RULES} formats", where="config.json: quantization_config")
        self.untouched = frozenset(untouched)
        self.only = frozenset(only)
        self.others = dict(others or {})
        self.kv_cache_dtype = kv_cache_dtype
        self.hidden_size = hidden_size
        formats = [*((default,) if default else ()), *(rule.format for rule in self.rules if rule.format)]
        names = {one.name for one in formats}
        main = min(formats, key=lambda one: one.bits) if formats else None
        self.name = "" if main is None else main.name if len(names) == 1 else f"{main.name}-mixed"
        self.bits = main.bits if main else 16
        self.group_size = main.group_size if main else 0

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
        if all(chosen is None for chosen, _ in parts):
            return (plain(tensor, dtype),)
        for chosen, group in parts:
            experts = count if group.per_layer == stack.per_layer else group.per_layer
            whole = tensor._replace(layers=group.layers, shape=(experts, *tensor.shape[1:]))
            if chosen is None:
                found.append(plain(whole, dtype))
            elif chosen.stacked:
                base = tensor.name.removesuffix(".weight")
                for part in chosen.parts(out, inner, tensor.dtype or dtype):
                    source = whole if part.counted else whole._replace(parameter=False)
                    found.append(
                        StoredTensor(
                            base + part.suffix, (experts, *part.shape), part.dtype, whole.copies, source, part.scale
                        )
                    )
            else:
                for one in _unstack(group, out, inner):
                    found.extend(_pack(one, chosen, one.shape[0], one.shape[1], dtype))
        return found

    def _stored_matrices(self, tensor: Tensor, out: int, inner: int, dtype: str) -> list[StoredTensor]:
        found: list[StoredTensor] = []
        for chosen, group in self._assign(tensor):
            if chosen is None:
                found.append(plain(group, dtype))
            else:
                found.extend(_pack(group, chosen, out, inner, dtype))
        return found

    # ---- which format ----

    def _default_for(self, tensor: Tensor) -> Format | None:
        if tensor.component in self.untouched or (self.only and tensor.component not in self.only):
            return None
        return self.others.get(tensor.component, self.default)

    def _assign(self, tensor: Tensor, *others: str) -> list[tuple[Format | None, Tensor]]:
        """The group, parted by format."""
        shares: dict[Format | None, _Share] = {}
        left: tuple[int, ...] = tensor.layers
        gone: dict[int, set[int]] = {}  # experts that are taken of layers that others are left of
        for rule in self.rules:
            hits = rule.modules.find(tensor, *others)
            if hits.everything:
                if not shares:
                    return [(rule.format, tensor)]
                _take_rest(shares.setdefault(rule.format, _Share()), left, gone, tensor.per_layer)
                break
            if hits.layers or hits.experts:
                left = _take(shares.setdefault(rule.format, _Share()), hits, left, gone, tensor.per_layer)
        else:
            if not shares:
                return [(self._default_for(tensor), tensor)]
            _take_rest(shares.setdefault(self._default_for(tensor), _Share()), left, gone, tensor.per_layer)
        return [(chosen, group) for chosen, share in shares.items() for group in share.groups(tensor)]


def _take_rest(share: _Share, left: Iterable[int], gone: dict[int, set[int]], per_layer: int) -> None:
    share.layers.extend(left)
    for layer, taken in gone.items():
        share.add(layer, per_layer - len(taken))


def _take(
    share: _Share, hits: Hits, left: tuple[int, ...], gone: dict[int, set[int]], per_layer: int
) -> tuple[int, ...]:
    """Give a format what a list means; the layers of which nothing is taken yet."""
    for layer in list(gone):
        if layer in hits.layers:
            share.add(layer, per_layer - len(gone.pop(layer)))
        elif layer in hits.experts:
            new = hits.experts[layer] - gone[layer]
            gone[layer] |= new
            share.add(layer, len(new))
    kept: list[int] = []
    for layer in left:
        if layer in hits.layers:
            share.layers.append(layer)
        elif layer in hits.experts:
            gone[layer] = set(hits.experts[layer])
            share.add(layer, len(gone[layer]))
        else:
            kept.append(layer)
    return tuple(kept)


def _sides(tensor: Tensor, hidden_size: int) -> tuple[int, int, int, Tensor]:
    """Of a stack of experts: how many, rows and columns of one, and the stack as single matrices.

    The residual stream is the input of `gate_up_proj` and the output of `down_proj`, whichever dimension it stands in.
    """
    count, first, second = tensor.shape
    last = tensor.name.removesuffix(".weight").rpartition(".")[2]
    stream = first if last.startswith(("gate", "up")) else second if last.startswith("down") else 0
    turned = first != second and stream == hidden_size > 0
    out, inner = (second, first) if turned else (first, second)
    module, _, _ = tensor.name.rpartition(".")
    name = f"{module}.*.{last}.weight" if last in ("gate_up_proj", "down_proj", "up_proj", "gate_proj") else tensor.name
    return count, out, inner, tensor._replace(name=name, shape=(out, inner), per_layer=tensor.per_layer * count)


def _unstack(stack: Tensor, out: int, inner: int) -> Iterable[Tensor]:
    """The linear layers that a stack becomes where a method takes linear layers only."""
    if stack.name.endswith(".gate_up_proj.weight") and out % 2 == 0:
        module = stack.name.removesuffix("gate_up_proj.weight")
        return [
            stack._replace(name=f"{module}{name}.weight", shape=(out // 2, inner)) for name in ("gate_proj", "up_proj")
        ]
    return [stack]


def _pack(tensor: Tensor, chosen: Format, out: int, inner: int, dtype: str) -> Iterable[StoredTensor]:
    """What a format stores for equal matrices."""
    base = tensor.name.removesuffix(".weight")
    for part in chosen.parts(out, inner, tensor.dtype or dtype):
        source = tensor if part.counted else tensor._replace(parameter=False)
        if tensor.shard in _WHOLE.get(part.along, ()):
            source = source._replace(shard=REPLICATED, heads=(0, 0))
        yield StoredTensor(base + part.suffix, part.shape, part.dtype, tensor.copies, source, part.scale)
