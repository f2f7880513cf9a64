"""Caches that transformers 5.24.0 itself made of 341 configs (one forward pass of 9 tokens), beside what kvtax says they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.engines.transformers_generate.cache import Format, as_kept, layer_bytes
from kvtax.sources.class_defaults import class_defaults

ROOT = Path(__file__).parents[2]
ROWS = [json.loads(line) for line in (ROOT / "tests/data/oracle.jsonl").read_text().splitlines()]
MEASURED = [row for row in ROWS if row.get("kv", {}).get("bytes_per_token_full_layers_16bit") is not None]
LONG = 2**20
# counted by hand in the oracle, with the columns that servers keep instead of the kernel's
BY_HAND = ("moonshotai/Kimi-K3",)
# the library's own class ignores is_causal false: the model's code attends in both directions and keeps nothing
CAUSAL_IN_THE_LIBRARY = ("Alibaba-NLP/gte-Qwen2-7B-instruct",)


def test_most_configs_are_measured() -> None:
    assert len(MEASURED) >= 340


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row["id"])
def test_a_token_and_the_state_are_what_transformers_keeps(row: dict[str, Any]) -> None:
    model = read_architecture(json.loads((ROOT / row["file"]).read_text()), class_defaults)
    if row["id"] in CAUSAL_IN_THE_LIBRARY:
        assert model.kv_bytes(LONG) == 0
        return
    form = Format("bfloat16")
    caches = [as_kept(cache, model.model_type, model.num_attention_heads) for cache in model.caches]
    growing = [cache for cache in caches if cache.kind not in ("recurrent", "cross_attention")]
    first = sum(layer_bytes(cache, 1, form) - layer_bytes(cache, 0, form) for cache in growing)
    long = sum(layer_bytes(cache, 2 * LONG, form) - layer_bytes(cache, LONG, form) for cache in growing)
    assert first == row["kv"]["bytes_per_token_all_layers_16bit"]
    assert long == LONG * row["kv"]["bytes_per_token_full_layers_16bit"]
    # in one byte an element the bytes are the elements
    states = [cache for cache in caches if cache.kind == "recurrent"]
    plain = [cache._replace(states=tuple(state._replace(dtype="int8") for state in cache.states)) for cache in states]
    if row["id"] not in BY_HAND:
        assert sum(layer_bytes(cache, 1, form) for cache in plain) == row["kv"]["fixed_elements_per_sequence"]
