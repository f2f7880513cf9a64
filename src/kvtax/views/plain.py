"""A budget as `key: value` lines, for grep, awk and eyes; no colours, no drawing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvtax.units import format_bytes
from kvtax.views.cards import HEADINGS, CardRow
from kvtax.views.rank_rows import RANK_HEADINGS
from kvtax.views.sheet import Sheet


def plain_text(sheet: Sheet) -> str:
    """One line for each thing; bytes exactly and for people."""
    return "".join(f"{line}\n" for line in _lines(sheet))


def _lines(sheet: Sheet) -> Iterator[str]:
    yield f"budget: {sheet.title}"
    yield f"model: {sheet.about_model}"
    yield f"engine: {sheet.about_engine}"
    yield f"verdict: {sheet.verdict}"
    yield f"sentence: {sheet.sentence}"
    for part in sheet.parts:
        yield f"{part.key}: {part.bytes} B = {format_bytes(part.bytes)}"
    yield f"card: {sheet.total_bytes} B = {format_bytes(sheet.total_bytes)}"
    for figure in (*sheet.figures, sheet.concurrency):
        remark = f" ({figure.remark})" if figure.remark else ""
        yield f"{figure.key}: {figure.number} {figure.unit}{remark}"
    for rank in sheet.ranks:
        figures = ", ".join(f"{heading} {cell}" for heading, cell in zip(RANK_HEADINGS[1:], rank[1:], strict=False))
        yield f"rank {rank.name}: {figures}" + (", tightest" if rank.tightest else "")
    for line in sheet.prints:
        yield f"{sheet.printer}: {line}"
    for remedy in sheet.remedies:
        yield f"remedy: {remedy.flags}: {remedy.gives} ({remedy.cost})"
    for notice in sheet.notices:
        yield f"notice {notice.code}: {notice.message}" + (f" ({notice.hint})" if notice.hint else "")


def plain_cards(title: str, rows: Sequence[CardRow]) -> str:
    """One line for each card: its name, verdict and figures."""
    lines = [f"budgets: {title}"]
    for row in rows:
        figures = ", ".join(f"{heading} {cell}" for heading, cell in zip(HEADINGS, row.cells, strict=True) if cell)
        lines.append(f"{row.gpu}: {row.word}" + (f", {figures}" if figures else ""))
    lines += [f"notice {notice.code}: {notice.message}" for row in rows for notice in row.notices]
    return "".join(f"{line}\n" for line in lines)
