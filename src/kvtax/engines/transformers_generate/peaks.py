"""What generate needs for a while: the prefill of whole prompts, and a step of decoding that copies the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import ChunkedLocal, LayerCache, SlidingWindow
from kvtax.engines.step_peaks import step_peaks
from kvtax.engines.transformers_generate.cache import Format, growth_bytes, layer_bytes, row_elements, tokens_kept
from kvtax.units import ceil_div


class Step(NamedTuple):
    """A batch at its longest.

    Args:
        sequences: requests * beams [sequences].
        prompt_tokens: of one step of the prefill: the whole prompt, or prefill_chunk_size [tokens].
        tokens: that a sequence has in the end [tokens].
        attention: sdpa, eager, flash_attention_2 ...
        last_logits: whether a prefill computes logits of the last position only.
    """

    sequences: int
    prompt_tokens: int
    tokens: int
    attention: str
    last_logits: bool


def attention_bytes(
    architecture: Architecture, tp: int, step: Step, queries: int, expanded_width: int, size: int
) -> int:
    """What one layer's attention keeps beside its input: heads repeated for grouped queries, scores and mask, expanded latents.

    sdpa: with several sequences (padding asks for a mask) keys and values of all query heads, and a byte of mask for a query and key;
    eager: these, scores twice in the model's dtype and once in float32 (num_attention_heads * queries * keys), mask in the model's dtype;
    flash: nothing; latents: heads of all tokens on every call

    Args:
        architecture: of the model.
        tp: tensor_parallel_size [ranks].
        step: the batch.
        queries: tokens of one sequence in this step [tokens].
        expanded_width: elements of keys and values of all heads of a latent, 0 without latents [elements].
        size: of an element in the model's dtype [bytes].

    Returns:
        Size [bytes].

    Source: transformers integrations/sdpa_attention.py and eager_attention_forward: softmax in float32, cast back while both live; by reading.
    """
    keys = step.sequences * step.tokens
    found = keys * expanded_width * size
    if "flash" in step.attention or step.attention == "flex_attention":
        return found
    heads = ceil_div(architecture.num_attention_heads, tp)
    masked = step.attention == "eager" or step.sequences > 1
    if masked and architecture.num_key_value_heads < architecture.num_attention_heads and not expanded_width:
        found += 2 * keys * heads * architecture.head_dim * size
    if step.attention == "eager":
        return found + keys * queries * (heads * (2 * size + 4) + size)
    return found + (keys * queries if masked else 0)


def window_storage_bytes(caches: Sequence[LayerCache], step: Step, form: Format) -> int:
    """What window layers still hold of the prompt after a prefill: the kept tokens are a view of all of them until the next step.

    sequences * (prompt_tokens - window) * row, in a dynamic cache

    Source: transformers cache_utils.py DynamicSlidingWindowLayer.update: a slice of the joined tensor; by reading.
    """
    if form.implementation not in ("dynamic", "offloaded"):
        return 0
    total = 0
    for cache in caches:
        if isinstance(cache, (SlidingWindow, ChunkedLocal)):
            beyond = step.prompt_tokens - tokens_kept(cache, step.prompt_tokens)
            total += step.sequences * beyond * sum(row_elements(cache, form)) * form.element_bytes
    return total


def peaks(
    architecture: Architecture, caches: Sequence[LayerCache], tp: int, step: Step, form: Format, expanded_width: int
) -> dict[str, int]:
    """Peaks by part, which do not come at once: mlp, attention, logits of the prefill, and growth of a decoding step [bytes].

    Args:
        architecture: of the model.
        caches: of one rank.
        tp: tensor_parallel_size [ranks].
        step: the batch.
        form: how the cache is held.
        expanded_width: see attention_bytes.

    Returns:
        Sizes by name.

    Source: engines.step_peaks; attention_bytes; cache.growth_bytes.
    """
    size = form.element_bytes
    tokens = step.sequences * step.prompt_tokens
    found = step_peaks(architecture, tp, tokens, step.sequences if step.last_logits else tokens, size)
    stored = window_storage_bytes(caches, step, form)
    found["attention"] += attention_bytes(architecture, tp, step, step.prompt_tokens, expanded_width, size)
    found = {name: value + stored for name, value in found.items()}
    decode = step_peaks(architecture, tp, step.sequences, step.sequences, size)
    copied = step.sequences * growth_bytes(caches, step.tokens, form)
    found["growth"] = copied + max(decode.values()) + attention_bytes(architecture, tp, step, 1, expanded_width, size)
    return found


def sequence_bytes(caches: Sequence[LayerCache], tokens: int, form: Format) -> int:
    """What one sequence of `tokens` tokens keeps in all layers, on whatever device [bytes]."""
    return sum(layer_bytes(cache, tokens, form) for cache in caches)
