"""The JSON form of results: integers of bytes, nothing rounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvtax.budgets import Budget
    from kvtax.engines.answer import Rank


def deployment_to_dict(budget: Budget) -> dict[str, Any]:
    """Every field of the deployment, aliases resolved and defaults filled in."""
    deployment = budget.deployment
    fields: dict[str, Any] = dict(deployment._asdict())
    fields["model"] = budget.model.id
    fields["gpu"] = budget.gpu.id
    fields["gpu_count"] = budget.prepared.gpu_count
    fields["engine_version"] = budget.prepared.plan.version_text
    for name, setting in budget.settings().items():
        fields[name] = setting.value
    if fields["block_size"] is None:
        fields["block_size"] = budget.pool.block_size
    if fields["quantization"] is None and budget.prepared.architecture.quantization is not None:
        fields["quantization"] = budget.prepared.architecture.quantization.name
    return fields_to_dict(fields)


def fields_to_dict(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a deployment as JSON has them: values of several parts as they are typed, a model that was found by its id."""
    return {name: _plain(value) for name, value in fields.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "architecture"):
        return value.id
    return str(value) if isinstance(value, tuple) else value


def _rank_to_dict(rank: Rank) -> dict[str, Any]:
    memory = rank.memory
    return {
        "name": rank.name,
        "layers": rank.layers,
        "total_bytes": memory.total_bytes,
        "weights_bytes": memory.weights_bytes,
        "model_load_bytes": memory.weights_bytes + memory.load_extra_bytes,
        "activation_bytes": memory.activation_bytes,
        "cuda_graph_bytes": memory.cuda_graph_bytes,
        "runtime_bytes": memory.runtime_bytes,
        "kv_pool_bytes": memory.kv_pool_bytes,
        "unallocated_bytes": memory.unallocated_bytes,
        "capacity_tokens": rank.pool.capacity_tokens,
        "max_concurrency": rank.pool.max_concurrency,
        "host": rank.host._asdict(),
    }


def budget_to_dict(budget: Budget) -> dict[str, Any]:
    """A budget as `kvtax.budget/1`."""
    from kvtax.budgets import SCHEMA, catalogue_stamp

    architecture, memory, pool = budget.prepared.architecture, budget.memory, budget.pool
    return {
        "schema": SCHEMA,
        **catalogue_stamp(),
        "deployment": deployment_to_dict(budget),
        "asked": fields_to_dict(budget.asked),
        "model": {
            "id": budget.model.id,
            "architecture": architecture.name,
            "parameters": architecture.parameters,
            "active_parameters": architecture.active_parameters,
            "checkpoint_bytes": architecture.checkpoint_bytes,
            "source": budget.model.source,
            "weights_source": budget.model.weights_source,
        },
        "gpu": {"id": budget.gpu.id, "name": budget.gpu.name, "total_bytes": memory.total_bytes},
        "engine": {"name": budget.deployment.engine, "version": budget.prepared.plan.version_text},
        "per_gpu": budget.per_gpu,
        "ranks": [_rank_to_dict(rank) for rank in budget.ranks],
        "host": budget.host._asdict(),
        "kv": {
            "bytes_per_token": budget.kv_bytes_per_token,
            "bytes_per_request": budget.kv_bytes_per_request,
            "state_bytes_per_request": budget.state_bytes_per_request,
            "block_size": pool.block_size,
            "blocks": pool.blocks,
            "capacity_tokens": budget.capacity_tokens,
            "live_bytes_per_token": budget.live_bytes_per_token,
            "live_bytes_per_request": budget.live_bytes_per_request,
        },
        "concurrency": {
            "at_context": budget.max_model_len,
            "max": budget.max_concurrency,
            "requested": budget.concurrency,
            "fits": budget.fits,
        },
        "verdict": budget.verdict,
        "reason": None if budget.answer.reason is None else budget.answer.reason.to_dict(),
        "prints": list(budget.prints),
        "interval": budget.interval,
        "terms": [term.to_dict() for term in budget.terms],
        "notices": [notice.to_dict() for notice in budget.notices],
    }
