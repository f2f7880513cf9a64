"""The terms of a transformers budget: each number with its formula, inputs, origins and source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtax.architectures.cache import LayerCache
from kvtax.engines.load_terms import CONFIG, given_term, weight_terms
from kvtax.engines.step_peaks import FRAGMENTATION
from kvtax.engines.transformers_generate.cache import layer_bytes
from kvtax.terms import Input, Term

if TYPE_CHECKING:
    from kvtax.engines.transformers_generate.plan import Batch, TransformersPlan

_CACHE = "transformers cache_utils.py"


def all_terms(plan: TransformersPlan, batch: Batch) -> list[Term]:
    """Weights, context, step, cache of the batch, and what a request holds."""
    memory = batch.memory
    name = max(batch.peaks, key=lambda key: batch.peaks[key])
    step = {
        f"{name}_peak_bytes": Input(
            batch.peaks[name], "B", f"{batch.requests * batch.beams} sequences of {batch.max_model_len} tokens"
        ),
        "fragmentation": Input(FRAGMENTATION, "-", "estimate"),
    }
    pool = {
        "requests": Input(batch.requests, "requests", "flag" if batch.requests > 1 else "one, where none is asked"),
        "num_beams": Input(batch.beams, "sequences", plan.settings["num_beams"].origin),
        "sequence_bytes": Input(
            batch.kept.device_bytes, "B", f"{plan.form.implementation} cache of {batch.max_model_len} tokens"
        ),
    }
    source = "transformers_generate.peaks: shapes of the tensors that are alive at once; by reading, not measured"
    found = weight_terms(plan.question, batch.stage)
    found.append(given_term("runtime.outside", memory.outside_bytes, "outside_bytes", "CUDA context and communicators"))
    found.append(Term("activation", memory.activation_bytes, f"{name}_peak_bytes * fragmentation // 1", step, source))
    found.append(Term("kv_pool", memory.kv_pool_bytes, "requests * num_beams * sequence_bytes", pool, _CACHE))
    if memory.loading_bytes:
        origin = "the largest linear weight in 16 bit, while it is quantised"
        found.append(
            given_term(
                "loading", memory.loading_bytes, "largest_weight_bytes", "transformers quantizers, bitsandbytes", origin
            )
        )
    return found + request_terms(plan, batch)


def request_terms(plan: TransformersPlan, batch: Batch) -> list[Term]:
    """What a request of the longest length holds, by kind of cache."""
    counts: dict[LayerCache, int] = {}
    for cache in batch.stage.caches:
        counts[cache] = counts.get(cache, 0) + 1
    found = []
    for cache, layers in counts.items():
        size = layer_bytes(cache, batch.max_model_len, plan.form)
        if not size:
            continue
        inputs = {
            "layers": Input(layers, "layers", CONFIG),
            "num_beams": Input(plan.beams, "sequences", plan.settings["num_beams"].origin),
            "layer_bytes": Input(size, "B", f"{plan.form.dtype}, {plan.form.implementation} cache"),
        }
        found.append(
            Term(
                f"request.{cache.kind}", layers * plan.beams * size, "layers * num_beams * layer_bytes", inputs, _CACHE
            )
        )
    return found
