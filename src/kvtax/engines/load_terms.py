"""Terms of what a rank loads and of what a request holds on it, for engines that keep both as the model has them."""

from __future__ import annotations

from kvtax.architectures.cache import (
    ChunkedLocal,
    FullAttention,
    LayerCache,
    MultiHeadLatent,
    Recurrent,
    SlidingWindow,
)
from kvtax.dtypes import find_dtype, head_bytes, latent_bytes
from kvtax.engines.answer import Question
from kvtax.engines.base import Plan
from kvtax.engines.stages import Stage
from kvtax.terms import Input, Term

CONFIG = "config.json"


def weight_terms(question: Question, stage: Stage) -> list[Term]:
    """Weights by component: elements of each stored dtype x its bytes."""
    given = question.deployment.weights_bytes
    if given is not None:
        return [Term("weights", given, "weights_bytes", {"weights_bytes": Input(given, "B", "flag")}, "given")]
    by_component: dict[str, dict[str, int]] = {}
    for (component, dtype), elements in stage.elements.items():
        by_component.setdefault(component, {})[dtype] = elements
    found = []
    ranks = question.deployment.tensor_parallel_size
    for component, elements_of in by_component.items():
        inputs: dict[str, Input] = {}
        parts, total = [], 0
        for dtype, elements in elements_of.items():
            bits = find_dtype(dtype).bits
            inputs[f"elements_{dtype}"] = Input(elements, "elements", f"{CONFIG}, one of {ranks} ranks")
            inputs[f"bits_{dtype}"] = Input(bits, "bit", "dtype")
            parts.append(f"-(-elements_{dtype} * bits_{dtype} // 8)")
            total += -(-elements * bits // 8)
        source = "architectures: inventory of tensors"
        found.append(Term(f"weights.{component}", total, " + ".join(parts), inputs, source))
    return found


def given_term(name: str, size: int, symbol: str, source: str, origin: str = "estimate") -> Term:
    """A size that stands alone: an estimate or a figure that was given."""
    return Term(name, size, symbol, {symbol: Input(size, "B", origin)}, source)


def request_terms(plan: Plan, stage: Stage, max_model_len: int) -> list[Term]:
    """What a request of max_model_len tokens really holds on one rank, by kind of cache."""
    counts: dict[LayerCache, int] = {}
    for cache in stage.caches:
        counts[cache] = counts.get(cache, 0) + 1
    found = []
    for cache, layers in counts.items():
        if isinstance(cache, Recurrent):
            found.append(_state_term(cache, layers, plan.recurrent_bytes(cache)))
        else:
            term = _kv_term(cache, layers, plan.kv_cache_dtype, max_model_len)
            if term is not None:
                found.append(term)
    return found


def _state_term(cache: Recurrent, layers: int, size: int) -> Term:
    shapes = ", ".join(f"{state.role} {' x '.join(map(str, state.shape))}" for state in cache.states)
    inputs = {"layers": Input(layers, "layers", CONFIG), "state_bytes": Input(size, "B", f"{CONFIG}: {shapes}")}
    return Term(f"request.{cache.variant}", layers * size, "layers * state_bytes", inputs, "architectures.state")


def _kv_term(cache: LayerCache, layers: int, kv_dtype: str, max_model_len: int) -> Term | None:
    inputs = {"layers": Input(layers, "layers", CONFIG)}
    source = "architectures.cache"
    if not isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal, MultiHeadLatent)):
        held = cache.bytes(max_model_len, kv_dtype)
        if not held:
            return None
        inputs["held_bytes"] = Input(held, "B", f"{CONFIG}: {cache.kind}")
        return Term(f"request.{cache.kind}", layers * held, "layers * held_bytes", inputs, source)
    tokens = cache.tokens_held(max_model_len)
    inputs["tokens"] = Input(tokens, "tokens", "max_model_len" if tokens == max_model_len else f"{CONFIG}: window")
    size = layers * cache.bytes(max_model_len, kv_dtype)
    index_bytes = cache.index_bytes if isinstance(cache, (FullAttention, MultiHeadLatent)) else 0
    if isinstance(cache, MultiHeadLatent):
        latent = latent_bytes(kv_dtype, cache.kv_lora_rank, cache.qk_rope_head_dim)
        origin = f"{kv_dtype}, {cache.kv_lora_rank} + {cache.qk_rope_head_dim} elements"
        inputs["latent_bytes"] = Input(latent, "B", origin)
        formula = "layers * tokens * latent_bytes"
    else:
        inputs["num_key_value_heads"] = Input(cache.num_key_value_heads, "heads", f"{CONFIG}, one rank")
        origin = f"{kv_dtype}, {cache.head_dim} + {cache.v_head_dim} elements"
        inputs["head_bytes"] = Input(head_bytes(kv_dtype, cache.head_dim, cache.v_head_dim), "B", origin)
        formula = "layers * tokens * num_key_value_heads * head_bytes"
    if index_bytes:
        inputs["index_bytes"] = Input(index_bytes, "B", CONFIG)
        pool = cache.index_pool if isinstance(cache, MultiHeadLatent) else 1
        inputs["index_pool"] = Input(pool, "tokens", CONFIG)
        formula += " + layers * (tokens // index_pool) * index_bytes"
    return Term(f"request.{cache.kind}", size, formula, inputs, source)
