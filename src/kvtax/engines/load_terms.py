"""Terms of what a rank loads and of what a request holds on it, for engines that keep both as the model has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from kvtax.architectures.cache import (
    ChunkedLocal,
    CompressedLatent,
    FullAttention,
    LayerCache,
    MultiHeadLatent,
    Recurrent,
    SlidingWindow,
)
from kvtax.dtypes import find_dtype, head_bytes, latent_bytes
from kvtax.engines.answer import Question
from kvtax.engines.base import Plan
from kvtax.terms import Input, Term

CONFIG = "config.json"
_WHOLE_BYTES = ("bfloat16", "float16", "float32", "fp8_e4m3", "fp8_e5m2")


class HasElements(Protocol):
    """A rank's weights by component and dtype [elements]."""

    @property
    def elements(self) -> Mapping[tuple[str, str], int]:
        """(component, dtype) -> elements."""


def weight_terms(question: Question, stage: HasElements) -> list[Term]:
    """Weights by component: elements of each stored dtype x its bytes."""
    given = question.deployment.weights_bytes
    if given is not None:
        return [Term("weights", given, "weights_bytes", {"weights_bytes": Input(given, "B", "flag")}, "given")]
    by_component: dict[str, dict[str, int]] = {}
    for (component, dtype), elements in stage.elements.items():
        by_component.setdefault(component, {})[dtype] = elements
    found = []
    ranks = question.deployment.tensor_parallel_size
    origin = CONFIG if question.architecture.in_files is None else "headers of the files"
    for component, elements_of in by_component.items():
        inputs: dict[str, Input] = {}
        parts, total = [], 0
        for dtype, elements in elements_of.items():
            bits = find_dtype(dtype).bits
            inputs[f"elements_{dtype}"] = Input(elements, "elements", f"{origin}, one of {ranks} ranks")
            if bits % 8:
                inputs[f"bits_{dtype}"] = Input(bits, "bit", "dtype")
                parts.append(f"-(-elements_{dtype} * bits_{dtype} // 8)")
            else:
                inputs[f"bytes_{dtype}"] = Input(bits // 8, "B", "dtype")
                parts.append(f"elements_{dtype} * bytes_{dtype}")
            total += -(-elements * bits // 8)
        source = "architectures: inventory of tensors"
        found.append(Term(f"weights.{component}", total, " + ".join(parts), inputs, source))
    return found


def given_term(name: str, size: int, symbol: str, source: str, origin: str = "estimate") -> Term:
    """A size that stands alone: an estimate or a figure that was given."""
    return Term(name, size, symbol, {symbol: Input(size, "B", origin)}, source)


def request_terms(
    plan: Plan, held: Iterable[tuple[LayerCache, str]], max_model_len: int, state_source: str = "architectures.state"
) -> list[Term]:
    """What a request of max_model_len tokens really holds on one rank, by kind of cache.

    Args:
        plan: of the engine.
        held: each layer's cache as one rank has it, and the format of its keys and values.
        max_model_len: of the request [tokens].
        state_source: where the engine's sizes of states are read.
    """
    counts: dict[tuple[LayerCache, str], int] = {}
    for key in held:
        counts[key] = counts.get(key, 0) + 1
    found = []
    origin = plan.settings["kv_cache_dtype"].origin
    for (cache, kv_dtype), layers in counts.items():
        if isinstance(cache, Recurrent):
            found.append(_state_term(cache, layers, plan.recurrent_bytes(cache), state_source))
        else:
            term = _kv_term(cache, layers, kv_dtype, max_model_len, origin)
            if term is not None:
                found.append(term)
    return found


def _state_term(cache: Recurrent, layers: int, size: int, source: str) -> Term:
    shapes = ", ".join(f"{state.role} {' x '.join(map(str, state.shape))}" for state in cache.states)
    inputs = {"layers": Input(layers, "layers", CONFIG), "state_bytes": Input(size, "B", f"{CONFIG}: {shapes}")}
    return Term(f"request.{cache.variant}", layers * size, "layers * state_bytes", inputs, source)


def _kv_term(cache: LayerCache, layers: int, kv_dtype: str, max_model_len: int, dtype_origin: str) -> Term | None:
    inputs = {"layers": Input(layers, "layers", CONFIG)}
    source = "architectures.cache"
    size = layers * cache.bytes(max_model_len, kv_dtype)
    if not isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal, MultiHeadLatent)):
        if not size:
            return None
        inputs["held_bytes"] = Input(size // layers, "B", _compressed_origin(cache))
        return Term(f"request.{cache.kind}", size, "layers * held_bytes", inputs, source)
    tokens = cache.tokens_held(max_model_len)
    inputs["tokens"] = Input(tokens, "tokens", "max_model_len" if tokens == max_model_len else f"{CONFIG}: window")
    if isinstance(cache, MultiHeadLatent):
        origin = f"{kv_dtype}, {cache.kv_lora_rank} + {cache.qk_rope_head_dim} elements"
        latent = latent_bytes(kv_dtype, cache.kv_lora_rank, cache.qk_rope_head_dim)
        inputs["latent_bytes"] = Input(latent, "B", origin)
        formula = "layers * tokens * latent_bytes"
        if cache.index_bytes:
            inputs["index_bytes"] = Input(cache.index_bytes, "B", CONFIG)
            inputs["index_pool"] = Input(cache.index_pool, "tokens", CONFIG)
            formula += " + layers * (tokens // index_pool) * index_bytes"
        return Term(f"request.{cache.kind}", size, formula, inputs, source)
    inputs["num_key_value_heads"] = Input(cache.num_key_value_heads, "heads", f"{CONFIG}, one rank")
    element = head_bytes(kv_dtype, 1, 0) if kv_dtype in _WHOLE_BYTES else 0
    if element:
        inputs["head_dim"] = Input(cache.head_dim, "elements", CONFIG)
        inputs["v_head_dim"] = Input(cache.v_head_dim, "elements", CONFIG)
        inputs["element_bytes"] = Input(element, "B", dtype_origin)
        formula = "layers * tokens * num_key_value_heads * (head_dim + v_head_dim) * element_bytes"
    else:
        origin = f"{kv_dtype}, {cache.head_dim} + {cache.v_head_dim} elements with scales"
        inputs["head_bytes"] = Input(head_bytes(kv_dtype, cache.head_dim, cache.v_head_dim), "B", origin)
        formula = "layers * tokens * num_key_value_heads * head_bytes"
    if isinstance(cache, FullAttention) and cache.index_bytes:
        inputs["index_bytes"] = Input(cache.index_bytes, "B", CONFIG)
        formula += " + layers * tokens * index_bytes"
    return Term(f"request.{cache.kind}", size, formula, inputs, source)


def _compressed_origin(cache: LayerCache) -> str:
    if not isinstance(cache, CompressedLatent):
        return f"{CONFIG}: {cache.kind}"
    rows = f", one row for {cache.ratio} tokens" if cache.ratio else ""
    return f"{CONFIG}: window {cache.window}{rows}"
