"""The GGUF quantisations of a model as a page and JSON."""

from __future__ import annotations

from typing import Any

from kvtax.planning.gguf_choices import Choices, Sized
from kvtax.safe_text import safe
from kvtax.units import format_bytes, format_tokens
from kvtax.views.page import Cell, Column, Grid, Page, Row, number_cell

SCHEMA = "kvtax.gguf/1"
_COLUMNS = (
    Column("Quantisation", "label", fold=True),
    Column("size", "bytes", right=True),
    Column("bits", "bits_per_weight", right=True),
    Column("verdict", "verdict"),
    Column("longest", "longest_context", right=True),
    Column("files", "files", fold=True, from_width=100),
)


def gguf_page(found: Choices) -> Page:
    """A table of the quantisations, the smallest first, and one of the projectors."""
    grids = [gguf_grid(found)]
    projectors = found.listing.files.projectors
    if projectors:
        rows = tuple(Row((Cell(safe(file)), _size(found.listing.sizes.get(file)))) for file in projectors)
        columns = (Column("Projectors", "file", fold=True), Column("size", "bytes", right=True))
        grids.append(Grid("projectors", "Projectors", columns, rows))
    return Page(_title(found), tuple(grids), found.notices)


def gguf_grid(found: Choices) -> Grid:
    """One row for each quantisation."""
    remarks = ["bits: of the files for each parameter"] if any(one.bits_per_weight for one in found.sized) else []
    if found.budget is not None:
        remarks.append("longest: the context of one request that still fits, all layers on the card")
    return Grid("choices", "Quantisation", _COLUMNS, tuple(_row(one, found) for one in found.sized), tuple(remarks))


def _title(found: Choices) -> str:
    listing, budget = found.listing, found.budget
    words = f"{listing.id} ({listing.place})"
    if budget is None:
        return words
    requests = f"{budget.concurrency} requests of " if budget.concurrency else ""
    return f"{words} on {budget.gpu.name}, {requests}{budget.max_model_len:,} tokens, {budget.prepared.plan.label}"


def _row(one: Sized, found: Choices) -> Row:
    best = one.choice.label == found.best
    bits, longest = one.bits_per_weight, one.longest_context
    verdict = one.verdict or ("" if one.choice.complete else "incomplete")
    shown = verdict.replace("_", " ") + (", the largest that does" if best else "")
    tone = "good" if one.verdict == "fits" else "bad" if verdict else ""
    files = ", ".join(safe(file) for file in one.choice.files[:2]) + (" ..." if len(one.choice.files) > 2 else "")
    return Row(
        (
            Cell(one.choice.label, None, "strong" if best else ""),
            _size(one.choice.bytes),
            Cell("" if bits is None else f"{bits:.2f}", None if bits is None else round(bits, 4)),
            Cell(shown, one.verdict, tone),
            Cell("" if longest is None else format_tokens(longest), longest),
            Cell(files, ";".join(safe(file) for file in one.choice.files), "dim"),
        )
    )


def _size(size: int | None) -> Cell:
    return number_cell(format_bytes(size or 0), size)


def gguf_to_dict(found: Choices) -> dict[str, Any]:
    """The same as `kvtax.gguf/1`."""
    from kvtax.budget_result import catalogue_stamp

    listing, budget = found.listing, found.budget
    return {
        "schema": SCHEMA,
        **catalogue_stamp(),
        "model": listing.id,
        "source": listing.place,
        "gpu": None if budget is None else budget.gpu.id,
        "engine": None if budget is None else budget.prepared.plan.label,
        "concurrency": None if budget is None else budget.concurrency,
        "choices": [_choice(one) for one in found.sized],
        "largest_that_fits": found.best or None,
        "projectors": [{"file": safe(file), "bytes": listing.sizes.get(file)} for file in listing.files.projectors],
        "notices": [notice.to_dict() for notice in found.notices],
    }


def _choice(one: Sized) -> dict[str, Any]:
    bits, budget = one.bits_per_weight, one.budget
    return {
        "label": one.choice.label,
        "files": [safe(file) for file in one.choice.files],
        "bytes": one.choice.bytes,
        "parameters": one.parameters,
        "bits_per_weight": None if bits is None else round(bits, 4),
        "complete": one.choice.complete,
        "verdict": one.verdict,
        "max_model_len": None if budget is None else budget.max_model_len,
        "longest_context": one.longest_context,
        "weights_bytes": None if budget is None else budget.weights_bytes,
        "weights_are_upper_bound": budget is not None and budget.deployment.weights_bytes is not None,
        "problem": one.problem or None,
    }
