"""The catalogue of models, and the families that are understood, as pages and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.planning.summaries import ModelSummary
from kvtax.units import format_parameters, format_tokens
from kvtax.views.page import Cell, Column, Grid, Page, Row, number_cell

SCHEMA = "kvtax.models/1"
MOST_DETAILED = 6
"""Results up to this number show aliases and sources too."""
_MARK = "~"
_KIB = 1024


def models_page(summaries: Sequence[ModelSummary]) -> Page:
    """A table of models; a few of them with their sources."""
    return Page("", (models_grid(summaries),)) if summaries else Page("", ())


def models_grid(summaries: Sequence[ModelSummary]) -> Grid:
    """One row for each model."""
    columns = (
        Column("Models", "id", fold=True),
        Column("", ""),
        Column("params", "parameters", right=True),
        Column("active", "active_parameters", right=True, from_width=90),
        Column("KiB/token", "kv_bytes_per_token_before_windows_fill", right=True),
        Column("when full", "kv_bytes_per_token", right=True),
        Column("context", "max_position_embeddings", right=True),
        Column("type", "model_type", from_width=100),
        Column("alias", "aliases", from_width=132),
    )
    detailed = len(summaries) <= MOST_DETAILED
    rows = tuple(_row(summary, detailed) for summary in summaries)
    return Grid("models", "Models", columns, rows, tuple(_remarks(summaries, detailed)))


def models_csv(summaries: Sequence[ModelSummary]) -> Grid:
    """The same with every field, for CSV."""
    grid = models_grid(summaries)
    columns = tuple(Column(name, name) for name in ("architecture", "kind", "licence", "source", "problem"))
    rows = tuple(
        Row((*row.cells, *(Cell(str(value or "")) for value in _more(summary))))
        for row, summary in zip(grid.rows, summaries, strict=True)
    )
    return grid._replace(columns=(*grid.columns, *columns), rows=rows)


def _more(summary: ModelSummary) -> tuple[str | None, ...]:
    entry = summary.entry
    name = "" if summary.architecture is None else summary.architecture.name
    return name, entry.kind, entry.licence, entry.source, summary.problem


def _row(summary: ModelSummary, detailed: bool) -> Row:
    entry, architecture = summary.entry, summary.architecture
    mark = _MARK if entry.kind == "reconstructed" else ""
    active = (
        None
        if architecture is None or architecture.active_parameters == architecture.parameters
        else architecture.active_parameters
    )
    limit = None if architecture is None else architecture.max_position_embeddings
    early, late = summary.early_kv_bytes_per_token, summary.kv_bytes_per_token
    cells = (
        Cell(entry.id, entry.id),
        Cell(mark),
        number_cell(format_parameters(summary.parameters or 0), summary.parameters),
        number_cell(format_parameters(active or 0), active),
        number_cell(_kib(early), early),
        Cell("", late) if late == early and late is not None else number_cell(_kib(late), late),
        number_cell(_context(limit), limit),
        Cell(entry.model_type or "-", None, "dim"),
        Cell(_shortest(entry.aliases), ";".join(entry.aliases), "dim"),
    )
    return Row(cells, _details(summary) if detailed else ())


def _details(summary: ModelSummary) -> tuple[str, ...]:
    entry, architecture = summary.entry, summary.architecture
    name = summary.problem if architecture is None else f"{architecture.name} ({architecture.model_type})"
    lines = [name]
    if entry.aliases:
        lines.append(f"also called {', '.join(entry.aliases)}")
    if entry.config_from:
        lines.append(f"config of {entry.config_from}, which has the same shapes")
    licence = f"; that project is under {entry.licence}" if entry.licence else ""
    kind = "" if entry.source.startswith(f"{entry.kind}:") else f"{entry.kind}: "
    lines.append(f"{kind}{entry.source}{licence}")
    return tuple(lines)


def _remarks(summaries: Sequence[ModelSummary], detailed: bool) -> list[str]:
    remarks = []
    if any(summary.entry.kind == "reconstructed" for summary in summaries):
        remarks.append(f"{_MARK} put together from published dimensions; not the real config.json")
    if any(summary.early_kv_bytes_per_token != summary.kv_bytes_per_token for summary in summaries):
        remarks.append("when full: what one more token adds once every window is full")
    if not detailed:
        remarks.append(f"{len(summaries):,} models; --json and --format csv have their sources")
    return remarks


def _kib(size: int | None) -> str:
    """Bytes in KiB, with the digits they need."""
    if size is None:
        return ""
    return f"{size / _KIB:,.0f}" if size % _KIB == 0 else f"{size / _KIB:,.1f}"


def _context(limit: int | None) -> str:
    return "" if limit is None else format_tokens(limit)


def _shortest(names: Sequence[str]) -> str:
    return min(names, key=len) if names else ""


# ---- JSON ----


def models_to_dict(query: str, summaries: Sequence[ModelSummary], closest: Sequence[str]) -> dict[str, Any]:
    """A search as `kvtax.models/1`."""
    from kvtax.budgets import catalogue_stamp

    models = [_summary_to_dict(summary) for summary in summaries]
    return {"schema": SCHEMA, **catalogue_stamp(), "query": query, "models": models, "closest": list(closest)}


def _summary_to_dict(summary: ModelSummary) -> dict[str, Any]:
    entry = summary.entry
    return {
        "id": entry.id,
        "aliases": list(entry.aliases),
        "model_type": entry.model_type,
        "published_parameters": entry.parameters,
        "published_note": entry.parameters_note,
        "kv_bytes_per_token": summary.kv_bytes_per_token,
        "kv_bytes_per_token_before_windows_fill": summary.early_kv_bytes_per_token,
        **_figures(summary.architecture),
        "kind": entry.kind,
        "config_from": entry.config_from,
        "licence": entry.licence,
        "source": entry.source,
        "problem": summary.problem or None,
    }


def _figures(architecture: Architecture | None) -> dict[str, Any]:
    """What the config says; nulls where it is not understood."""
    names = ("parameters", "active_parameters", "max_position_embeddings")
    if architecture is None:
        return dict.fromkeys(("architecture", *names, "weight_bytes", "state_bytes_per_request"))
    return {
        "architecture": architecture.name,
        **{name: getattr(architecture, name) for name in names},
        "weight_bytes": architecture.weight_bytes(),
        "state_bytes_per_request": architecture.state_bytes(),
    }


# ---- families ----


def families_grid(families: Mapping[str, Sequence[str]]) -> Grid:
    """Every file of architectures with the model types that it understands."""
    rows = tuple(Row((Cell(family, None, "strong"), Cell(", ".join(types)))) for family, types in families.items())
    columns = (Column("Families", "family"), Column("model_type of config.json", "model_types", fold=True))
    count = sum(map(len, families.values()))
    remark = f"{count} model types; each family is a file in kvtax/architectures/families"
    return Grid("families", "Families", columns, rows, (remark,))


def families_to_dict(families: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The families as part of `kvtax.models/1`."""
    from kvtax.budgets import catalogue_stamp

    listed = [{"family": family, "model_types": list(types)} for family, types in families.items()]
    return {"schema": SCHEMA, **catalogue_stamp(), "families": listed}
