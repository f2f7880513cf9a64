"""transformers' defaults by version: one entry per change, with its source."""

from __future__ import annotations

from typing import Any

from kvtax.engines.base import Rule, Version, find_rule

NEWEST = (5, 24)
OLDEST = (4, 38)
RULES = (
    Rule("float32_runs_in", (0, 0), "float32", "transformers modeling_utils.py 4.x: without torch_dtype weights are cast to float32"),
    Rule("float32_runs_in", (5, 0), "checkpoint", "transformers 5.0: dtype is `auto`, as the config says"),
    Rule("latent", (0, 0), "expanded",
         "transformers modeling_deepseek_v3.py 4.50: keys and values of every head are kept, until huggingface/transformers#47761 (2026)"),
    Rule("latent", (5, 24), "compressed",
         "transformers 5.24.0 on the meta device: DynamicLayer of 512 + 64 elements, heads expanded on every call; huggingface/transformers#47761 "
         "and, for sparse attention, #48761 (2026-09). The releases that began are not known exactly"),
    Rule("last_logits", (0, 0), False, "transformers before 4.45: a prefill computes logits of every position"),
    Rule("last_logits", (4, 45), True, "transformers generation/utils.py 4.45: num_logits_to_keep, only the last position"),
)  # fmt: skip
GROUP = 64
"""Elements that share a scale and a shift in a quantised cache (q_group_size, transformers cache_utils.py)."""
RESIDUAL = 128
"""Newest tokens that a quantised cache keeps in the model's dtype (residual_length)."""
DEFAULT_BITS = 4
CACHES = ("dynamic", "static", "quantized", "offloaded", "offloaded_static")
_CACHE_SPELLINGS = {
    "hybrid": "static",
    "sliding_window": "static",
    "dynamic_full": "dynamic",
    "offloaded_hybrid": "offloaded_static",
}
ATTENTIONS = ("sdpa", "eager", "flash_attention_2", "flash_attention_3", "flex_attention")


def rule(name: str, version: Version) -> Any:
    """The value of a rule at a version."""
    return find_rule(RULES, name, version)


def cache_name(name: str) -> str:
    """The canonical name of a cache_implementation; `hybrid` and the like are static caches."""
    word = name.lower()
    return _CACHE_SPELLINGS.get(word, word)
