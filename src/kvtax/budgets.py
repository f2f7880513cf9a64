"""Deployment -> Budget: what does not depend on the length of requests is prepared once and kept."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from kvtax.budget_result import COVERAGE, SCHEMA, TYPICAL_REQUEST_TOKENS, Budget, catalogue_stamp
from kvtax.deployment import SPELLINGS, Deployment, make_deployment
from kvtax.hardware.gpu import Gpu
from kvtax.prepared import Prepared
from kvtax.sources.local import looks_like_path
from kvtax.sources.models import ModelEntry

__all__ = ["COVERAGE", "SCHEMA", "TYPICAL_REQUEST_TOKENS", "Budget", "budget", "catalogue_stamp"]

_PREPARED: dict[Any, Prepared] = {}


def _key(fields: Mapping[str, Any]) -> Any:
    model = fields.get("model")
    if isinstance(model, Mapping):
        shown: Any = json.dumps(model, sort_keys=True, default=str)
    elif isinstance(model, str) and looks_like_path(model):
        shown = (model, *_stamp(model), *_stamp(os.path.join(model, "config.json")))
    else:
        shown = model
    return (
        shown,
        *sorted(
            (name, value) for name, value in fields.items() if name not in ("model", "max_model_len", "concurrency")
        ),
    )


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = os.stat(os.path.expanduser(path))
    except (OSError, ValueError):
        return 0, 0
    return found.st_mtime_ns, found.st_size


def budget(
    deployment: Deployment | None = None,
    *,
    models: Sequence[ModelEntry] = (),
    gpus: Sequence[Gpu] = (),
    **fields: Any,
) -> Budget:
    """The budget of one deployment.

    Args:
        deployment: a Deployment, or nothing where its fields are given one by one.
        models: entries of one's own, looked at before the catalogue.
        gpus: cards of one's own.
        fields: of Deployment (model, gpu, max_model_len, concurrency ...).

    Returns:
        The budget of the tightest rank.

    Raises:
        InputError: a field that cannot be.
        UnknownNameError: a name that is not known.
        NotKnownError: what could not be found out.

    >>> budget(model="llama-3-8b", gpu="a100-80", max_model_len=8192).kv_bytes_per_token
    131072
    """
    if deployment is not None:
        given = {name: value for name, value in deployment._asdict().items() if value is not None}
        given.update(fields)
    else:
        given = fields
    key: Any = None
    if not models and not gpus and SPELLINGS.keys().isdisjoint(given):
        try:
            key = _key(given)
            prepared = _PREPARED.get(key)
        except TypeError:
            key, prepared = None, None
        if prepared is not None:
            lengths = make_deployment(
                {"model": "-", "max_model_len": given.get("max_model_len"), "concurrency": given.get("concurrency")}
            )
            return Budget(prepared, lengths.max_model_len, lengths.concurrency)
    made = make_deployment(given)
    prepared = Prepared(made._replace(max_model_len=None, concurrency=None), models, gpus)
    if key is not None and made.max_model_len == given.get("max_model_len", made.max_model_len):
        if len(_PREPARED) >= 256:
            _PREPARED.clear()
        _PREPARED[key] = prepared
    return Budget(prepared, made.max_model_len, made.concurrency)
