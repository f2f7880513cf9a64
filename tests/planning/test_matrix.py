"""A matrix holds the budgets of its rows and columns, and no third axis."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvtax
from kvtax.errors import InputError

AXES = {
    "model": ["llama-3-8b", "gpt-oss-20b", "qwen3-32b"],
    "gpu": ["l4", "h100-sxm", "mi300x", "no-such-card"],
    "max_model_len": [2048, 8192],
    "engine": ["vllm", "sglang", "llama.cpp"],
}


@settings(max_examples=25, deadline=None)
@given(st.permutations(sorted(AXES)), st.integers(0, 2))
def test_every_cell_is_the_budget_of_its_row_and_column(names, several):
    fields = {name: AXES[name] if place < several else AXES[name][0] for place, name in enumerate(names)}
    found = kvtax.matrix(**fields)
    assert len(found.cells) == len(found.rows.values)
    for row, cells in zip(found.rows.values, found.cells, strict=True):
        for column, cell in zip(found.columns.values, cells, strict=True):
            asked = {**{name: value for name, value in fields.items() if not isinstance(value, list)}}
            asked |= {found.rows.name: row, found.columns.name: column}
            if "no-such-card" in asked.values():
                assert cell.error.code == "unknown-gpu"
                continue
            budget = kvtax.budget(**asked)
            assert cell.budget.per_gpu == budget.per_gpu
            assert cell.budget.max_concurrency == budget.max_concurrency


def test_models_make_the_rows():
    found = kvtax.matrix(gpu=["l4", "h100-sxm"], model=["llama-3-8b", "qwen3-32b"])
    assert (found.rows.name, found.columns.name) == ("model", "gpu")
    assert found.transposed().rows == found.columns


def test_three_axes_name_the_sweep():
    with pytest.raises(InputError, match="two axes") as caught:
        kvtax.matrix(["kv_cache_dtype=auto,fp8"], model=["llama-3-8b", "qwen3-32b"], gpu=["l4", "h100-sxm"])
    assert "kvtax sweep" in caught.value.hint


def test_too_many_cells_are_refused():
    with pytest.raises(InputError, match="make 40,000 budgets"):
        kvtax.matrix({"concurrency": range(1, 201)}, model="llama-3-8b", gpu="l4", max_model_len=list(range(1, 201)))
