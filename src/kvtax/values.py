"""Values as people write them, checked: each kind of field of a deployment has one reader here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvtax.errors import InputError
from kvtax.units import MIB, parse_bytes, parse_tokens


class Speculative(NamedTuple):
    """Speculative decoding: the method, the tokens drafted in a step, and the draft's own model where it has one."""

    method: str
    num_speculative_tokens: int = 1
    model: str = ""

    def __str__(self) -> str:
        """As one would type it: `mtp:1`."""
        return f"{self.method}:{self.num_speculative_tokens}" + (f":{self.model}" if self.model else "")


SPECULATIVE_METHODS = (
    "mtp", "nextn", "eagle", "eagle3", "draft", "draft_model", "standalone", "ngram", "ngram_gpu", "lookahead", "suffix", "medusa",
    "mlp_speculator", "dflash", "dspark", "p_eagle",
)  # fmt: skip
"""Methods that engines have; a model's own name for its MTP layers ends in `_mtp`."""


class Lora(NamedTuple):
    """Slots for adapters: how many are held at once, and the highest rank; 0 where an adapter's folder says it."""

    max_loras: int
    max_lora_rank: int
    adapter: str = ""

    def __str__(self) -> str:
        """As one would type it: `4:64`, or the adapter's folder and the number of slots."""
        return f"{self.adapter}:{self.max_loras}" if self.adapter else f"{self.max_loras}:{self.max_lora_rank}"


class Limits(NamedTuple):
    """Items of a kind (image, video, audio) that one prompt may have."""

    items: tuple[tuple[str, int], ...]

    def get(self, kind: str, default: int) -> int:
        """The limit of one kind."""
        return dict(self.items).get(kind, default)

    def __str__(self) -> str:
        """As one would type it: `image=1,video=0`."""
        return ",".join(f"{kind}={count}" for kind, count in self.items)


class Numbers(NamedTuple):
    """Several numbers in order: shares of cards, windows of layers."""

    values: tuple[int | float, ...]

    def __str__(self) -> str:
        """As one would type it: `3,1`."""
        return ",".join(f"{value:g}" for value in self.values)


_LEAST_MEMORY = {"vram": MIB, "weights_bytes": 1}


def read_word(name: str, value: Any) -> str:
    """A word."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"must be a word, not {value!r:.64}", code="invalid-input", where=name)
    return value.strip()


def read_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """One of a few words."""
    word = read_word(name, value).lower()
    if word not in choices:
        raise InputError(f"must be one of {', '.join(choices)}, not {word[:64]!r}", code="invalid-input", where=name)
    return word


def read_switch(name: str, value: Any) -> str:
    """A word such as on, off, auto, all; true and false mean on and off, a number itself."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return str(value)
    return read_word(name, value).lower()


def read_memory(name: str, value: Any) -> int:
    """A size of memory that can be: a card of 48 bytes is a card of 48 GiB whose unit was forgotten."""
    size = parse_bytes(_number_or_text(name, value), name)
    least = _LEAST_MEMORY.get(name, 0)
    if size < least:
        raise InputError(
            f"must be at least {least:,} bytes, not {size:,}",
            code="invalid-quantity",
            hint="a number alone counts bytes: write 48GiB, 48GB or 80000MiB",
            where=name,
        )
    return size


def read_tokens(name: str, value: Any) -> int:
    """A number of tokens."""
    return parse_tokens(_number_or_text(name, value), name)


def read_count(name: str, value: Any, least: int, most: int) -> int:
    """A whole number in its range."""
    number = _number_or_text(name, value)
    zero = isinstance(number, str) and number.strip() == "0"
    count = 0 if zero else parse_tokens(number, name) if isinstance(number, str) else number
    if not least <= count <= most:
        raise InputError(f"must be between {least} and {most}, not {count}", code="invalid-quantity", where=name)
    return count


def read_flag(name: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise InputError(f"must be true or false, not {value!r:.64}", code="invalid-input", where=name)
    return value


def read_share(name: str, value: Any, most: float) -> float:
    """A number above 0 and at most `most`."""
    number = value
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            number = None
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number <= most:
        raise InputError(
            f"must be a number above 0 and at most {most:g}, not {str(value)!r:.66}",
            code="invalid-quantity",
            where=name,
        )
    return float(number)


def read_speculative(name: str, value: Any) -> Speculative:
    """`mtp:1`, `eagle3:3`, `draft:5:qwen3-0.6b`, or the engine's own mapping."""
    if isinstance(value, Speculative):
        return value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _json(name, value)
    if isinstance(value, Mapping):
        model = value.get("model") or value.get("speculative_draft_model_path") or ""
        method = value.get("method") or value.get("algorithm") or value.get("speculative_algorithm")
        tokens = value.get("num_speculative_tokens", value.get("speculative_num_draft_tokens", 1))
        method = method or ("draft" if model else None)
        if not isinstance(method, str) or not isinstance(model, str):
            raise InputError(
                "names no method",
                code="invalid-input",
                hint='{"method": "mtp", "num_speculative_tokens": 1}',
                where=name,
            )
        return Speculative(_method(name, method), read_count(name, tokens, 1, 1024), model)
    method, _, rest = read_word(name, value).partition(":")
    tokens, _, model = rest.partition(":")
    if not method.replace("_", "").replace("-", "").isalnum() or (tokens and not tokens.isdecimal()):
        raise InputError(
            f"{str(value)[:64]!r} is not METHOD:TOKENS",
            code="invalid-input",
            hint="write mtp:1 or eagle3:3",
            where=name,
        )
    return Speculative(_method(name, method), read_count(name, int(tokens or 1), 1, 1024), model)


def _method(name: str, method: str) -> str:
    word = method.strip().lower().replace("-", "_").strip("[]")
    if word not in SPECULATIVE_METHODS and not word.endswith("_mtp"):
        known = ", ".join(SPECULATIVE_METHODS)
        raise InputError(
            f"method {method[:64]!r} is not known", code="invalid-input", hint=f"known: {known}", where=name
        )
    return word


def read_lora(name: str, value: Any) -> Lora:
    """`4:64` (four adapters of rank 64 at most), a number of adapters (rank 16), an adapter's folder (`./adapter:4`), or the engine's mapping."""
    if isinstance(value, Lora):
        return value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _json(name, value)
    if isinstance(value, Mapping):
        slots, rank = value.get("max_loras", 1), value.get("max_lora_rank", 16)
        if isinstance(value.get("path"), str):
            return Lora(read_count(name, slots, 1, 4096), 0, value["path"])
    elif isinstance(value, str) and _is_folder(value.strip()):
        path, _, words = value.strip().rpartition(":")
        path, words = (path, words) if path and words.isdecimal() else (value.strip(), "1")
        return Lora(read_count(name, words, 1, 4096), 0, path)
    elif isinstance(value, bool):
        slots, rank = 1, 16
    else:
        words, _, rest = str(value).partition(":")
        slots, rank = words, rest or 16
    return Lora(read_count(name, slots, 1, 4096), read_count(name, rank, 1, 4096))


def _is_folder(text: str) -> bool:
    """Whether a text is written as a place on a disk."""
    return text.startswith((".", "~")) or "/" in text or "\\" in text


def read_limits(name: str, value: Any) -> Limits:
    """`image=1,video=0`, JSON, or a mapping; a mapping's own `count` counts where it is one of options."""
    if isinstance(value, Limits):
        return value
    if isinstance(value, str):
        text = value.strip()
        value = (
            _json(name, text) if text.startswith("{") else dict(pair.partition("=")[::2] for pair in text.split(","))
        )
    if not isinstance(value, Mapping) or "" in value.values():
        raise InputError("must be such as image=1,video=0", code="invalid-input", where=name)
    found = []
    for kind, count in value.items():
        if isinstance(count, Mapping):
            count = count.get("count", 999)
        found.append((str(kind).strip()[:64], read_count(name, count, 0, 100_000)))
    return Limits(tuple(sorted(found)))


def read_numbers(name: str, value: Any) -> Numbers:
    """`3,1`, or a list of numbers that are not negative."""
    if isinstance(value, Numbers):
        return value
    parts: Any = value.replace("/", ",").split(",") if isinstance(value, str) else value
    if isinstance(parts, (int, float)):
        parts = [parts]
    try:
        if len(parts) > 4096:
            raise ValueError
        numbers = tuple(_number(part) for part in parts)
    except (TypeError, ValueError):
        raise InputError(
            f"must be numbers such as 3,1, not {str(value)!r:.66}", code="invalid-input", where=name
        ) from None
    return Numbers(numbers)


def _number(part: Any) -> int | float:
    if isinstance(part, bool):
        raise ValueError
    number = float(part)
    if not 0 <= number <= 2**40:
        raise ValueError
    return int(number) if number.is_integer() else number


def _json(name: str, text: str) -> Any:
    if len(text) > 65_536:
        raise InputError("is too long", code="invalid-input", where=name)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"is not JSON: {text[:64]!r}", code="invalid-input", where=name) from None


def _number_or_text(name: str, value: Any) -> int | str:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InputError(f"must be a number, not {value!r:.64}", code="invalid-quantity", where=name)
    return value
