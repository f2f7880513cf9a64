"""Changes and grids as people write them: `tp=2`, `max_model_len=8k,32k,128k`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from kvtax.deployment import CHOICE_FIELDS, FLAG_FIELDS, MEMORY_FIELDS, TOKEN_FIELDS, find_field, read_field
from kvtax.errors import InputError
from kvtax.units import GIB, KIB, MIB

MOST_CELLS = 10_000
"""Budgets of one table: more are a sweep, whose results go to a file."""
_WITH_COMMAS = frozenset(("limit_mm_per_prompt", "tensor_split", "max_attention_window"))
"""Fields whose values hold commas: only `;` separates them."""
MEMORY_UNITS = (("GiB", GIB), ("MiB", MIB), ("KiB", KIB))
TOKEN_UNITS = (("M", MIB), ("k", KIB))
_FLAG_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class Axis(NamedTuple):
    """A field of a Deployment and the values it takes in turn; None is the engine's default."""

    name: str
    values: tuple[Any, ...]


def read_change(text: str) -> tuple[str, Any]:
    """One change: a field and its new value.

    >>> read_change("tp=2")
    ('tensor_parallel_size', 2)

    Raises:
        InputError: no `=`, no such field, or a value that cannot be.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(
            f"{text[:64]!r} is not FIELD=VALUE", code="invalid-input", hint="write it so: kv_cache_dtype=fp8"
        )
    return read_value(name, value)


def read_value(name: str, text: str) -> tuple[str, Any]:
    """A field and its value from words: flags are true or false; `default`, `none` or nothing is None, the engine's default.

    >>> read_value("enforce-eager", "true"), read_value("context", "8k"), read_value("dtype", "default")
    (('enforce_eager', True), ('max_model_len', 8192), ('dtype', None))

    Raises:
        InputError: no such field, or a value that cannot be.
    """
    key, word = _field_key(name), text.strip()
    field, small = find_field(key), word.lower()
    if small in ("", "default") or (small == "none" and small not in CHOICE_FIELDS.get(field, ())):
        return field, None
    if field not in FLAG_FIELDS:
        return read_field(key, word)
    if small not in _FLAG_WORDS:
        raise InputError(f"must be true or false, not {word[:64]!r}", code="invalid-input", where=field)
    return read_field(key, _FLAG_WORDS[small])


def _field_key(name: str) -> str:
    """A field's name as it is written on a command line or in Python."""
    return name.strip().removeprefix("--").replace("-", "_")


def read_axis(text: str) -> Axis:
    """One axis of a grid; values are separated by commas, or by `;` where a value holds commas itself.

    >>> read_axis("context=8k,32k")
    Axis(name='max_model_len', values=(8192, 32768))

    Raises:
        InputError: no such field, a value that cannot be, or one that is given twice.
    """
    name, equals, words = text.partition("=")
    if not equals:
        raise InputError(
            f"{text[:64]!r} is not FIELD=VALUE,VALUE", code="invalid-input", hint="write it so: max_model_len=8k,32k"
        )
    field = find_field(_field_key(name))
    separator = ";" if field in _WITH_COMMAS or ";" in words or "{" in words else ","
    return make_axis(field, [read_value(name, part)[1] for part in words.split(separator)])


def make_axis(name: str, values: Iterable[Any]) -> Axis:
    """An axis of values that are checked already.

    Raises:
        InputError: a value is given twice.
    """
    found = list(values)
    try:
        if len(set(found)) == len(found):
            return Axis(name, tuple(found))
    except TypeError:  # a config at hand has no hash
        pass
    for place, value in enumerate(found):
        if value in found[:place]:
            raise InputError(f"{value!r:.64} is given twice", code="value-given-twice", where=name)
    return Axis(name, tuple(found))


def read_axes(grid: Mapping[str, Any] | Sequence[str]) -> tuple[Axis, ...]:
    """Axes from `--vary` words, or from a mapping of fields to lists of values.

    Raises:
        InputError: a field that is given twice, or what `read_axis` refuses.
    """
    axes = tuple(
        [_axis_of_values(name, values) for name, values in grid.items()]
        if isinstance(grid, Mapping)
        else map(read_axis, grid)
    )
    names = [axis.name for axis in axes]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name} is varied twice", code="field-given-twice", where=name)
    return axes


def _axis_of_values(name: str, values: Any) -> Axis:
    if isinstance(values, str) or not isinstance(values, Iterable):
        values = [values]
    field = find_field(name)
    return make_axis(field, [None if value is None else read_field(name, value)[1] for value in values])


def check_size(axes: Sequence[Axis], most: int = MOST_CELLS) -> int:
    """The number of budgets in a grid.

    Raises:
        InputError: more than `most`, or an axis without a value.
    """
    size = prod(len(axis.values) for axis in axes)
    if not size:
        raise InputError("an axis has no value", code="empty-axis")
    if size > most:
        shown = " x ".join(f"{len(axis.values):,} {axis.name}" for axis in axes)
        raise InputError(
            f"{shown} make {size:,} budgets, more than {most:,}",
            code="grid-too-large",
            hint="vary less at once, or write them to a file: kvtax sweep",
        )
    return size


def expand(axes: Sequence[Axis]) -> Iterator[dict[str, Any]]:
    """Every combination, the last axis fastest.

    >>> list(expand([Axis("max_model_len", (1, 2)), Axis("dtype", (None,))]))
    [{'max_model_len': 1, 'dtype': None}, {'max_model_len': 2, 'dtype': None}]
    """
    names = [axis.name for axis in axes]
    for values in product(*(axis.values for axis in axes)):
        yield dict(zip(names, values, strict=True))


def show_value(name: str, value: Any) -> str:
    """A value as one would type it; `read_value` gives it back.

    >>> show_value("max_model_len", 32768), show_value("vram", 48 << 30), show_value("dtype", None)
    ('32k', '48GiB', 'default')
    """
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "true" if value else "false"
    if name == "model":
        return value if isinstance(value, str) else "a config"
    if isinstance(value, int) and value:
        units = MEMORY_UNITS if name in MEMORY_FIELDS else TOKEN_UNITS if name in TOKEN_FIELDS else ()
        for unit, factor in units:
            if value % factor == 0:
                return f"{value // factor}{unit}"
    return str(value)


def show_change(fields: Mapping[str, Any]) -> str:
    """Changed fields as one would type them.

    >>> show_change({"tensor_parallel_size": 2, "kv_cache_dtype": "fp8"})
    'tensor_parallel_size=2 kv_cache_dtype=fp8'
    """
    return " ".join(f"{name}={show_value(name, value)}" for name, value in fields.items())
