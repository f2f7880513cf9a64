"""Lines of JSON and CSV, good and hostile: a bad one is an error of its own, and none is held that is too long."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtax.errors import InputError
from kvtax.sweeps import lines
from kvtax.sweeps.lines import MAXIMUM_LINE_BYTES, csv_lines, json_lines


def read_json(data):
    return list(json_lines(io.BytesIO(data), "many.jsonl"))


def read_csv(data):
    header, found = csv_lines(io.BytesIO(data), "many.csv")
    return header, list(found)


def test_lines_have_the_numbers_of_the_file():
    found = read_json(b'\xef\xbb\xbf{"model": "a"}\r\n\r\n  \n{"model": "b"}')
    assert [(line.number, line.fields) for line in found] == [(1, {"model": "a"}), (4, {"model": "b"})]


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"{", "invalid-json", "is not JSON"),
        (b"[]", "invalid-json", "not a JSON object"),
        (b"null", "invalid-json", "not a JSON object"),
        (b"\x00", "invalid-json", "is not JSON"),
        (b'{"a": "\xff"}', "invalid-json", "not UTF-8"),
        (b'{"a": NaN}', "invalid-json", "NaN"),
        (b'{"a": -Infinity}', "invalid-json", "-Infinity"),
        (b'{"a": 1e999}', "invalid-json", "too large a number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "invalid-json", "too many digits"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "invalid-json", "nested too deeply"),
        (b'{"a": {"b": 1, "b": 2}}', "duplicate-key", "'b' stands twice"),
        (b'{"model": "' + b"x" * MAXIMUM_LINE_BYTES + b'"}', "line-too-long", "longer than 1 MiB"),
    ],
    ids=lambda value: value[:12] if isinstance(value, bytes) else None,
)
def test_a_bad_line_spoils_no_other(data, code, words):
    first, bad, last = read_json(b'{"model": "a"}\n' + data + b'\n{"model": "b"}\n')
    assert (first.fields, last.fields, last.number) == ({"model": "a"}, {"model": "b"}, 3)
    assert bad.number == 2
    assert bad.fields is None
    assert bad.error.code == code
    assert words in bad.error.message
    assert "\n" not in bad.error.message


class Counted(io.BytesIO):
    most = 0

    def readline(self, size=-1):
        data = super().readline(size)
        self.most = max(self.most, len(data))
        return data


def test_a_line_without_end_is_not_held():
    stream = Counted(b"x" * (20 * MAXIMUM_LINE_BYTES) + b'\n{"model": "a"}\n')
    long, good = json_lines(stream, "-")
    assert long.error.code == "line-too-long"
    assert good.fields == {"model": "a"}
    assert stream.most <= MAXIMUM_LINE_BYTES + 2


@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_records_by_their_delimiter(sign):
    header, found = read_csv(sign.join(("model", "gpu")).encode() + b"\r\n" + f'"a{sign}b"{sign}l4'.encode() + b"\r\n")
    assert header == ("model", "gpu")
    assert [line.fields for line in found] == [{"model": f"a{sign}b", "gpu": "l4"}]


def test_ragged_and_broken_records():
    _, found = read_csv(b'model,gpu\na\na,b,c\n"a,b\n\x00,l4\n\xff,l4\n\na,l4\n')
    problems = [line.error.message if line.error else line.fields for line in found]
    assert problems == [
        "the line has 1 cells, the header 2",
        "the line has 3 cells, the header 2",
        "the line has a quote that is not closed",
        "the line holds a NUL",
        "the line is not UTF-8 (byte 0)",
        {"model": "a", "gpu": "l4"},
    ]
    assert [line.number for line in found] == [2, 3, 4, 5, 6, 8]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"model,,gpu\n", "a column has no name"),
        (b"model,model\n", "'model' stands twice"),
        (b"\x00\x00", "NUL"),
        (b"\xff\xfem\x00o\x00", "UTF-16"),
        (b"mod\xe8le,gpu", "not UTF-8"),
        (b'"model,gpu\n', "cannot be read"),
        (b"m" * (MAXIMUM_LINE_BYTES + 10), "longer than 1 MiB"),
    ],
    ids=range(9),
)
def test_headers_that_cannot_be(data, words):
    with pytest.raises(InputError, match=words):
        read_csv(data)


@given(st.binary(max_size=400))
def test_no_bytes_make_anything_but_lines_or_an_input_error(data):
    for read in (read_json, read_csv):
        try:
            found = read(data)
        except InputError:
            continue
        rows = found if read is read_json else found[1]
        assert all((line.fields is None) == (line.error is not None) for line in rows)


def test_the_cap_is_larger_than_any_config_that_a_line_may_hold():
    assert lines.MAXIMUM_LINE_BYTES >= 2**20
