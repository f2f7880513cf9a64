"""How each number comes about: symbols, numbers put in, result; then every input with its origin, and the source of the rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvtax.safe_text import safe
from kvtax.terms import Term
from kvtax.units import format_bytes

if TYPE_CHECKING:
    from kvtax.budgets import Budget


def explain(budget: Budget) -> str:
    """Every term and figure of a budget."""
    return "\n".join(line for term in (*budget.terms, *budget.figures) for line in (*_lines(term), ""))


def _lines(term: Term) -> Iterator[str]:
    yield safe(term.name)
    yield f"  = {safe(term.formula, 2000)}"
    yield f"  = {safe(term.numbers(), 2000)}"
    yield f"  = {_result(term)}"
    width = max(map(len, term.inputs), default=0)
    for name, entry in term.inputs.items():
        unit = "" if entry.unit in ("", "-") else f" {entry.unit}"
        yield f"      {safe(name):<{width}}  {safe(str(entry.value))}{safe(unit)}  from {safe(entry.origin)}"
    yield f"      source: {safe(term.source, 1000)}"


def _result(term: Term) -> str:
    if term.unit != "B":
        return f"{term.bytes} {safe(term.unit)}"
    shown = format_bytes(term.bytes)
    return f"{term.bytes} B" if shown.endswith(" B") else f"{term.bytes} B  ({shown})"
