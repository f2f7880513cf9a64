"""Bytes, tokens and counts as people write and read them; the only place that parses or formats a number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kvtax.errors import InputError

KIB = 1024
MIB = 1024**2
GIB = 1024**3
TIB = 1024**4

_MEMORY_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": KIB, "m": MIB, "g": GIB, "t": TIB,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB, "ki": KIB, "mi": MIB, "gi": GIB, "ti": TIB,
}  # fmt: skip
_TOKEN_UNITS = {"": 1, "k": KIB, "m": MIB, "g": GIB}
_MAXIMUM_BYTES = 2**60
_MAXIMUM_TOKENS = 2**31


def _split(text: str, what: str) -> tuple[str, str]:
    text = text.strip().replace("_", "").replace(",", "")
    end = 0
    while end < len(text) and ((text[end].isascii() and text[end].isdigit()) or text[end] == "."):
        end += 1
    number, unit = text[:end], text[end:].strip().lower()
    if text.startswith("-"):
        raise InputError(f"{what} {text[:64]!r} is negative", code="invalid-quantity")
    if not number or number.count(".") > 1 or number == "." or len(number) > 24:
        raise InputError(f"{what} {text[:64]!r} is not a number with a unit", code="invalid-quantity")
    return number, unit


def _scale(number: str, factor: int) -> int:
    """number x factor, in integers: '1.5' GiB is exact."""
    whole, _, fraction = number.partition(".")
    unit = int("1" + "0" * len(fraction))
    return (int(whole or "0") * unit + int(fraction or "0")) * factor // unit


def _parse(text: str | int, what: str, units: dict[str, int], examples: str) -> int:
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    number, unit = _split(str(text), what)
    if unit not in units:
        raise InputError(
            f"{what} {str(text)[:64]!r} has no known unit", code="invalid-quantity", hint=f"write {examples}"
        )
    value = _scale(number, units[unit])
    if units[unit] == 1 and number.partition(".")[2].strip("0"):
        raise InputError(f"{what} must be a whole number, not {str(text)[:64]}", code="invalid-quantity")
    return value


def parse_bytes(text: str | int, what: str = "memory size") -> int:
    """A memory size in bytes: `48GiB`, `48GB`, `80000MiB`, `48G` (= GiB) or a plain number of bytes.

    Raises:
        InputError: not a size, or larger than 2^60.
    """
    value = _parse(text, what, _MEMORY_UNITS, "48GiB, 48GB or 80000MiB")
    if not 0 <= value <= _MAXIMUM_BYTES:
        raise InputError(f"{what} {str(text)[:64]!r} is out of range", code="invalid-quantity")
    return value


def parse_tokens(text: str | int, what: str = "number of tokens") -> int:
    """A number of tokens: `8192`, `8k`, `128K`, `1M`; k and K are both 1024, since context windows are named so.

    Raises:
        InputError: not a positive number, or larger than 2^31.
    """
    value = _parse(text, what, _TOKEN_UNITS, "8192, 8k, 128k or 1M")
    if not 1 <= value <= _MAXIMUM_TOKENS:
        raise InputError(f"{what} must be between 1 and 2^31, not {str(text)[:64]}", code="invalid-quantity")
    return value


def format_bytes(value: int | float, *, digits: int = 2) -> str:
    """Bytes for people, in the largest binary unit that fits: 15.0 GiB, 128 KiB, 0 B."""
    sign, size = ("-", -value) if value < 0 else ("", value)
    for name, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= factor:
            if name == "TiB":
                name, factor = "GiB", GIB
            number = size / factor
            text = f"{number:,.{digits}f}" if number < 1000 else f"{number:,.0f}"
            return f"{sign}{_trim(text)} {name}"
    return f"{sign}{size:,.0f} B"


def _trim(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_gib(value: int | float, digits: int = 2) -> str:
    """Bytes in GiB with a fixed number of digits, for a column that shares one unit: 14.96."""
    return f"{value / GIB:,.{digits}f}"


class Unit(NamedTuple):
    """A unit of a column of sizes, and the digits after the point that its values need."""

    name: str
    factor: int
    digits: int

    def show(self, value: int | float) -> str:
        """The number without its unit."""
        return f"{value / self.factor:,.{self.digits}f}"


def common_unit(values: Iterable[int | float]) -> Unit:
    """The largest unit in which the smallest size of a column still shows, with no digits where all are whole.

    >>> common_unit([80 * KIB, 496 * KIB])
    Unit(name='KiB', factor=1024, digits=0)
    """
    sizes = [abs(value) for value in values if value]
    smallest = min(sizes, default=0)
    for name, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if smallest * 4 >= factor:
            return Unit(name, factor, 0 if all(size % factor == 0 for size in sizes) else 2)
    return Unit("B", 1, 0)


def format_count(value: int | float) -> str:
    """A count with separators: 131,072."""
    return f"{value:,.0f}" if isinstance(value, int) or value >= 100 else f"{value:,.2f}"


def format_requests(value: float) -> str:
    """A number of requests, never rounded up: 57.29, 572.9, 5,729."""
    value = max(value, 0.0)
    if value >= 1000:
        return f"{int(value):,}"
    return f"{int(value * 100) / 100:.2f}" if value < 100 else f"{int(value * 10) / 10:.1f}"


def format_tokens(value: int) -> str:
    """A context length as models are named: 8k, 128k, 1M, or the plain number where it is none of these."""
    if value >= MIB and value % MIB == 0:
        return f"{value // MIB}M"
    if value >= KIB and value % KIB == 0:
        return f"{value // KIB}k"
    return f"{value:,}"


def format_parameters(value: int) -> str:
    """A number of parameters: 8.03B, 684B, 135M."""
    for name, factor in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if value >= factor * 0.9995:
            number = value / factor
            return f"{number:.3g}{name}" if number < 100 else f"{number:.0f}{name}"
    return str(value)


def format_share(value: float) -> str:
    """A share for people: 12.3 %."""
    return f"{value * 100:.1f} %"


def ceil_div(a: int, b: int) -> int:
    """ceil(a / b) in integers."""
    return -(-a // b)
