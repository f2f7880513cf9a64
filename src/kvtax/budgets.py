"""Deployment -> Budget: what does not depend on the length of requests is prepared once and kept."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kvtax.budget_result import COVERAGE, SCHEMA, TYPICAL_REQUEST_TOKENS, Budget, catalogue_stamp
from kvtax.deployment import SPELLINGS, Deployment, make_deployment
from kvtax.hardware.gpu import Gpu
from kvtax.prepared import Prepared
from kvtax.sources.local import looks_like_path
from kvtax.sources.models import ModelEntry
from kvtax.sources.recent import HUB_SECONDS, folder_state

__all__ = ["COVERAGE", "SCHEMA", "TYPICAL_REQUEST_TOKENS", "Budget", "budget", "catalogue_stamp"]

_PREPARED: dict[Any, Prepared] = {}


def _key(fields: Mapping[str, Any]) -> Any:
    model = fields.get("model")
    if isinstance(model, Mapping):
        shown: Any = json.dumps(model, sort_keys=True, default=str)
    elif isinstance(model, str) and looks_like_path(model):
        place = os.path.expanduser(model)
        shown = (model, folder_state(place if os.path.isdir(place) else os.path.dirname(place) or "."))
    else:
        shown = model
    # what lies on the hub, in a store, or under the name of an adapter or a draft may change while a process runs
    elsewhere = isinstance(model, str) and not {"/", ":"}.isdisjoint(model)
    minute = time.monotonic() // HUB_SECONDS if elsewhere or fields.get("lora") or fields.get("speculative") else 0
    return (
        shown,
        minute,
        *sorted(
            (name, value) for name, value in fields.items() if name not in ("model", "max_model_len", "concurrency")
        ),
    )


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
    asked = made._replace(max_model_len=None, concurrency=None)
    prepared = Prepared(asked, models, gpus, engine_given=bool(given.get("engine")))
    if key is not None and made.max_model_len == given.get("max_model_len", made.max_model_len):
        if len(_PREPARED) >= 256:
            _PREPARED.clear()
        _PREPARED[key] = prepared
    return Budget(prepared, made.max_model_len, made.concurrency)
