"""Words and cells about one deployment among several: what what-if, matrices, fit and diff have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvtax.budgets import Budget
from kvtax.errors import KvtaxError
from kvtax.planning.causes import Causes
from kvtax.terms import Notice
from kvtax.units import format_bytes, format_requests
from kvtax.views.notices import INFORMATIVE
from kvtax.views.page import Cell

VERDICT_TONES = {"fits": "good", "over_budget": "note"}


def deployment_title(budget: Budget) -> str:
    """Model, card, load and engine of a budget in one line."""
    asked = budget.deployment
    cards = budget.prepared.gpu_count
    count = f"{cards} x " if cards > 1 else ""
    requests = f"{budget.concurrency:,} requests of " if budget.concurrency else ""
    quantization = f" {asked.quantization}" if asked.quantization else ""
    return (
        f"{budget.model.id}{quantization} on {count}{budget.gpu.name}, "
        f"{requests}{budget.max_model_len:,} tokens, {budget.prepared.plan.label}"
    )


def verdict_cell(budget: Budget | None) -> Cell:
    """The verdict as a cell; an error where there is no budget."""
    if budget is None:
        return Cell("error", "error", "bad")
    return Cell(budget.verdict.replace("_", " "), budget.verdict, VERDICT_TONES.get(budget.verdict, "bad"))


def signed_bytes(size: int) -> str:
    """A difference in bytes: +1.5 GiB, -128 KiB, 0."""
    return f"{'+' if size > 0 else ''}{format_bytes(size)}" if size else "0"


def signed_requests(number: float) -> str:
    """A difference in requests: +12.5, -3.00."""
    return f"{'-' if number < 0 else '+'}{format_requests(abs(number))}"


def cause_lines(found: Causes) -> list[str]:
    """Why a pool differs, in words: by parts of the memory, by requests, by changed fields."""
    lines = []
    if found.parts:
        total = sum(part.effect_bytes for part in found.parts)
        parts = ", ".join(f"{part.name} {signed_bytes(part.effect_bytes)}" for part in found.parts)
        lines.append(f"KV pool {signed_bytes(total)} a card: {parts}")
    before, after = found.request_bytes
    if before != after:
        lines.append(f"a request takes {format_bytes(after)} a card instead of {format_bytes(before)}")
    if len(found.shares) > 1:
        shares = (
            f"{' and '.join(share.fields)} {signed_requests(share.max_concurrency)} "
            f"requests, pool {signed_bytes(share.kv_pool_bytes)}"
            for share in found.shares
        )
        order = "in the order given: " if found.in_order else "of these: "
        lines.append(order + "; ".join(shares))
    return lines or ["nothing in the memory of a card changes"]


def reason_lines(budget: Budget | None, error: KvtaxError | None, said: Iterable[Notice] = ()) -> list[str]:
    """Why a deployment is refused or cannot be sized, and what rests on an assumption and was not said before."""
    if error is not None:
        return [str(error) + (f" ({error.hint})" if error.hint else "")]
    if budget is None:
        return []
    known = set(said)
    return [
        notice.message + (f" ({notice.hint})" if notice.hint else "")
        for notice in budget.notices
        if notice not in known and notice.code not in INFORMATIVE
    ]


def error_dict(error: KvtaxError | None) -> dict[str, Any]:
    """An error as JSON has it."""
    document: dict[str, Any] = {} if error is None else error.to_dict()["error"]
    return document
