"""`kvtax models add` from the outside."""

import io
import json
import os
import pathlib
import sys
import tomllib

import jsonschema
import pytest

import kvtax
from gguf_files import data_bytes, gguf_header, write_gguf
from kvtax.sources import recent
from kvtax.sources.hub import read
from runner import run_here
from safetensors_files import whole
from stores import layer, write_manifest
from tiny_models import COMMIT, CONFIG, GGUF_KEYS, HubInMemory, checkpoint, gguf_tensors, safetensors_folder

SCHEMAS = pathlib.Path(kvtax.__file__).parent / "views" / "schemas"
posix = pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """Nothing of this machine is read, and nothing is remembered."""
    monkeypatch.setattr(recent, "_read", {})
    for name in ("HF_HUB_CACHE", "KVTAX_CACHE_DIR", "HF_HOME", "HOME", "OLLAMA_MODELS"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere" / name))
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    here = tmp_path / "here"
    here.mkdir()
    (here / ".git").mkdir()
    monkeypatch.chdir(here)


@pytest.fixture
def kvtax_run(capsys, monkeypatch):
    return lambda *words: run_here(capsys, monkeypatch, *words)


@pytest.fixture
def add(kvtax_run):
    def added(*words, code=0):
        ran = kvtax_run("models", "add", *words, "--json")
        assert ran.code == code, ran.err
        found = json.loads(ran.out)
        name = "error" if code else "model-entry"
        jsonschema.validate(found, json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")))
        return found

    return added


@pytest.fixture
def hub(monkeypatch):
    def serve(repositories):
        made = HubInMemory(repositories)
        monkeypatch.setattr(read, "Client", made)
        return made

    return serve


OF_THE_ENTRY = ("id", "source", "kind", "aliases", "licence", "config_from", "published_parameters", "published_note")


def same_answer(kvtax_run, source, name, *words):
    """Budget and anatomy of an entry equal those of its source, but for what they are called and where they come from."""
    for command in (("budget", "-g", "l4", "--context", "2k", *words), ("inspect",)):
        one, other = (json.loads(kvtax_run(*command, "-m", model, "--json").out) for model in (source, name))
        assert "error" not in one and "error" not in other
        for found in (one, other):
            for key in OF_THE_ENTRY:
                found["model"].pop(key, None)
            for fields in ("deployment", "asked"):
                found.get(fields, {}).pop("model", None)
        assert one == other


def test_a_folder_with_safetensors(add, kvtax_run, tmp_path):
    folder = safetensors_folder(tmp_path / "models" / "Tiny 8B")
    (folder / "generation_config.json").write_text('{"max_length": 512}')
    found = add(str(folder), "--alias", "mine", "--alias", "Other")
    assert (found["name"], found["aliases"], found["commit"]) == ("Tiny-8B", ["mine", "Other"], None)
    assert found["weights_source"] == "header of model.safetensors"
    same_answer(kvtax_run, str(folder), "mine")
    same_answer(kvtax_run, str(folder), "OTHER", "--engine", "sglang")
    (folder / "model.safetensors").unlink()
    (folder / "config.json").unlink()
    assert kvtax_run("budget", "-m", "tiny-8b", "-g", "l4", "--context", "2k").code == 0


def test_a_gguf_file_and_its_projector(add, kvtax_run, tmp_path):
    file = write_gguf(tmp_path / "Tiny-Q4_K_M.gguf", GGUF_KEYS, gguf_tensors())
    (tmp_path / "mmproj-F16.gguf").write_bytes(b"GGUF" + bytes(996))
    found = add(str(file), "--name", "acme/tiny")
    assert (found["name"], found["facts_file"]) == (
        "acme/tiny",
        str(pathlib.Path("kvtax-models/acme--tiny.json").resolve()),
    )
    for engine in ("llama.cpp", "ollama", "vllm"):
        same_answer(kvtax_run, str(file), "acme/tiny", "--engine", engine)


def test_a_repository_of_the_hub(add, kvtax_run, hub):
    served = hub({"acme/Tiny": {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": whole(checkpoint())}})
    found = add("acme/Tiny", "--alias", "tiny")
    assert (found["name"], found["commit"]) == ("acme/Tiny", COMMIT)
    same_answer(kvtax_run, f"acme/Tiny@{COMMIT}", "acme/Tiny")
    served.asked.clear()
    assert kvtax_run("budget", "acme/tiny", "-g", "l4", "--context", "2k", "--offline").code == 0
    assert served.asked == []


def test_a_quantisation_of_the_hub(add, kvtax_run, hub):
    keys, tensors = GGUF_KEYS, gguf_tensors()
    head = gguf_header(keys, tensors)
    hub(
        {
            "acme/Tiny-GGUF": {
                f"Tiny-{one}.gguf": (head, len(head) + data_bytes(keys, tensors)) for one in ("Q4_K_M", "Q8_0")
            }
        }
    )
    found = add("acme/Tiny-GGUF:Q4_K_M")
    assert found["name"] == "acme/Tiny-GGUF:Q4_K_M"
    assert found["facts_file"].endswith("acme--Tiny-GGUF--Q4_K_M.json")
    same_answer(kvtax_run, f"acme/Tiny-GGUF@{COMMIT}:Q4_K_M", "acme/Tiny-GGUF:Q4_K_M", "--engine", "llama.cpp")
    assert add("acme/Tiny-GGUF:Tiny-Q8_0.gguf")["name"] == "acme/Tiny-GGUF:Tiny-Q8_0.gguf"


def test_ollama_with_its_context(add, kvtax_run, monkeypatch, tmp_path):
    store = tmp_path / "ollama"
    monkeypatch.setenv("OLLAMA_MODELS", str(store))
    head = gguf_header(GGUF_KEYS, gguf_tensors())
    data = head + bytes(data_bytes(GGUF_KEYS, gguf_tensors()))
    write_manifest(store, [layer(store, "model", data), layer(store, "params", b'{"num_ctx": 1024}')])
    assert add("ollama:llama3.1:8b", "--alias", "mine")["name"] == "llama3.1:8b"
    for engine in ("ollama", "llama.cpp"):
        same_answer(kvtax_run, "ollama:llama3.1:8b", "mine", "--engine", engine)
    shown = json.loads(kvtax_run("budget", "mine", "-g", "l4", "--engine", "ollama", "--json").out)
    assert shown["deployment"]["max_model_len"] == 1024


@pytest.mark.parametrize("name", ["qwen3-8b", "gemma-3-27b", "deepseek-v3"])
def test_a_name_of_the_catalogue(add, kvtax_run, name):
    add(name, "--name", "acme/mine")
    same_answer(kvtax_run, name, "acme/mine")


def test_standard_input(add, kvtax_run, monkeypatch):
    def config():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(CONFIG).encode())))

    config()
    assert "--name" in add("-", code=2)["error"]["hint"]
    assert (add("-", "--alias", "mine")["name"], add_again(add, config)) == ("mine", "acme/two")
    assert kvtax_run("budget", "two", "-g", "l4", "--context", "2k").code == 0


def add_again(add, config):
    config()
    return add("-", "--name", "acme/two", "--alias", "two")["name"]


def test_the_rest_of_the_file_stays_as_it_is(add, kvtax_run):
    before = b'# mine\r\n[defaults]\r\nengine = "vllm"   \r\n\r\n[[gpu]]\r\nid="x"\r\nmemory="8GiB" # no line end'
    pathlib.Path("kvtax.toml").write_bytes(before)
    os.chmod("kvtax.toml", 0o600)
    add("qwen3-8b")
    middle = pathlib.Path("kvtax.toml").read_bytes()
    assert middle.startswith(before + b"\n\n[[model]]\n")
    add("llama-3-8b", "--alias", 'é "q" \\x')
    after = pathlib.Path("kvtax.toml").read_bytes()
    assert after.startswith(middle)
    tables = tomllib.loads(after.decode())["model"]
    assert [table["name"] for table in tables] == ["Qwen/Qwen3-8B", "meta-llama/Meta-Llama-3-8B-Instruct"]
    assert tables[1]["aliases"] == ['é "q" \\x']
    assert sys.platform == "win32" or os.stat("kvtax.toml").st_mode & 0o777 == 0o600
    assert kvtax_run("budget", "-m", "qwen3-8b", "-g", "x", "--context", "1k").code == 1
    assert sorted(os.listdir(".")) == [".git", "kvtax-models", "kvtax.toml"]


def test_what_was_written_is_said(kvtax_run):
    ran = kvtax_run("models", "add", "qwen3-8b", "--catalogue", "own.toml")
    assert "own.toml" in ran.err and "Qwen--Qwen3-8B.json" in ran.err
    assert "8.19B" in ran.out
    assert not pathlib.Path("kvtax.toml").exists()
    assert kvtax_run("models", "add", "llama-3-8b", "--catalogue", "own.toml", "--quiet").err == ""


def test_a_catalogue_that_is_hidden_from_then_on_is_named(kvtax_run, monkeypatch):
    pathlib.Path("kvtax.toml").write_text("")
    os.mkdir("below")
    monkeypatch.chdir("below")
    assert f"in place of {pathlib.Path('..').resolve() / 'kvtax.toml'}" in kvtax_run("models", "add", "qwen3-8b").err


@pytest.mark.parametrize("words", [("llama-3-8b", "--name", "QWEN/qwen3-8b"), ("llama-3-8b", "--alias", "Mine")])
def test_a_name_that_is_taken(add, words):
    add("qwen3-8b", "--alias", "mine")
    before = snapshot()
    assert add(*words, code=2)["error"]["code"] == "name-taken"
    assert snapshot() == before


def snapshot():
    return {path: path.read_bytes() for path in pathlib.Path(".").rglob("*") if path.is_file()}


def test_replace_writes_the_facts_alone(add, kvtax_run, tmp_path):
    folder = safetensors_folder(tmp_path / "tiny")
    add(str(folder), "--alias", "mine")
    before = pathlib.Path("kvtax.toml").read_bytes()
    safetensors_folder(tmp_path / "tiny", {**CONFIG, "max_position_embeddings": 8192})
    found = add(str(folder), "--alias", "mine", "--replace")
    assert found["replaced"]
    assert pathlib.Path("kvtax.toml").read_bytes() == before
    assert os.listdir("kvtax-models") == ["tiny.json"]
    same_answer(kvtax_run, str(folder), "mine")
    assert add(str(folder), "--alias", "new", "--replace", code=2)["error"]["code"] == "name-taken"
    assert not add("qwen3-8b", "--replace")["replaced"]


def test_an_entry_with_a_config_is_not_replaced(add):
    pathlib.Path("kvtax.toml").write_text('[[model]]\nname = "Qwen/Qwen3-8B"\nconfig = {model_type = "llama"}\n')
    before = snapshot()
    assert "config of its own" in add("qwen3-8b", "--replace", code=2)["error"]["message"]
    assert snapshot() == before


def test_a_file_of_that_name_is_left_alone(add):
    os.mkdir("kvtax-models")
    pathlib.Path("kvtax-models/Qwen--Qwen3-8B.json").write_text("mine")
    assert add("qwen3-8b")["facts_file"].endswith("Qwen--Qwen3-8B-2.json")
    assert pathlib.Path("kvtax-models/Qwen--Qwen3-8B.json").read_text() == "mine"


@posix
def test_links_are_not_written_through(add, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "own.toml").write_text("")
    os.symlink(outside / "own.toml", "kvtax.toml")
    assert add("qwen3-8b", code=2)["error"]["code"] == "cannot-write"
    os.unlink("kvtax.toml")
    os.symlink(outside, "kvtax-models")
    assert add("qwen3-8b", code=2)["error"]["code"] == "cannot-write"
    assert not pathlib.Path("kvtax.toml").exists()
    assert [path.name for path in outside.iterdir()] == ["own.toml"]


@pytest.mark.parametrize("text", ["model = []\n", 'model = [{name = "x", config = {}}]\n', "[[model\n", "[model]\n"])
def test_a_file_that_takes_no_table_stays_as_it_is(add, text):
    pathlib.Path("kvtax.toml").write_text(text)
    before = snapshot()
    add("qwen3-8b", code=2)
    assert snapshot() == before
    assert not pathlib.Path("kvtax-models").exists()


def test_what_cannot_be_written_leaves_nothing(add, monkeypatch):
    from kvtax.sources import catalogue_entry

    real = catalogue_entry.write_whole

    def fail(path, data):
        if path.endswith(".toml"):
            raise OSError(28, "No space left on device")
        real(path, data)

    monkeypatch.setattr(catalogue_entry, "write_whole", fail)
    assert add("qwen3-8b", code=2)["error"]["code"] == "cannot-write"
    assert os.listdir(".") == [".git"]


@pytest.mark.parametrize(
    "words",
    [
        ("--name", "./x"), ("--name", "x.gguf"), ("--name", "ollama:x"), ("--alias", "a\nb"), ("--alias", "\u202ex"), ("--name", ""),
        ("--name", "x" * 201), ("--alias", " x"), *(("--alias", f"/{mark}") for mark in "ab"),
    ],
)  # fmt: skip
def test_names_that_could_not_be_found(add, words):
    assert add("qwen3-8b", *words, code=2)["error"]["code"] == "invalid-name"
    assert os.listdir(".") == [".git"]


@pytest.mark.parametrize("words", [("a", "b"), ("a", "--families")])
def test_one_model_at_a_time(kvtax_run, words):
    assert kvtax_run("models", "add", *words).code == 2


def test_add_wants_a_model_and_its_options_belong_to_it(kvtax_run):
    assert kvtax_run("models", "add").code == 2
    assert "add takes one model" in kvtax_run("models", "add").err
    assert kvtax_run("models", "add llama").code == 0
    for words in (("--alias", "x"), ("--name", "x"), ("--replace",), ("--offline",)):
        ran = kvtax_run("models", "llama", *words)
        assert ran.code == 2 and "models add" in ran.err
    assert "kvtax models add" in kvtax_run("models", "--help").out


def test_what_is_not_understood_is_not_added(add, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "never-heard-of"}')
    assert add(str(tmp_path / "config.json"), code=3)["error"]["code"] == "unsupported-architecture"
    assert os.listdir(".") == [".git"]


@pytest.mark.parametrize("form", ["table", "plain", "markdown", "csv"])
def test_formats(kvtax_run, form):
    ran = kvtax_run("models", "add", "qwen3-8b", "--format", form)
    assert ran.code == 0
    assert "8190735360" in ran.out or "8.19B" in ran.out


FACTS = [
    ("../x.json", "invalid-entry"), ("/etc/passwd", "invalid-entry"), ("a/../../x.json", "invalid-entry"), ("a//x.json", "invalid-entry"),
    ("./x.json", "invalid-entry"), ("a\\\\x.json", "invalid-entry"), ("C:x.json", "invalid-entry"), ("absent.json", "invalid-entry"),
    ("", "invalid-entry"), ("below", "invalid-entry"), ("link.json", "invalid-entry"), ("wrong.json", "invalid-facts"),
]  # fmt: skip


@posix
@pytest.mark.parametrize(("facts", "code"), FACTS)
def test_facts_of_an_entry_lie_beside_it(kvtax_run, tmp_path, facts, code):
    (tmp_path / "x.json").write_text("{}")
    os.mkdir("below")
    os.symlink(tmp_path / "x.json", "link.json")
    pathlib.Path("wrong.json").write_text("[]")
    pathlib.Path("kvtax.toml").write_text(f'[[model]]\nname = "x"\nfacts = "{facts}"\n')
    ran = kvtax_run("budget", "x", "-g", "l4", "--json")
    assert (ran.code, json.loads(ran.out)["error"]["code"]) == (2, code)
    assert ran.err.count("\n") <= 2


def test_either_config_or_facts(kvtax_run):
    pathlib.Path("x.json").write_text("{}")
    pathlib.Path("kvtax.toml").write_text('[[model]]\nname = "x"\nfacts = "x.json"\nconfig = {}\n')
    ran = kvtax_run("budget", "x", "-g", "l4", "--json")
    assert json.loads(ran.out)["error"]["code"] == "invalid-entry"
