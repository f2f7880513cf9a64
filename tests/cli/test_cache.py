"""`kvtax cache` from the outside."""

import json
import os
import pathlib
import sys

import jsonschema
import pytest

import kvtax
from kvtax.sources.found import Found
from kvtax.sources.hub import answers
from kvtax.sources.hub.answers import Answer
from kvtax.sources.hub.names import parse_hub_name
from runner import run, run_here

SCHEMA = pathlib.Path(kvtax.__file__).parent / "views" / "schemas" / "cache.schema.json"
posix = pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KVTAX_CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def here(capsys, monkeypatch, folder):
    return lambda *words: run_here(capsys, monkeypatch, "cache", *words)


@pytest.fixture
def document(here):
    def read(*words):
        found = json.loads(here(*words, "--json").out)
        jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))
        return found

    return read


def keep(*names):
    for name in names:
        answers.save("https://huggingface.co", parse_hub_name(name), Answer("tag:x", Found(name, "hub")))


def test_the_folder_alone_is_printed_whether_or_not_it_is_there(here, folder):
    ran = here("dir")
    assert (ran.code, ran.out, ran.err) == (0, f"{folder}\n", "")
    assert not folder.exists()


def test_a_relative_folder_is_printed_whole(here, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KVTAX_CACHE_DIR", "-rf")
    assert here("dir").out == f"{tmp_path / '-rf'}\n"


def test_a_folder_with_a_space_can_be_removed_by_a_shell(tmp_path):
    kept = tmp_path / "a b"
    ran = run("cache", "dir", env={"KVTAX_CACHE_DIR": str(kept)})
    assert ran.out.removesuffix("\n") == str(kept)


def test_answers_are_counted_and_removed(document, here, folder):
    keep("acme/one", "acme/two")
    sizes = [path.stat().st_size for path in (folder / "hub").iterdir()]
    found = document("dir")
    assert (found["dir"], found["answers"], found["bytes"]) == (str(folder), 2, sum(sizes))
    assert here("clear").out.startswith("removed 2 answers (")
    assert document("dir")["answers"] == 0
    keep("acme/one")
    found = document("clear")
    assert (found["removed"], found["answers"], found["removed_bytes"] > 0) == (1, 0, True)


def test_nothing_to_remove(here):
    assert here("clear").out.startswith("removed 0 answers (0 B) from ")


def test_only_what_kvtax_wrote_is_removed(document, folder):
    keep("acme/one")
    hub = folder / "hub"
    (hub / "answer-abc.part").write_text("half")
    others = [hub / "notes.json", hub / "x.part", hub / ("A" * 64 + ".json"), folder / ("0" * 64 + ".json")]
    for path in others:
        path.write_text("mine")
    (hub / ("1" * 64 + ".json")).mkdir()
    found = document("clear")
    assert (found["removed"], found["answers"]) == (2, 0)
    assert all(path.exists() for path in others)
    assert (hub / ("1" * 64 + ".json")).is_dir()


@posix
def test_links_are_not_followed(document, folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ("0" * 64 + ".json")).write_text("mine")
    folder.mkdir()
    (folder / "hub").symlink_to(outside)
    assert document("clear")["removed"] == 0
    keep("acme/one")
    assert len(list(outside.iterdir())) == 1
    os.unlink(folder / "hub")
    (folder / "hub").mkdir()
    (folder / "hub" / ("0" * 64 + ".json")).symlink_to(outside / ("0" * 64 + ".json"))
    assert document("clear")["removed"] == 0
    assert (outside / ("0" * 64 + ".json")).read_text() == "mine"


@pytest.mark.parametrize("words", [(), ("purge",), ("dir", "clear"), ("--json",)])
def test_anything_else_is_an_error(here, words):
    ran = here(*words)
    assert ran.code == 2
    if len(words) < 2:
        assert "kvtax cache dir" in ran.err
        assert "kvtax cache clear" in ran.err


def test_formats(here):
    assert here("dir", "--format", "csv").code == 2
    assert "kvtax cache clear" in here("--help").out


def test_what_is_not_a_cache_is_no_reason_to_fail(here, folder):
    folder.write_text("a file")
    assert here("dir").code == 0
    assert here("clear").code == 0


def test_a_shell_completes_the_actions(monkeypatch):
    ran = run("", env={"_KVTAX_COMPLETE": "complete_bash", "COMP_WORDS": "kvtax cache ", "COMP_CWORD": "2"})
    assert ran.out.split() == ["dir", "clear"]
