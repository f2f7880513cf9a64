"""A file of results that is stopped anywhere goes on to the same bytes, and is lost to nobody by mistake."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtax.errors import InputError
from kvtax.sweeps.targets import JOURNAL, ROWS, File

STAMP = {"kvtax": "1", "input": "abc", "vary": [["gpu", ["l4"]]]}
HEADER = "row,line,id,error_exit_code\n"
JSON = [
    '{"row":1,"error":null}\n',
    '{"row":2,"error":{"code":"x","exit_code":3}}\n',
    '{"row":3,"kept":{"a":"\\"error\\":null"},"error":{"code":"y","exit_code":2}}\n',
    '{"row":4,"error":null}\n',
]
CSV = ["1,1,a,\n", "2,2,b,3\n", '3,3,"c,d",2\n', "4,4,,\n"]


def write(path, lines, header="", **options):
    target = File(str(path), STAMP, header, **options)
    for line in lines[target.done :]:
        target.write(line)
    return target


@pytest.mark.parametrize(("lines", "header"), [(JSON, ""), (CSV, HEADER)], ids=["jsonl", "csv"])
@settings(max_examples=40)
@given(cut=st.integers(0, 400))
def test_cut_anywhere_it_goes_on_to_the_same_bytes(tmp_path_factory, lines, header, cut):
    path = tmp_path_factory.mktemp("cut") / "results"
    target = write(path, lines, header)
    target.close()  # as killed: the journal is there still
    whole = path.read_bytes()
    path.write_bytes(whole[: cut % (len(whole) + 1)])
    target = write(path, lines, header, resume=True)
    assert dict(target.errors) == {3: 1, 2: 1} or target.done < 3
    target.finish()
    target.close()
    assert path.read_bytes() == whole == (header + "".join(lines)).encode()
    assert [found.name for found in path.parent.iterdir()] == ["results"]


def test_rows_that_are_there_count_with_their_errors(tmp_path):
    for lines, header in ((JSON, ""), (CSV, HEADER)):
        path = tmp_path / f"results{len(header)}"
        write(path, lines, header).close()
        target = File(str(path), STAMP, header, resume=True)
        assert (target.done, dict(target.errors)) == (4, {3: 1, 2: 1})
        target.close()


def refused(path, **options):
    with pytest.raises(InputError) as caught:
        File(str(path), options.pop("stamp", STAMP), options.pop("header", ""), **options)
    assert caught.value.hint
    return caught.value.code


def test_nothing_is_lost_unasked(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text("mine\n", encoding="utf-8")
    assert refused(path) == "file-exists"
    assert refused(path, resume=True) == "nothing-to-resume"
    assert path.read_text(encoding="utf-8") == "mine\n"
    target = write(path, JSON[:2], overwrite=True)
    target.close()
    assert refused(path) == "file-exists"
    assert path.read_text(encoding="utf-8") == "".join(JSON[:2])
    write(path, JSON, overwrite=True).finish()
    assert path.read_text(encoding="utf-8") == "".join(JSON)


def test_resume_begins_where_there_is_nothing(tmp_path):
    path = tmp_path / "results.jsonl"
    write(path, JSON, resume=True).finish()
    assert path.read_text(encoding="utf-8") == "".join(JSON)


@pytest.mark.parametrize("part", STAMP)
def test_another_sweep_does_not_go_on_with_the_file(tmp_path, part):
    path = tmp_path / "results.jsonl"
    write(path, JSON[:2]).close()
    with pytest.raises(InputError, match=f"another sweep: {part} differs"):
        File(str(path), {**STAMP, part: "other"}, resume=True)
    assert path.read_text(encoding="utf-8") == "".join(JSON[:2])


@pytest.mark.parametrize("journal", ["", "{", "[]", "null", '{"schema": "other"}', "[" * 10_000])
def test_a_journal_that_cannot_be_read(tmp_path, journal):
    path = tmp_path / "results.jsonl"
    write(path, JSON[:2]).close()
    (tmp_path / f"results.jsonl{JOURNAL}").write_text(journal, encoding="utf-8")
    assert refused(path, resume=True) == "resume-differs"


@pytest.mark.parametrize(
    "text",
    ["mine\n", '{"row":2,"error":null}\n', '{"row":1}\n', '{"row":1,"error":null}\n{"row":1,"error":null}\n', "\0\0\n"],
)
def test_a_file_that_was_changed_is_left_alone(tmp_path, text):
    path = tmp_path / "results.jsonl"
    write(path, JSON[:2]).close()
    path.write_text(text, encoding="utf-8")
    assert refused(path, resume=True) == "resume-differs"
    assert path.read_text(encoding="utf-8") == text


def test_a_stream_cannot_be_read_again(tmp_path):
    path = tmp_path / "results.jsonl"
    File(str(path), {**STAMP, "input": None}).close()
    assert refused(path, resume=True, stamp={**STAMP, "input": None}) == "resume-differs"


def test_two_sweeps_do_not_write_one_file(tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / "results.jsonl"
    first = write(path, JSON[:2])
    assert refused(path, resume=True) == "file-in-use"
    first.close()
    write(path, JSON, resume=True).finish()
    assert path.read_text(encoding="utf-8") == "".join(JSON)


def test_a_file_that_is_made_of_the_rows_at_the_end(tmp_path):
    path = tmp_path / "results.parquet"

    def convert(lines, whole, _temporary):
        with open(whole, "w", encoding="utf-8") as file:
            file.write("".join(f"<{json.loads(line)['row']}>" for line in lines))

    target = write(path, JSON[:3], convert=convert)
    target.close()
    assert not path.exists()
    assert (tmp_path / f"results.parquet{ROWS}").exists()
    target = write(path, JSON, convert=convert, resume=True)
    target.finish()
    assert path.read_text(encoding="utf-8") == "<1><2><3><4>"
    assert [found.name for found in tmp_path.iterdir()] == ["results.parquet"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be written: No such file"):
        File(str(tmp_path / "nowhere" / "results.jsonl"), STAMP)
