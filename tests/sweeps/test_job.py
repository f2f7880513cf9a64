"""Lines crossed with a grid: every deployment once, in order, in chunks, from any point on."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtax.errors import InputError
from kvtax.planning.grid import Axis, expand
from kvtax.sweeps.job import CHUNK_BYTES, CHUNK_ROWS, Job, check_columns, check_keep, cut, read_base, read_line
from kvtax.sweeps.lines import Line
from kvtax.sweeps.results import RESULT_COLUMNS

sizes = st.lists(st.integers(1, 5), max_size=4)


@given(sizes)
def test_cells_are_those_of_the_product(lengths):
    axes = tuple(Axis(f"axis{number}", tuple(range(length))) for number, length in enumerate(lengths))
    job = Job(axes=axes)
    assert [job.cell(index) for index in range(job.cells)] == list(expand(axes))


def rows(chunks):
    found = []
    for chunk in chunks:
        assert 0 < chunk.rows <= CHUNK_ROWS
        assert chunk.first_row == (found[-1][0] + 1 if found else chunk.first_row)
        numbers = itertools.count(chunk.first_row)
        for piece in chunk.pieces:
            found += [(next(numbers), piece.line.number, cell) for cell in range(piece.first, piece.last)]
    return found


@given(st.integers(0, 30), st.integers(1, 400), st.data())
def test_every_deployment_once_and_a_resumed_sweep_has_the_rest(count, cells, data):
    lines = [Line(number, {}) for number in range(1, count + 1)]
    whole = rows(cut(lines, cells))
    assert whole == [(n * cells + c + 1, n + 1, c) for n in range(count) for c in range(cells)]
    done = data.draw(st.integers(0, count * cells))
    assert rows(cut(lines, cells, done)) == whole[done:]


def test_chunks_of_long_lines_are_short():
    lines = [Line(number, {}, None, CHUNK_BYTES // 2) for number in range(1, 9)]
    assert [chunk.rows for chunk in cut(lines, 1)] == [2, 2, 2, 2]


def test_neither_lines_nor_grid_are_held():
    endless = (Line(number, {}) for number in itertools.count(1))
    first = next(cut(endless, 10**12))
    assert (first.rows, first.pieces[0].last) == (CHUNK_ROWS, CHUNK_ROWS)


def line(fields, **job):
    return read_line(Job(**job), Line(1, fields))


def test_spellings_words_and_what_is_left_out():
    found = line({"tp": "2", "context": "8k", "dtype": "", "enforce-eager": "true", "gpu": "default"}, words=True)
    assert found.error is None
    assert found.fields == {"tensor_parallel_size": 2, "max_model_len": 8192, "enforce_eager": True, "gpu": None}
    found = line({"tp": 2, "context": "8k", "dtype": None, "gpu": "default", "disable_radix_cache": True})
    assert found.fields == {
        "tensor_parallel_size": 2,
        "max_model_len": 8192,
        "gpu": None,
        "enable_prefix_caching": False,
    }


def test_the_fields_that_can_be_read_are_there_beside_the_error():
    found = line({"model": "a", "tp": "x", "gpu": "l4", "context": "y", "id": 7})
    assert found.fields == {"model": "a", "gpu": "l4"}
    assert found.kept == {"id": 7}
    assert found.error.where == "" or "tensor_parallel_size" in str(found.error)


@pytest.mark.parametrize(
    ("fields", "job", "code"),
    [
        ({"tp": 1, "tensor_parallel_size": 1}, {}, "field-given-twice"),
        ({"context": 1}, {"axes": (Axis("max_model_len", (1,)),)}, "field-given-twice"),
        ({"nope": 1}, {}, "unknown-field"),
        ({"id": []}, {}, "invalid-input"),
        ({"note": {}}, {"keep": ("note",)}, "invalid-input"),
    ],
)
def test_what_a_line_cannot_say(fields, job, code):
    assert line(fields, **job).error.code == code


def test_the_base_is_checked_before_anything_is_read():
    assert read_base({"tp": "2", "gpu": None}) == {"tensor_parallel_size": 2}
    with pytest.raises(InputError, match="given and varied too"):
        read_base({"tp": 2}, (Axis("tensor_parallel_size", (1,)),))
    with pytest.raises(InputError, match="given twice"):
        read_base({"tp": 2, "tensor_parallel_size": 2})


def test_columns_are_fields_or_carried_through():
    assert check_columns(("id", "model", "tp", "note"), ("note",), "x") == ("model", "tensor_parallel_size")
    with pytest.raises(InputError, match="'modle' is not a field") as caught:
        check_columns(("modle",), (), "x.csv")
    assert "model" in caught.value.hint
    assert "--keep modle" in caught.value.hint
    for name in ("verdict", "model", "row"):
        with pytest.raises(InputError, match="cannot be carried through"):
            check_keep((name,), RESULT_COLUMNS)
