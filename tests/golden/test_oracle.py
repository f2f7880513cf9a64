"""Every model of the oracle: parameters exact, KV and state in the form that serving engines keep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvtax
from kvtax.architectures.registry import read_architecture
from kvtax.sources.class_defaults import class_defaults

ROOT = Path(__file__).parents[2]
ROWS = [json.loads(line) for line in (ROOT / "tests/data/oracle.jsonl").read_text().splitlines()]

# Where kvtax and the oracle differ, and who is right. Everything else must be equal.
PARAMETERS_DIFFER = {
    "stepfun-ai/Step-3.7-Flash": "the oracle's library ignores flat keys of this file and counts its class default vocab_size 128815, not 128896",
    "stepfun-ai/Step-3.7-Flash-FP8": "as above",
    "google/flan-t5-large": "the checkpoint has a head of its own, which the library loads beside the embedding; a count without files ties them",
    "google/flan-t5-xl": "as above",
    "google/flan-t5-xxl": "as above",
    "microsoft/Phi-3-vision-128k-instruct": "the oracle leaves the CLIP tower and the projector out",
    "microsoft/Phi-3.5-vision-instruct": "the oracle leaves the CLIP tower and the projector out",
}
KV_DIFFERS = {
    "tiiuae/falcon-40b": "the oracle's library broadcasts 8 key/value heads to 128 before it caches them; engines keep 8",
    "tiiuae/falcon-180B": "as above",
    "microsoft/Phi-3-vision-128k-instruct": "the oracle takes the window of 131072 tokens, the whole context, as none",
    "microsoft/Phi-3.5-vision-instruct": "as above",
    "Alibaba-NLP/gte-Qwen2-7B-instruct": "is_causal is false: the model's own code and vLLM attend in both directions and keep nothing",
}


def architecture(row: dict[str, Any]) -> kvtax.Architecture:
    return read_architecture(json.loads((ROOT / row["file"]).read_text()), class_defaults)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_parameters_are_the_oracles(row: dict[str, Any]) -> None:
    found = architecture(row)
    expected = row.get("params_total")
    if expected is None:
        assert found.parameters > 0
    elif row["id"] in PARAMETERS_DIFFER:
        assert found.parameters > expected, "no longer differs: take it off the list"
    else:
        assert found.parameters == expected
        active = row.get("params_active_per_token")
        assert active is None or found.active_parameters == active


def engine_form(kind: dict[str, Any], row: dict[str, Any], dtype_bytes: int) -> tuple[float, int | None]:
    """Bytes per token and fixed bytes of one layer as engines keep them."""
    rate = kind["bytes_per_token_per_layer_16bit"]
    latent = (row.get("mla") or {}).get("compressed_elements_per_token_per_layer")
    if "Indexed" in kind["class"] and latent and rate > 2 * latent:
        rate = 2 * latent + 132
    if not kind.get("conv_states"):
        return rate, None if kind.get("fixed_elements_per_layer") else 0
    columns = 0
    for shape in kind["conv_states"]:
        size = shape[-1] - 1
        for width in shape[:-1]:
            size *= width
        columns += size
    return rate, columns * dtype_bytes + 4 * kind.get("recurrent_state_elements", 0)


@pytest.mark.parametrize(
    "row",
    [
        r
        for r in ROWS
        if (r.get("kv") or {}).get("layer_kinds") and r["model_type"] not in ("deepseek_v4", "deepseek_ref")
    ],
    ids=lambda row: row["id"],
)
def test_caches_are_the_oracles(row: dict[str, Any]) -> None:
    if row["id"] in KV_DIFFERS:
        return
    found = architecture(row)
    dtype_bytes = 4 if found.dtype == "float32" else 2
    first = grown = 0.0
    state: int | None = 0
    cross = 0
    for kind in row["kv"]["layer_kinds"]:
        if kind.get("which") == "cross":
            cross += kind["n_layers"] * kind["fixed_elements_per_layer"] * 2
            continue
        rate, fixed = engine_form(kind, row, dtype_bytes)
        first += kind["n_layers"] * rate
        grown += 0 if kind.get("sliding_window") else kind["n_layers"] * rate
        state = None if fixed is None or state is None else state + kind["n_layers"] * fixed
    assert found.kv_bytes_per_token(at=1) == first
    assert found.kv_bytes_per_token() == grown
    if state is not None:
        assert found.state_bytes(ssm_dtype="float32") == state
    if cross:
        assert found.cross_attention_bytes() == cross


def request_bytes(row: dict[str, Any], tokens: int) -> float:
    """What one request holds by the oracle's kinds of layer, state apart."""
    total = 0.0
    for kind in row["kv"]["layer_kinds"]:
        if kind.get("which") == "cross":
            continue
        window = kind.get("sliding_window")
        total += kind["n_layers"] * engine_form(kind, row, 2)[0] * (min(tokens, window) if window else tokens)
    return total


@pytest.mark.parametrize("tokens", [1, 100, 4096, 131072])
def test_requests_of_several_lengths(tokens: int) -> None:
    for row in ROWS:
        kinds = (row.get("kv") or {}).get("layer_kinds")
        if (
            not kinds
            or row["model_type"] in ("deepseek_v4", "deepseek_ref", "llama4", "llama4_text")
            or row["id"] in KV_DIFFERS
        ):
            continue
        found = architecture(row)
        assert found.kv_bytes(tokens) - found.state_bytes() == request_bytes(row, tokens), row["id"]


@pytest.mark.parametrize("row", [r for r in ROWS if r["model_type"] == "deepseek_v4"], ids=lambda row: row["id"])
def test_compressed_caches(row: dict[str, Any]) -> None:
    found, kv = architecture(row), row["kv"]
    assert found.kv_bytes_per_token() == kv["long_context_bytes_per_token_16bit"]
    tokens = 128 * 1000
    assert (
        found.kv_bytes(tokens)
        == kv["long_context_bytes_per_token_16bit"] * tokens + 2 * kv["fixed_window_elements_per_sequence"]
    )
