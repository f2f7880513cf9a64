"""JSON from strangers, read strictly: bounded size, no NaN, no duplicate keys unseen, no nesting that breaks the reader."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from kvtax.architectures.config import describe
from kvtax.errors import ConfigError
from kvtax.terms import Notice

MAXIMUM_CONFIG_BYTES = 4 * 2**20
UNBOUNDED_KEYS = frozenset(("time_step_limit",))
"""Keys of published configs that say Infinity for "no limit" (Mamba 2 hybrids); kvtax reads none of them."""
_MAXIMUM_DUPLICATES = 3


def parse_json(
    data: bytes, where: str, *, maximum_bytes: int = MAXIMUM_CONFIG_BYTES
) -> tuple[dict[str, Any], list[Notice]]:
    """A JSON object, and a notice for keys that stand twice (the last one counts, as everywhere).

    Args:
        data: the bytes of the file.
        where: its name, for messages.
        maximum_bytes: a larger file is not read [bytes].

    Returns:
        The object and the notices.

    Raises:
        ConfigError: too large, not UTF-8, not JSON, NaN or Infinity, nested too deeply, or not an object.
    """
    if len(data) > maximum_bytes:
        raise ConfigError(
            f"more than {maximum_bytes // 2**20} MiB: too large for a config.json", code="file-too-large", where=where
        )
    if not data.strip():
        raise ConfigError("is empty", code="invalid-json", where=where)
    duplicates: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        for key, value in items:
            if key not in UNBOUNDED_KEYS and not _finite(value):
                problem = f"{describe(key)} holds NaN or Infinity, which is not JSON"
                raise ConfigError(problem, code="invalid-json", where=where)
        if len(found) != len(items) and len(duplicates) < _MAXIMUM_DUPLICATES:
            seen: set[str] = set()
            for key, _ in items:
                if key in seen:
                    duplicates.append(key)
                seen.add(key)
        return found

    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=pairs)
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 (byte {error.start})", code="invalid-json", where=where) from None
    except RecursionError:
        raise ConfigError("is nested too deeply", code="invalid-json", where=where) from None
    except json.JSONDecodeError as error:
        problem = f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise ConfigError(problem, code="invalid-json", where=where) from None
    except ValueError:
        raise ConfigError("holds a number with too many digits", code="invalid-json", where=where) from None
    if not isinstance(value, dict):
        raise ConfigError("is not a JSON object", code="invalid-json", where=where)
    notices = []
    if duplicates:
        names = ", ".join(ascii(key)[:64] for key in duplicates[:_MAXIMUM_DUPLICATES])
        notices.append(Notice("duplicate-key", f"{where}: {names} stands more than once; the last one counts"))
    return value, notices


def _finite(value: object) -> bool:
    """Whether a value, or a list of values, is free of NaN and Infinity (an object was looked at when it was built)."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, float) and not isfinite(one):
            return False
        if isinstance(one, list):
            pending.extend(one)
    return True
