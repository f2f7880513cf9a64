"""The anatomy of a model as `kvtax.inspect/1`: integers of bytes, nothing rounded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kvtax.planning.anatomy import Anatomy, LayerGroup, RankShare
from kvtax.terms import Notice
from kvtax.views.inspect_kv import rank_remarks
from kvtax.views.layer_words import kind_words

if TYPE_CHECKING:
    from kvtax.architectures.quantization import StoredTensor
    from kvtax.sources.resolve import Model

SCHEMA = "kvtax.inspect/1"


def inspect_to_dict(model: Model, anatomy: Anatomy, notices: Iterable[Notice]) -> dict[str, Any]:
    """Everything about a model, every group of tensors included."""
    from kvtax.budgets import catalogue_stamp

    architecture, dtype = anatomy.architecture, anatomy.kv_dtype
    return {
        "schema": SCHEMA,
        **catalogue_stamp(),
        "model": _model(model),
        "kv": {
            "dtype": dtype,
            "bytes_per_token": architecture.kv_bytes_per_token(dtype),
            "bytes_per_token_before_windows_fill": architecture.kv_bytes_per_token(dtype, 1),
            "state_bytes_per_request": architecture.state_bytes(),
            "cross_attention_bytes_per_request": anatomy.source_bytes,
            "at_context": anatomy.tokens,
            "bytes_per_request": architecture.kv_bytes(anatomy.tokens, dtype),
        },
        "image": None if anatomy.image is None else anatomy.image._asdict(),
        "layers": [_layers(group) for group in anatomy.groups],
        "layers_without_cache": anatomy.layers_without_cache,
        "weights": [part._asdict() for part in anatomy.components],
        "tensors": [_tensor(stored) for stored in architecture.stored_tensors()],
        "growth": [length._asdict() for length in anatomy.lengths],
        "kv_dtypes": [each._asdict() for each in anatomy.formats],
        "tensor_parallel": [_rank(rank, architecture.num_attention_heads) for rank in anatomy.ranks],
        "class_defaults": {str(key): _plain(value) for key, value in architecture.defaults_used.items()},
        "notices": [notice.to_dict() for notice in notices],
    }


def _model(model: Model) -> dict[str, Any]:
    architecture, entry = model.architecture, model.entry
    quantization = architecture.quantization
    return {
        "id": model.id,
        "source": model.source,
        "weights_source": model.weights_source,
        "checkpoint_bytes_by_dtype": architecture.dtype_bytes(),
        "generation_limits": dict(model.limits),
        "kind": "file" if entry is None else entry.kind,
        "aliases": [] if entry is None else list(entry.aliases),
        "config_from": None if entry is None else entry.config_from,
        "licence": None if entry is None else entry.licence,
        "published_parameters": None if entry is None else entry.parameters,
        "published_note": None if entry is None else entry.parameters_note,
        "architecture": architecture.name,
        "model_type": architecture.model_type,
        "architecture_kind": architecture.kind,
        "dtype": architecture.dtype,
        "quantization": None if quantization is None else quantization.name,
        "max_position_embeddings": architecture.max_position_embeddings,
        "num_hidden_layers": architecture.num_hidden_layers,
        "hidden_size": architecture.hidden_size,
        "num_attention_heads": architecture.num_attention_heads,
        "num_experts": architecture.num_experts,
        "num_experts_per_tok": architecture.num_experts_per_tok,
        "vocab_size": architecture.vocab_size,
        "parameters": architecture.parameters,
        "active_parameters": architecture.active_parameters,
        "weight_bytes": architecture.weight_bytes(),
        "checkpoint_parameters": architecture.checkpoint_parameters,
        "checkpoint_bytes": architecture.checkpoint_bytes,
    }


def _layers(group: LayerGroup) -> dict[str, Any]:
    cache = group.cache
    fields = {str(key): _plain(value) for key, value in cache._asdict().items()} if isinstance(cache, tuple) else {}
    return {
        "kind": cache.kind,
        "words": kind_words(cache),
        "count": len(group.layers),
        "layers": list(group.layers),
        "cache": fields,
        "bytes_per_token": group.bytes_per_token,
        "bytes_per_token_before_windows_fill": group.early_bytes_per_token,
        "bytes_per_request": group.request_bytes,
        "state_bytes": group.state_bytes,
        "source_bytes": group.source_bytes,
    }


def _tensor(stored: StoredTensor) -> dict[str, Any]:
    tensor = stored.source
    return {
        "name": stored.name,
        "shape": list(stored.shape),
        "dtype": stored.dtype,
        "count": stored.copies,
        "elements": stored.elements,
        "bytes": stored.bytes,
        "component": tensor.component,
        "loaded": tensor.loaded,
        "in_checkpoint": tensor.stored,
        "parameter": tensor.parameter,
        "scale": stored.scale,
    }


def _rank(rank: RankShare, attention_heads: int) -> dict[str, Any]:
    return {
        "tensor_parallel_size": rank.tensor_parallel_size,
        "weights_bytes": rank.weights_bytes,
        "bytes_per_token": rank.bytes_per_token,
        "bytes_per_request": rank.request_bytes,
        "cross_attention_bytes_per_request": rank.source_bytes,
        "kv_copies": rank.kv_copies,
        "refused": rank.refused,
        "remarks": list(rank_remarks(rank, attention_heads)),
    }


def _plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else str(value)[:200]
