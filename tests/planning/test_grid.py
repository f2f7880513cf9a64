"""Changes and grids in words: what is read is what was meant, and can be written back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtax.deployment import CHOICE_FIELDS, FLAG_FIELDS, MEMORY_FIELDS, TOKEN_FIELDS
from kvtax.errors import InputError
from kvtax.planning.grid import (
    MOST_CELLS,
    Axis,
    check_size,
    expand,
    read_axes,
    read_axis,
    read_change,
    read_value,
    show_change,
    show_value,
)


@st.composite
def fields(draw):
    kind = draw(st.sampled_from(("memory", "tokens", "flag", "choice", "count", "word")))
    if kind == "memory":
        return draw(st.sampled_from(sorted(MEMORY_FIELDS))), draw(st.integers(2**20, 2**45))
    if kind == "tokens":
        return draw(st.sampled_from(sorted(TOKEN_FIELDS))), draw(st.integers(1, 2**31))
    if kind == "flag":
        return draw(st.sampled_from(sorted(FLAG_FIELDS))), draw(st.booleans())
    if kind == "choice":
        name = draw(st.sampled_from(sorted(CHOICE_FIELDS)))
        return name, draw(st.sampled_from(CHOICE_FIELDS[name]))
    if kind == "count":
        return "tensor_parallel_size", draw(st.integers(1, 4096))
    return "kv_cache_dtype", draw(st.sampled_from(("auto", "fp8", "nvfp4")))


@given(fields())
def test_a_value_that_is_shown_is_read_back(field):
    name, value = field
    assert read_value(name, show_value(name, value)) == (name, value)
    assert read_change(show_change({name: value})) == (name, value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tp=2", ("tensor_parallel_size", 2)),
        ("n=40", ("concurrency", 40)),
        ("--kv-cache-dtype=fp8", ("kv_cache_dtype", "fp8")),
        ("disable_radix_cache=true", ("enable_prefix_caching", False)),
        ("enforce-eager=no", ("enforce_eager", False)),
        ("vram=48GiB", ("vram", 48 << 30)),
        ("speculative=none", ("speculative", None)),
        ("split_mode=none", ("split_mode", "none")),
        ("max_model_len=default", ("max_model_len", None)),
    ],
)
def test_a_change_as_people_write_it(text, found):
    assert read_change(text) == found


@pytest.mark.parametrize("text", ["tp", "", "=", "no_such=1", "tp=two", "enforce_eager=maybe", "context=-1"])
def test_a_change_that_cannot_be_read_says_so(text):
    with pytest.raises(InputError) as caught:
        read_change(text)
    assert caught.value.message


def test_values_with_commas_are_separated_by_semicolons():
    assert read_axis("tensor_split=3,1;1,1").values[0] != read_axis("tensor_split=3,1;1,1").values[1]
    assert len(read_axis("limit_mm_per_prompt=image=1,video=0").values) == 1


@pytest.mark.parametrize(
    "words", [["tp=1,1"], ["tp=1", "tensor_parallel_size=2"], ["context=8k,8192"]], ids=["value", "field", "spelling"]
)
def test_what_is_given_twice_is_refused(words):
    with pytest.raises(InputError, match="twice"):
        read_axes(words)


def test_a_grid_that_explodes_is_refused_with_its_size():
    axes = [Axis("max_model_len", tuple(range(1, 202))), Axis("concurrency", tuple(range(1, 101)))]
    with pytest.raises(InputError, match=r"201 max_model_len x 100 concurrency make 20,100 budgets") as caught:
        check_size(axes)
    assert "kvtax sweep" in caught.value.hint
    assert check_size(axes, 20_100) == 20_100 > MOST_CELLS


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_every_combination_comes_once(sizes):
    names = ("max_model_len", "concurrency", "tensor_parallel_size", "block_size")
    axes = [Axis(name, tuple(range(1, size + 1))) for name, size in zip(names, sizes, strict=False)]
    cells = [tuple(cell.values()) for cell in expand(axes)]
    assert len(cells) == len(set(cells)) == check_size(axes)
    assert cells == sorted(cells)
