"""The catalogue of GPUs as a page and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvtax.hardware.gpu import Gpu
from kvtax.units import format_gib
from kvtax.views.page import Cell, Column, Grid, Page, Row

SCHEMA = "kvtax.gpus/1"
MOST_DETAILED = 8
"""Results up to this number show names and sources too."""
_MARK = "~"
_GB, _TERA = 10**9, 10**12
_MEMORY = ("total_bytes", "usable size", "everything but the nominal size")
_COLUMNS = (
    Column("", "id", fold=True),
    Column("GiB", "total_bytes", right=True),
    Column("GB", "nominal_gb", right=True),
    Column("GB/s", "bandwidth_bytes_per_second", right=True),
    Column("bf16", "bf16_flops", right=True),
    Column("fp8", "fp8_flops", right=True),
    Column("fp4", "fp4_flops", right=True),
    Column("cc", "compute_capability", right=True),
)
_LEAST = (22, 7, 4, 6, 6, 6, 7, 7)


def gpus_page(gpus: Sequence[Gpu], *, prices: bool = False) -> Page:
    """A table of cards for each vendor; a few of them with their sources.

    Args:
        gpus: that are shown.
        prices: whether examples of prices are listed.
    """
    detailed = len(gpus) <= MOST_DETAILED
    vendors = list(dict.fromkeys(gpu.vendor for gpu in gpus))
    blocks = []
    for vendor in vendors:
        rows = tuple(_row(gpu, detailed, prices) for gpu in gpus if gpu.vendor == vendor)
        title = vendor or "of your own"
        columns = tuple(column._replace(least=least) for column, least in zip(_COLUMNS, _LEAST, strict=True))
        columns = (columns[0]._replace(title=title), *columns[1:])
        last = vendor == vendors[-1]
        blocks.append(Grid("gpus", title, columns, rows, tuple(_remarks(gpus, detailed, prices)) if last else ()))
    return Page("", tuple(blocks))


def gpus_csv(gpus: Sequence[Gpu]) -> Grid:
    """Every field in one table, for CSV."""
    more = (
        "name",
        "vendor",
        "kind",
        "total_is_estimate",
        "unverified",
        "total_source",
        "source",
        "date",
        "parent",
        "aliases",
    )
    columns = (*_COLUMNS, *(Column(name, name) for name in more))
    rows = []
    for gpu in gpus:
        extra = (
            gpu.name,
            gpu.vendor,
            gpu.kind,
            gpu.total_is_estimate,
            ";".join(gpu.unverified),
            gpu.total_source,
            gpu.source,
            gpu.date,
        )
        cells = [
            Cell("" if value is None else str(value), value) for value in (*extra, gpu.parent, ";".join(gpu.aliases))
        ]
        rows.append(Row((*_cells(gpu), *cells)))
    return Grid("gpus", "", columns, tuple(rows))


def _row(gpu: Gpu, detailed: bool, prices: bool) -> Row:
    lines = tuple(_details(gpu)) if detailed else ()
    return Row(_cells(gpu), (*lines, *_prices(gpu)) if prices else lines)


def _cells(gpu: Gpu) -> tuple[Cell, ...]:
    unsure_memory = gpu.total_is_estimate or any(name in gpu.unverified for name in _MEMORY)
    bandwidth = gpu.bandwidth_bytes_per_second
    return (
        Cell(f" {gpu.id}" if gpu.parent else gpu.id, gpu.id),
        _figure(gpu.total_bytes, format_gib(gpu.total_bytes), unsure_memory, "strong"),
        _figure(gpu.nominal_gb, f"{gpu.nominal_gb or 0:g}", "nominal_gb" in gpu.unverified),
        _figure(bandwidth, f"{(bandwidth or 0) / _GB:,.0f}", _is_unsure(gpu, "bandwidth_gb_s")),
        *(
            _figure(
                flops,
                f"{(flops or 0) / _TERA:,.4g}" if flops and flops < 10**15 else f"{(flops or 0) / _TERA:,.0f}",
                _is_unsure(gpu, name),
            )
            for name, flops in (
                ("bf16_tflops", gpu.bf16_flops),
                ("fp8_tflops", gpu.fp8_flops),
                ("fp4_tflops", gpu.fp4_flops),
            )
        ),
        Cell(gpu.compute_capability or "-", gpu.compute_capability, "" if gpu.compute_capability else "dim"),
    )


def _is_unsure(gpu: Gpu, name: str) -> bool:
    return name in gpu.unverified or _MEMORY[-1] in gpu.unverified


def _figure(value: float | None, text: str, unsure: bool, tone: str = "") -> Cell:
    return Cell("-", None, "dim") if value is None else Cell(f"{_MARK}{text}" if unsure else text, value, tone)


def _details(gpu: Gpu) -> Iterator[str]:
    yield f"{gpu.name}; {gpu.total_bytes:,} bytes usable" + (", shared with the host" if gpu.unified_memory else "")
    yield f"memory: {gpu.total_source}"
    if gpu.total_seen_bytes:
        low, high = (format_gib(size) for size in gpu.total_seen_bytes)
        yield f"seen on real machines: {low} to {high} GiB"
    if gpu.source and gpu.source != gpu.total_source and not gpu.parent:
        yield f"speed: {gpu.source}"
    if gpu.note:
        yield gpu.note
    unsure = [name for name in gpu.unverified if name != "nvidia_smi_total_mib"]
    if unsure:
        yield f"not verified: {', '.join(unsure)}"
    if gpu.aliases:
        yield f"also called {', '.join(gpu.aliases)}"
    if gpu.date and not gpu.parent:
        yield f"looked up {gpu.date}"


def _prices(gpu: Gpu) -> list[str]:
    return [
        f"{price.usd_per_hour:.2f} USD an hour once at {price.provider}, {price.date} ({price.source})"
        for price in gpu.prices
    ]


def _remarks(gpus: Sequence[Gpu], detailed: bool, prices: bool) -> Iterator[str]:
    yield "GiB: usable, as CUDA or HIP reports it; bf16, fp8, fp4: dense TFLOPS; cc: compute capability"
    if any(cell.text.startswith(_MARK) for gpu in gpus for cell in _cells(gpu)):
        yield f"{_MARK} estimated, or from one weak source"
    if prices:
        yield "prices are examples of what was paid once, never a quote"
    if not detailed:
        yield f"{len(gpus):,} entries; kvtax gpus NAME shows one with its sources, --mig its slices"


# ---- JSON ----


def gpus_to_dict(query: str, gpus: Sequence[Gpu], closest: Sequence[str]) -> dict[str, Any]:
    """A search as `kvtax.gpus/1`."""
    from kvtax.budgets import catalogue_stamp

    return {
        "schema": SCHEMA,
        **catalogue_stamp(),
        "query": query,
        "gpus": [_gpu_to_dict(gpu) for gpu in gpus],
        "closest": list(closest),
    }


def _gpu_to_dict(gpu: Gpu) -> dict[str, Any]:
    fields: dict[str, Any] = gpu._asdict()
    fields["prices"] = [price._asdict() for price in gpu.prices]
    fields["unverified"] = list(gpu.unverified)
    fields["aliases"] = list(gpu.aliases)
    fields["total_seen_bytes"] = None if gpu.total_seen_bytes is None else list(gpu.total_seen_bytes)
    fields["supports"] = {"bf16": gpu.supports_bf16, "fp8": gpu.supports_fp8, "fp4": gpu.supports_fp4}
    return fields
