"""What cards cost an hour: a file of one's own, or the catalogue's dated examples.

[[price]]
gpu = "h100-sxm"        # a card of the catalogue or of one's own
per_hour = 2.10         # of one card; also: currency (USD), provider, date, source
gpus_per_node = 8       # where it holds for whole nodes of so many cards
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kvtax.errors import InputError, UnknownNameError
from kvtax.hardware.gpu import Gpu
from kvtax.sources.gpus import find_gpu, list_gpus
from kvtax.sources.user_catalogue import read_tables, read_toml, validate

EXAMPLES = "examples"
"""The word for the catalogue's own examples."""


class PriceEntry(NamedTuple):
    """What one card costs an hour somewhere.

    Args:
        gpu_id: canonical.
        per_hour: of one card.
        currency: three letters.
        provider: who asks it.
        date: when it was looked up.
        source: where.
        gpus_per_node: cards that are rented together only; None where any number is.
    """

    gpu_id: str
    per_hour: float
    currency: str = "USD"
    provider: str = ""
    date: str = ""
    source: str = ""
    gpus_per_node: int | None = None


class Prices:
    """A list of prices in one currency.

    Args:
        entries: in any order.
    """

    def __init__(self, entries: Iterable[PriceEntry]) -> None:
        self.entries: Mapping[str, tuple[PriceEntry, ...]] = {}
        found: dict[str, tuple[PriceEntry, ...]] = {}
        for entry in entries:
            found[entry.gpu_id] = (*found.get(entry.gpu_id, ()), entry)
        self.entries = found

    def per_gpu_hour(self, gpu_id: str, gpu_count: int = 1) -> PriceEntry | None:
        """The lowest price of one card where `gpu_count` are taken: an entry for whole nodes holds for whole nodes alone.

        Args:
            gpu_id: canonical.
            gpu_count: cards taken.

        Returns:
            The entry; None where there is none.
        """
        offered = [
            entry
            for entry in self.entries.get(gpu_id, ())
            if entry.gpus_per_node is None or gpu_count % entry.gpus_per_node == 0
        ]
        return min(offered, key=lambda entry: (entry.per_hour, entry.provider), default=None)


def load_prices(path: str, gpus: Sequence[Gpu] = ()) -> Prices:
    """The prices of a file, or the catalogue's examples.

    Args:
        path: of a TOML file, or `examples`.
        gpus: cards of one's own; their `price_per_hour` counts beside the examples.

    Raises:
        InputError: the file cannot be read, an entry is wrong, or names a card that is not known.
    """
    if path == EXAMPLES:
        return Prices(_example(gpu, price) for gpu in (*gpus, *list_gpus()) for price in gpu.prices)
    rows = read_tables(read_toml(path), "price", path)
    if not rows:
        raise InputError(
            "holds no [[price]] table", code="no-prices", hint="[[price]] with gpu and per_hour", where=path
        )
    schema = _schema()
    entries = [_entry(validate(schema, row, where), where, gpus) for row, where in rows]
    currencies = sorted({entry.currency for entry in entries})
    if len(currencies) > 1:
        raise InputError(
            f"prices are in {', '.join(currencies)}",
            code="invalid-entry",
            hint="use one currency in a file",
            where=path,
        )
    return Prices(entries)


def _example(gpu: Gpu, price: Any) -> PriceEntry:
    return PriceEntry(gpu.id, price.usd_per_hour, "USD", price.provider, price.date, price.source)


def _entry(row: Any, where: str, gpus: Sequence[Gpu]) -> PriceEntry:
    try:
        gpu = find_gpu(row.gpu, gpus)
    except UnknownNameError as error:
        raise InputError(error.message, code="invalid-entry", hint=error.hint, where=where) from None
    return PriceEntry(gpu.id, row.per_hour, row.currency, row.provider, row.date, row.source, row.gpus_per_node)


def _schema() -> Any:
    from pydantic import BaseModel, ConfigDict, Field

    class Row(BaseModel):
        model_config = ConfigDict(
            extra="forbid", strict=True, str_strip_whitespace=True, str_max_length=500, allow_inf_nan=False
        )

        gpu: str = Field(min_length=1)
        per_hour: float = Field(ge=0, le=1e6)
        currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
        provider: str = ""
        date: str = Field(default="", pattern=r"^(\d{4}-\d{2}(-\d{2})?)?$")
        source: str = ""
        gpus_per_node: int | None = Field(default=None, ge=1, le=1024)

    return Row
