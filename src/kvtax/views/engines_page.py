"""The engines as a page and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvtax.planning.engine_summaries import EngineSummary
from kvtax.views.page import Cell, Column, Fact, Facts, Grid, Page, Row, number_cell

SCHEMA = "kvtax.engines/1"
_QUANTITIES = ("weights", "pool", "pool_given_weights", "concurrency")
_TITLES = ("weights %", "pool %", "weights given", "requests %")
_REMARK = (
    "error: median / 90th percentile; weights and requests in % of what was printed, pool in % of the card's memory, "
    "from flags alone and with the printed weights given"
)


def engines_page(engines: Sequence[EngineSummary]) -> Page:
    """One row for each engine."""
    columns = (
        Column("engine", "engine"),
        Column("rules known", "versions"),
        Column("starts", "starts", right=True),
        *(
            Column(title, key, right=True, from_width=from_width)
            for title, key, from_width in zip(_TITLES, _QUANTITIES, (0, 0, 96, 0), strict=True)
        ),
        Column("checked besides", "checked", fold=True, from_width=100),
    )
    rows = tuple(
        Row(
            (
                Cell(engine.name, engine.name, "strong"),
                Cell(_versions(engine)),
                number_cell(f"{engine.starts:,}", engine.starts or None),
                *(_error(engine.error(quantity)) for quantity in _QUANTITIES),
                Cell(engine.checked),
            )
        )
        for engine in engines
    )
    return Page("", (Grid("engines", "", columns, rows, (_REMARK, "kvtax engines NAME shows its rules by version")),))


def engine_page(engine: EngineSummary) -> Page:
    """One engine: errors by kind of start, margins, rules, fields."""
    facts = [
        Fact("versions", "rules known", _versions(engine)),
        Fact("cache", "cache", "allocated as asked" if engine.allocates else "takes what is left"),
        Fact("starts", "real starts", f"{engine.starts:,}", engine.starts),
    ]
    if engine.checked:
        facts.append(Fact("checked", "checked besides", engine.checked))
    facts.append(Fact("fields", "fields", ", ".join(engine.fields)))
    blocks: list[Facts | Grid] = [Facts("engine", "", tuple(facts))]
    if engine.record:
        blocks += [_errors(engine), _margins(engine)]
    if engine.rules:
        blocks.append(_rules(engine))
    return Page(engine.name, tuple(blocks))


def _versions(engine: EngineSummary) -> str:
    return engine.newest if engine.oldest == engine.newest else f"{engine.oldest} to {engine.newest}"


def _error(entry: dict[str, Any]) -> Cell:
    if not entry.get("starts"):
        return Cell("-", None, "dim")
    return Cell(f"{entry['median']:.2f} / {entry['p90']:.1f}", entry["median"])


def _errors(engine: EngineSummary) -> Grid:
    columns = (
        Column("start", "family", fold=True),
        *(Column(title, key, right=True) for title, key in zip(_TITLES, _QUANTITIES, strict=True)),
    )
    rows = tuple(
        Row((Cell(row["family"]), *(_error(row[quantity]) for quantity in _QUANTITIES)))
        for row in engine.record["errors"]
    )
    told = engine.record["verdicts"]
    remarks = [_REMARK]
    if told["starts"]:
        remarks.append(f"{told['right']} of {told['starts']} starts and failures told apart")
    return Grid("errors", "Errors on real starts", columns, rows, tuple(remarks))


def _margins(engine: EngineSummary) -> Grid:
    columns = (
        Column("kind", "kind", fold=True),
        Column("from %", "low", right=True),
        Column("to %", "high", right=True),
        Column("starts", "starts", right=True),
        Column("sources", "sources", right=True),
    )
    rows = tuple(
        Row(
            (
                Cell(kind),
                Cell(f"{100 * entry['low']:+.1f}", entry["low"]),
                Cell(f"{100 * entry['high']:+.1f}", entry["high"]),
                Cell(str(entry["starts"]), entry["starts"]),
                Cell(str(entry["sources"]), entry["sources"]),
            )
        )
        for kind, entry in engine.record["kinds"].items()
    )
    return Grid("margins", "Ends of the 90 % interval of the pool, in % of the card", columns, rows)


def _rules(engine: EngineSummary) -> Grid:
    columns = (
        Column("rule", "name"),
        Column("since", "since", right=True),
        Column("value", "value", fold=True),
        Column("source", "source", fold=True),
    )
    rows = tuple(
        Row((Cell(rule.name), Cell(".".join(map(str, rule.since))), Cell(str(rule.value)), Cell(rule.source)))
        for rule in engine.rules
    )
    return Grid("rules", "What changed", columns, rows)


# ---- JSON ----


def engines_to_dict(engines: Sequence[EngineSummary]) -> dict[str, Any]:
    """The engines as `kvtax.engines/1`."""
    from kvtax.budgets import catalogue_stamp

    return {"schema": SCHEMA, **catalogue_stamp(), "engines": [_engine_to_dict(engine) for engine in engines]}


def _engine_to_dict(engine: EngineSummary) -> dict[str, Any]:
    record = engine.record
    return {
        "name": engine.name,
        "versions": [engine.oldest, engine.newest],
        "allocates": engine.allocates,
        "checked": engine.checked,
        "starts": engine.starts,
        "fields": list(engine.fields),
        "errors": record.get("errors", []),
        "verdicts": record.get("verdicts"),
        "interval": record.get("interval"),
        "kinds": record.get("kinds", {}),
        "rules": [
            {"name": rule.name, "since": ".".join(map(str, rule.since)), "value": rule.value, "source": rule.source}
            for rule in engine.rules
        ],
    }
