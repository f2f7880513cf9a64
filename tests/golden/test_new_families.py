"""Recent model types: parameters of the class defaults, and caches as measured, in the form that serving engines keep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvtax
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError
from kvtax.sources.class_defaults import class_defaults

ROOT = Path(__file__).parents[2]
ROWS = [json.loads(line) for line in (ROOT / "tests/data/new_families.jsonl").read_text().splitlines()]

# Where kvtax and the measurement differ, and who is right. Everything else must be equal.
PARAMETERS_DIFFER = {
    # the library makes room for the gate and up projections of zero experts, which do nothing; checkpoints have none:
    # layers x zero experts x two projections
    "longcat_flash": 28 * 256 * 2 * 2048 * 6144,
}
# The class defaults leave out what such a model cannot do without: no count is the right answer.
INCOMPLETE = {
    "qwen4_exp": "indexer_head_dim is null",
    "qwen4_exp_text": "indexer_head_dim is null",
}
# The library did not run these; it named the classes of the caches only, from layer types that it does not honour.
NOT_MEASURED = {
    "glm5_next": "latents are shared by pools of tokens, the forward pass does not run without data",
    "glm5_next_text": "as above",
    "step3p5": "the library has no class for it",
    "step3p7": "the forward pass asks for a window, which the class defaults leave out",
    "bamba": "all layers of the class default are recurrent, and the forward pass asks for the length of an attention cache",
    "recurrent_gemma": "keeps its state in the modules",
    "rwkv": "keeps its state in a list",
    "jetmoe": "the router does not run without data",
}
# Every cache of these is measured, but for what an engine keeps elsewhere.
STATE_ELSEWHERE = {
    "minimax": "linear attention keeps its state outside the library's cache layers",
}


def architecture(row: dict[str, Any]) -> kvtax.Architecture:
    """The row's default config, of the class that was counted."""
    config = dict(row["default_config"])
    if row.get("class"):
        config["architectures"] = [row["class"]]
    return read_architecture(config, class_defaults)


def test_all_of_them_are_here() -> None:
    kinds = {row["model_type"] for row in ROWS}
    assert len(ROWS) == len(kinds) == 40
    assert {*PARAMETERS_DIFFER, *INCOMPLETE, *NOT_MEASURED, *STATE_ELSEWHERE} <= kinds


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model_type"])
def test_parameters_of_the_class_defaults(row: dict[str, Any]) -> None:
    if row["model_type"] in INCOMPLETE:
        with pytest.raises(ConfigError):
            architecture(row)
        return
    found, expected = architecture(row), row.get("default_params_total")
    if expected is None:
        assert found.parameters > 0
    elif row["model_type"] in PARAMETERS_DIFFER:
        assert expected - found.parameters == PARAMETERS_DIFFER[row["model_type"]]
    else:
        assert found.parameters == expected


def engine_form(group: dict[str, Any]) -> tuple[int, int]:
    """Bytes per token and fixed bytes of one layer at 16 bits, from the arrays that 9 tokens left in it.

    Index keys are 128 fp8 and 4 bytes of scale per 128; a convolution keeps one column less than the library does.
    """
    shapes, dtypes = group["shapes"], group["dtypes"]
    rate = fixed = 0
    for name, shape in shapes.items():
        if name in ("keys", "values"):
            rate += 2 * shape[1] * shape[3]
        elif name == "indexer_keys":
            rate += shape[2] + 4 * -(-shape[2] // 128)
        elif name == "conv_states":
            size = 4 if dtypes[name] == "float32" else 2
            fixed += size * sum(width * (kernel - 1) for _, width, kernel in shape.values())
        elif name == "recurrent_states":
            for _, *sizes in shape.values():
                elements = 1
                for width in sizes:
                    elements *= width
                fixed += 4 * elements
    return rate, fixed


def measured(row: dict[str, Any]) -> list[dict[str, Any]]:
    groups = (row.get("cache") or {}).get("groups", [])
    return [] if row["model_type"] in {*NOT_MEASURED, *INCOMPLETE} else groups


@pytest.mark.parametrize("row", [row for row in ROWS if measured(row)], ids=lambda row: row["model_type"])
def test_caches_as_measured(row: dict[str, Any]) -> None:
    found = architecture(row)
    first = grown = state = 0
    for group in measured(row):
        rate, fixed = engine_form(group)
        first += group["n_layers"] * rate
        grown += 0 if group["sliding_window"] else group["n_layers"] * rate
        state += group["n_layers"] * fixed
    assert found.kv_bytes_per_token(at=1) == first
    assert found.kv_bytes_per_token() == grown
    if row["model_type"] not in STATE_ELSEWHERE:
        assert found.state_bytes(ssm_dtype="float32") == state


@pytest.mark.parametrize("row", [row for row in ROWS if measured(row)], ids=lambda row: row["model_type"])
@pytest.mark.parametrize("tokens", [1, 100, 1000, 100_000])
def test_requests_of_several_lengths(row: dict[str, Any], tokens: int) -> None:
    found = architecture(row)
    expected = 0
    for group in measured(row):
        window = group["sliding_window"]
        expected += group["n_layers"] * engine_form(group)[0] * (min(tokens, window) if window else tokens)
    assert found.kv_bytes(tokens) - found.state_bytes() == expected


def test_the_list_of_what_was_not_measured_is_no_longer_than_needed() -> None:
    for row in ROWS:
        groups = (row.get("cache") or {}).get("groups", [])
        empty = any(not group.get("shapes") for group in groups if "Dummy" not in group["class"])
        if not empty:
            assert row["model_type"] not in NOT_MEASURED
