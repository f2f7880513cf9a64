"""Budgets as CSV: one row each, bytes as they are, under a header that only grows at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvtax.errors import KvtaxError
from kvtax.views.safe import csv_text

if TYPE_CHECKING:
    from kvtax.budgets import Budget
    from kvtax.views.cards import Answer

COLUMNS = (
    "model", "gpu", "engine", "engine_version", "tensor_parallel_size", "pipeline_parallel_size", "max_model_len", "requested", "verdict",
    "max_concurrency", "max_concurrency_low", "max_concurrency_high", "capacity_tokens", "total_bytes", "limit_bytes", "weights_bytes",
    "activation_bytes", "cuda_graph_bytes", "runtime_bytes", "kv_pool_bytes", "unallocated_bytes", "kv_bytes_per_token",
    "kv_bytes_per_request", "state_bytes_per_request", "notices", "error",
)  # fmt: skip


def csv_rows(answers: Sequence[Answer]) -> str:
    """The header and a row for each budget; a card without one has its error in the last column."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, answer in answers:
        row = {"gpu": name, "error": answer.code} if isinstance(answer, KvtaxError) else _row(answer)
        writer.writerow(
            [
                csv_text(value) if isinstance(value, str) else value
                for value in (row.get(column, "") for column in COLUMNS)
            ]
        )
    return out.getvalue()


def _row(budget: Budget) -> dict[str, str | int | float]:
    document = budget.to_dict()
    deployment, per_gpu, kv, requests = (
        document["deployment"],
        document["per_gpu"],
        document["kv"],
        document["concurrency"],
    )
    low, high = document["interval"]["max_concurrency"]
    row = {column: source[column] for source in (deployment, per_gpu) for column in COLUMNS if column in source}
    return row | {
        "model": document["model"]["id"],
        "gpu": document["gpu"]["id"],
        "requested": "" if requests["requested"] is None else requests["requested"],
        "verdict": document["verdict"],
        "max_concurrency": requests["max"],
        "max_concurrency_low": low,
        "max_concurrency_high": high,
        "capacity_tokens": kv["capacity_tokens"],
        "kv_bytes_per_token": kv["bytes_per_token"],
        "kv_bytes_per_request": kv["bytes_per_request"],
        "state_bytes_per_request": kv["state_bytes_per_request"],
        "notices": ";".join(notice["code"] for notice in document["notices"]),
    }
