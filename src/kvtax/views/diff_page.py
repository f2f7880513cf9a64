"""Two budgets beside each other as a page and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvtax.planning.causes import Figures
from kvtax.planning.diff import Diff, Side, Step
from kvtax.planning.grid import show_value
from kvtax.units import format_bytes, format_count, format_gib, format_requests, format_tokens
from kvtax.version import __version__
from kvtax.views.json_form import fields_to_dict
from kvtax.views.page import Cell, Column, Grid, Page, Row
from kvtax.views.variant_words import cause_lines, signed_bytes, signed_requests

SCHEMA = "kvtax.diff/1"
_PARTS = (
    ("card", "total_bytes"),
    ("weights", "weights_bytes"),
    ("activation", "activation_bytes"),
    ("CUDA graphs", "cuda_graph_bytes"),
    ("runtime", "runtime_bytes"),
    ("unallocated", "unallocated_bytes"),
    ("KV pool", "kv_pool_bytes"),
)


def diff_page(found: Diff) -> Page:
    """What was asked, what comes of it, and by which cause.

    Args:
        found: what is shown.
    """
    blocks = [_fields(found), _figures(found)]
    if found.steps:
        blocks.append(_steps(found))
    notices = [
        notice for side in (found.before, found.after) if side.budget is not None for notice in side.budget.notices
    ]
    return Page(_title(found), tuple(block for block in blocks if block.rows), tuple(dict.fromkeys(notices)))


def _title(found: Diff) -> str:
    what = [_model_and_card(side) for side in (found.before, found.after)]
    return what[0] if what[0] == what[1] else f"{what[0]}, against {what[1]}"


def _model_and_card(side: Side) -> str:
    if side.budget is not None:
        return f"{side.budget.model.id} on {side.budget.gpu.name}"
    return f"{side.saved.model} on {side.saved.gpu}" if side.saved is not None else side.name


def _fields(found: Diff) -> Grid:
    """The fields that differ."""
    first = found.before.fields or {}
    rows = [
        Row((Cell(name), Cell(show_value(name, first.get(name))), Cell(show_value(name, value))), key=name)
        for name, value in found.changes.items()
    ]
    columns = (
        Column("asked", "asked"),
        Column(_short(found.before), "a", fold=True),
        Column(_short(found.after), "b", fold=True),
    )
    return Grid("asked", "", columns, tuple(rows))


def _short(side: Side) -> str:
    return side.name if len(side.name) <= 32 else f"{side.name[:29]}..."


def _figures(found: Diff) -> Grid:
    one, other = found.before.figures, found.after.figures
    rows = [
        _row(
            label,
            one.per_gpu[key],
            other.per_gpu[key],
            format_gib,
            signed_bytes,
            better=1 if key == "kv_pool_bytes" else 0,
        )
        for label, key in _PARTS
    ]
    rows.append(_row("a request", one.bytes_per_request, other.bytes_per_request, format_gib, signed_bytes, better=-1))
    rows.append(_row("tokens", one.capacity_tokens, other.capacity_tokens, format_count, lambda n: f"{n:+,}", better=1))
    rows.append(
        _row("requests", one.max_concurrency, other.max_concurrency, format_requests, signed_requests, better=1)
    )
    lengths = (one.at_context, other.at_context)
    if lengths[0] != lengths[1]:
        rows.append(_row("of tokens", *lengths, format_tokens, lambda n: f"{n:+,}", better=0))
    verdicts = (one.verdict.replace("_", " "), other.verdict.replace("_", " "))
    rows.append(
        Row(
            (Cell("verdict"), Cell(verdicts[0], one.verdict), Cell(verdicts[1], other.verdict), Cell("")), key="verdict"
        )
    )
    columns = (
        Column("GiB of one card", "figure"),
        Column(_short(found.before), "a", right=True),
        Column(_short(found.after), "b", right=True),
        Column("difference", "difference", right=True),
    )
    return Grid("figures", "", columns, tuple(rows), tuple(_remarks(found)))


def _row(label: str, one: Any, other: Any, shown: Any, signed: Any, *, better: int) -> Row:
    change = other - one
    tone = "" if not change or not better else "good" if change * better > 0 else "bad"
    text = signed(change) if change else ""
    return Row((Cell(label), Cell(shown(one), one), Cell(shown(other), other), Cell(text, change, tone)), key=label)


def _remarks(found: Diff) -> Iterator[str]:
    yield from cause_lines(found.causes)
    for side in (found.before, found.after):
        if side.saved is None:
            continue
        by = f"kvtax {side.saved.kvtax} (catalogue {side.saved.catalogue})"
        if side.budget is None:
            yield f"{side.name}: written by {by}; it cannot be sized anew here, so that its figures stand alone"
        elif side.since_saved or side.budget.max_concurrency != side.figures.max_concurrency:
            yield (
                f"{side.name}: written by {by}; kvtax {__version__} makes the pool {signed_bytes(side.since_saved)} and "
                f"{format_requests(side.budget.max_concurrency)} requests of the same deployment"
            )
    asked_alike = not found.changes and found.before.fields is not None and found.after.fields is not None
    if asked_alike:
        yield "both were asked the same"


def _steps(found: Diff) -> Grid:
    """What each release of the engine changes for the first deployment."""
    rows = [_step(step) for step in found.steps]
    columns = (
        Column("release", "release"),
        Column("KV pool", "kv_pool_bytes", right=True),
        Column("requests", "max_concurrency", right=True),
        Column("what changed", "what", fold=True),
    )
    total = sum(step.kv_pool_bytes for step in found.steps)
    remarks = (
        f"all releases: KV pool {signed_bytes(total)} a card; with nothing else of the first deployment changed",
    )
    return Grid("releases", "Release by release", columns, tuple(rows), remarks)


def _step(step: Step) -> Row:
    from kvtax.planning.causes import pool_parts

    pool, requests = step.kv_pool_bytes, step.after.max_concurrency - step.before.max_concurrency
    parts = ", ".join(f"{part.name} {signed_bytes(part.effect_bytes)}" for part in pool_parts(step.before, step.after))
    return Row(
        (
            Cell(step.version),
            Cell(signed_bytes(pool), pool, _tone(pool)),
            Cell(signed_requests(requests) if requests else "0", requests, _tone(requests)),
            Cell(parts or _other(step.before, step.after), None),
        ),
        tuple(f"{rule.name}: {rule.source}" for rule in step.rules),
        key=step.version,
    )


def _other(before: Figures, after: Figures) -> str:
    if before.bytes_per_request != after.bytes_per_request:
        return f"a request takes {format_bytes(after.bytes_per_request)} instead of {format_bytes(before.bytes_per_request)}"
    return "how tokens are counted" if before.capacity_tokens != after.capacity_tokens else "the verdict"


def _tone(change: float) -> str:
    return "good" if change > 0 else "bad" if change < 0 else ""


# ---- JSON ----


def diff_to_dict(found: Diff) -> dict[str, Any]:
    """The same as `kvtax.diff/1`."""
    from kvtax.budget_result import catalogue_stamp

    one, other = found.before.figures, found.after.figures
    return {
        "schema": SCHEMA,
        **catalogue_stamp(),
        "a": _side(found.before),
        "b": _side(found.after),
        "changes": fields_to_dict(found.changes),
        "difference": {
            **{name: other.per_gpu[name] - value for name, value in one.per_gpu.items() if name in other.per_gpu},
            "bytes_per_request": other.bytes_per_request - one.bytes_per_request,
            "capacity_tokens": other.capacity_tokens - one.capacity_tokens,
            "max_concurrency": other.max_concurrency - one.max_concurrency,
        },
        "causes": found.causes.to_dict(),
        "releases": [_step_to_dict(step) for step in found.steps],
    }


def _side(side: Side) -> dict[str, Any]:
    figures = side.figures
    return {
        "name": side.name,
        "asked": None if side.fields is None else fields_to_dict(side.fields),
        "saved_by": None if side.saved is None else {"kvtax": side.saved.kvtax, "catalogue": side.saved.catalogue},
        "since_saved_bytes": None if side.saved is None or side.budget is None else side.since_saved,
        "per_gpu": dict(figures.per_gpu),
        "bytes_per_request": figures.bytes_per_request,
        "capacity_tokens": figures.capacity_tokens,
        "max_concurrency": figures.max_concurrency,
        "at_context": figures.at_context,
        "verdict": figures.verdict,
    }


def _step_to_dict(step: Step) -> dict[str, Any]:
    return {
        "release": step.version,
        "kv_pool_bytes": step.kv_pool_bytes,
        "max_concurrency": step.after.max_concurrency - step.before.max_concurrency,
        "rules": [{"name": rule.name, "source": rule.source} for rule in step.rules],
    }
