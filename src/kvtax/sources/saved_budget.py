"""A budget that was saved with `kvtax budget --json`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from kvtax.deployment import Deployment, read_field
from kvtax.errors import ConfigError, InputError, KvtaxError
from kvtax.sources.local import read_bytes
from kvtax.sources.safe_json import parse_json

SCHEMA = "kvtax.budget/1"
_PARTS = (
    "total_bytes", "limit_bytes", "weights_bytes", "model_load_bytes", "activation_bytes", "cuda_graph_bytes", "runtime_bytes",
    "kv_pool_bytes", "kv_demand_bytes", "unallocated_bytes",
)  # fmt: skip


class SavedBudget(NamedTuple):
    """What a file says.

    Args:
        name: of the file.
        kvtax: version that wrote it.
        catalogue: its date.
        engine: name and version.
        model: id.
        gpu: id.
        per_gpu: parts of one card [bytes].
        bytes_per_request: set aside for one request [bytes].
        capacity_tokens: of the pool [tokens].
        max_concurrency: requests of at_context tokens.
        at_context: length of a request [tokens].
        verdict: of the budget.
        asked: fields of the deployment; None where the file has none that can be read.
    """

    name: str
    kvtax: str
    catalogue: str
    engine: str
    model: str
    gpu: str
    per_gpu: Mapping[str, int]
    bytes_per_request: int
    capacity_tokens: int
    max_concurrency: float
    at_context: int
    verdict: str
    asked: Mapping[str, Any] | None


def read_saved(path: str) -> SavedBudget:
    """The budget that a file holds.

    Args:
        path: of the file.

    Raises:
        InputError: it cannot be read, or is no budget.
    """
    name = os.path.basename(path)
    try:
        return parse_saved(read_bytes(os.path.expanduser(path), name), name)
    except ConfigError as error:
        raise InputError(error.message, code=error.code, hint=error.hint, where=name) from None


def parse_saved(data: bytes, name: str) -> SavedBudget:
    """The budget in a document.

    Args:
        data: the bytes of the file.
        name: what it is called.

    Raises:
        ConfigError: it is no JSON.
        InputError: it is no budget.
    """
    document, _ = parse_json(data, name)
    if document.get("schema") != SCHEMA:
        several = document.get("schema") == "kvtax.budgets/1"
        hint = "save one card at a time" if several else "save one so: kvtax budget ... --json -o before.json"
        raise InputError(f"is no saved budget ({SCHEMA})", code="not-a-budget", hint=hint, where=name)
    reader = _Reader(document, name)
    return SavedBudget(
        name,
        reader.text("kvtax"),
        reader.text("catalogue"),
        f"{reader.text('engine', 'name')} {reader.text('engine', 'version')}",
        reader.text("model", "id"),
        reader.text("gpu", "id"),
        {part: reader.integer("per_gpu", part) for part in _PARTS},
        reader.integer("kv", "bytes_per_request"),
        reader.integer("kv", "capacity_tokens"),
        reader.number("concurrency", "max"),
        reader.integer("concurrency", "at_context"),
        reader.text("verdict"),
        _asked(document.get("asked")),
    )


def _asked(fields: Any) -> dict[str, Any] | None:
    """The fields that were asked, as far as they are ones that this version knows."""
    if not isinstance(fields, dict) or not fields.get("model"):
        return None
    try:
        return dict(
            read_field(name, value)
            for name, value in fields.items()
            if name in Deployment._fields and value is not None
        )
    except KvtaxError:
        return None


class _Reader:
    """Values of a document, checked."""

    def __init__(self, document: Mapping[str, Any], name: str) -> None:
        self.document, self.name = document, name

    def _find(self, *keys: str) -> Any:
        value: Any = self.document
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def _wrong(self, keys: tuple[str, ...], what: str) -> InputError:
        return InputError(f"{'.'.join(keys)} is not {what}", code="not-a-budget", where=self.name)

    def text(self, *keys: str) -> str:
        """A word."""
        value = self._find(*keys)
        if not isinstance(value, str) or len(value) > 1000:
            raise self._wrong(keys, "a word")
        return value

    def integer(self, *keys: str) -> int:
        """A whole number."""
        value = self._find(*keys)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 2**63:
            raise self._wrong(keys, "a whole number")
        return value

    def number(self, *keys: str) -> float:
        """A number that is not negative."""
        value = self._find(*keys)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e18:
            raise self._wrong(keys, "a number")
        return float(value)
