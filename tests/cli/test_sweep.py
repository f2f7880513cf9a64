"""`kvtax sweep` from the outside."""

import csv
import io
import json
import os
import pathlib
import subprocess
import sys

import jsonschema
import pytest
from referencing import Registry, Resource

import kvtax
from runner import CLEAN, run, run_here

SCHEMAS = pathlib.Path(kvtax.__file__).parent / "views" / "schemas"
TABLE = (
    "id,model,gpu,context,tp\na,llama-3-8b,a100-80,8k,\nb,qwen3-32b,l4,32k,2\nc,nope,l4,32k,2\nd,qwen3-32b,l4,xx,2\n"
)
GRID = ("sweep", "-m", "llama-3-8b", "--vary", "gpu=l4,h200", "--vary", "context=4k,8k")
posix = pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")


@pytest.fixture
def here(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words, **options: run_here(capsys, monkeypatch, *words, **options)


@pytest.fixture
def table(tmp_path):
    (tmp_path / "many.csv").write_text(TABLE, encoding="utf-8")
    return "many.csv"


def validator():
    budget, sweep = (
        json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")) for name in ("budget", "sweep")
    )
    registry = Registry().with_resources([("budget.schema.json", Resource.from_contents(budget))])
    return jsonschema.Draft202012Validator(sweep, registry=registry)


def test_a_table_gives_a_line_for_each(here, table):
    ran = here("sweep", table)
    assert ran.code == 2
    rows = [json.loads(line) for line in ran.out.splitlines()]
    for row in rows:
        validator().validate(row)
    assert [(row["row"], row["line"], row["id"], row["verdict"]) for row in rows] == [
        (1, 2, "a", "fits"),
        (2, 3, "b", "out_of_memory"),
        (3, 4, "c", None),
        (4, 5, "d", None),
    ]
    assert [row["error"] and row["error"]["code"] for row in rows] == [None, None, "unknown-model", "invalid-quantity"]
    assert ran.err == "note: 2 of 4 deployments have an error in place of an answer\n"
    assert here("sweep", table, "--quiet").err == ""


def test_every_deployment_answered_is_0_fitting_or_not_and_an_unknown_one_3(here, tmp_path):
    assert here("sweep", "-m", "llama-3-70b", "--vary", "gpu=l4,t4").code == 0
    assert here("sweep", "-m", "org/unknown", "--vary", "gpu=l4,t4", "--offline").code == 3
    assert here("sweep", "-g", "l4", "--vary", "model=org/unknown,nope", "--offline").code == 2


def test_the_same_figures_in_csv_under_the_names_of_budget_csv(here):
    lines = [json.loads(line) for line in here(*GRID).out.splitlines()]
    rows = list(csv.DictReader(io.StringIO(here(*GRID, "--format", "csv").out)))
    assert [(row["gpu"], row["max_model_len"]) for row in rows] == [
        ("l4", "4096"), ("l4", "8192"), ("h200", "4096"), ("h200", "8192"),
    ]  # fmt: skip
    budget = here("budget", "-m", "llama-3-8b", "-g", "l4", "--context", "4096", "--format", "csv")
    whole = next(csv.DictReader(io.StringIO(budget.out)))
    shared = set(whole) & set(rows[0]) - {"model", "gpu"}
    assert len(shared) > 15
    assert {name: rows[0][name] for name in shared} == {name: whole[name] for name in shared}
    for row, line in zip(rows, lines, strict=True):
        assert int(row["kv_pool_bytes"]) == line["per_gpu"]["kv_pool_bytes"]
        assert float(row["max_concurrency"]) == line["concurrency"]["max"]


def test_whole_budgets(here):
    rows = [json.loads(line) for line in here(*GRID, "--full").out.splitlines()]
    for row in rows:
        validator().validate(row)
    single = here("budget", "-m", "llama-3-8b", "-g", "h200", "--context", "8192", "--json").out
    assert rows[3]["budget"] == json.loads(single)


def test_standard_input_in_both_formats():
    line = b'{"model": "llama-3-8b", "gpu": "l4", "id": 1}\n'
    ran = run("sweep", "-", stdin=line)
    assert (ran.code, json.loads(ran.out)["id"]) == (0, 1)
    ran = run(
        "sweep",
        "-",
        "--input-format",
        "csv",
        "-g",
        "l4",
        "--format",
        "csv",
        stdin=b"\xef\xbb\xbfmodel\r\nllama-3-8b\r\n",
    )
    assert [row["gpu"] for row in csv.DictReader(io.StringIO(ran.out))] == ["l4"]
    ran = run("sweep", "-", "--format", "csv", stdin=line)
    assert next(csv.DictReader(io.StringIO(ran.out)))["model"] == "llama-3-8b"
    config = json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
                         "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 1000}).encode()  # fmt: skip
    assert run("sweep", "-m", "-", "--vary", "gpu=l4,t4", stdin=config).out.count('"error":null') == 2


def test_text_of_a_stranger_does_nothing_in_a_spreadsheet_or_terminal(here, tmp_path):
    text = "\u202e\x1b[31m=cmd|' /C calc'!A0"
    for bad in ("=1+1", "@x", "-2", "+3", text):
        (tmp_path / "many.jsonl").write_text(
            json.dumps({"id": bad, "model": bad, "gpu": bad, "note": bad}), encoding="utf-8"
        )
        out = here("sweep", "many.jsonl", "--format", "csv", "--keep", "note").out
        assert out.isascii()
        assert out.replace("\n", "").isprintable()
        row = list(csv.reader(io.StringIO(out)))[1]
        assert not any(cell[:1] in ("=", "@", "-", "+") for cell in row)
        assert here("sweep", "many.jsonl", "--keep", "note").out.isprintable() is False  # the line's end alone
        assert here("sweep", "many.jsonl", "--keep", "note").out.rstrip("\n").isprintable()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "neither a file of deployments nor --vary"),
        (("many.csv", "--format", "table"), "there is no format 'table'"),
        (("many.csv", "--json", "--format", "csv"), "exclude each other"),
        (("many.csv", "--format", "parquet"), "Parquet goes to a file"),
        (("many.csv", "--full", "--format", "csv"), "--full does not go with csv"),
        (("many.csv", "-o", "many.csv"), "would overwrite the deployments"),
        (("many.csv", "-o", "./many.csv", "--overwrite"), "would overwrite the deployments"),
        (("many.csv", "--resume"), "go with a file of results"),
        (("many.csv", "-o", "x.jsonl", "--resume", "--overwrite"), "exclude each other"),
        (("many.csv", "-g", "l4", "-g", "t4"), "several cards are an axis"),
        (("many.csv", "--workers", "x"), "--workers is a number"),
        (("many.csv", "--workers", "0"), "between 1 and 1024"),
        (("many.csv", "--executor", "ray"), "executor 'ray' is not known"),
        (("many.csv", "--executor", "dask"), "no scheduler is named"),
        (("many.csv", "--executor", "processes", "--scheduler", "tcp://a:1"), "--scheduler goes with"),
        (("many.csv", "--input-format", "xml"), "there is no input format 'xml'"),
        (("many.csv", "--keep", "team"), "no column 'team'"),
        (("many.txt",), "does not say what is in it"),
        ((".", "--input-format", "csv"), "is a directory"),
        (("many.csv", "-o", "."), "is a directory"),
        (("many.csv", "-o", "nowhere/x.jsonl"), "cannot be written"),
        (("none.csv",), "cannot be read: No such file"),
        (("a\0b.csv",), "cannot be read"),
        (("many.csv", "-o", "a\0b.csv"), "cannot be written"),
        (("--vary", "gpu=l4", "-g", "t4"), "given and varied too"),
        (("--vary", "gpu=l4", "--vary", "gpu=t4"), "varied twice"),
        (("-", "-o", "x.jsonl", "--resume"), "cannot be resumed"),
    ],
)
def test_what_cannot_be_asked_is_one_line_and_writes_nothing(here, table, tmp_path, monkeypatch, words, error):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    ran = here("sweep", *words)
    assert ran.code == 2
    assert ran.out == "" or "--json" in words
    first, *hints = ran.err.splitlines()
    assert first.startswith("error: ")
    assert error in first
    assert len(hints) <= 1
    assert [path.name for path in tmp_path.iterdir()] == ["many.csv"]
    assert (tmp_path / "many.csv").read_text(encoding="utf-8") == TABLE


def test_an_empty_file_is_said(here, tmp_path):
    (tmp_path / "many.jsonl").write_text("\n\n", encoding="utf-8")
    ran = here("sweep", "many.jsonl")
    assert (ran.code, ran.out, ran.err) == (0, "", "note: no deployments came in\n")


def test_a_file_of_results_is_replaced_only_when_asked(here, tmp_path):
    out = tmp_path / "results.csv"
    assert here(*GRID, "-o", "results.csv").err == "4 deployments answered\n"
    whole = out.read_bytes()
    ran = here(*GRID, "-o", "results.csv")
    assert ran.code == 2
    assert "is there already" in ran.err
    assert "--overwrite" in ran.err
    ran = here(*GRID, "-o", "results.csv", "--resume")
    assert "holds no unfinished sweep" in ran.err
    assert here(*GRID, "-o", "results.csv", "--overwrite").code == 0
    assert out.read_bytes() == whole == here(*GRID, "--format", "csv").out.encode()
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]


@posix
def test_a_full_disk_and_a_closed_pipe():
    ran = run(*GRID, "-o", "/dev/full")
    assert ran.code == 2
    assert "No space left" in ran.err
    assert len(ran.err.splitlines()) <= 2
    words = [
        sys.executable,
        "-m",
        "kvtax",
        *GRID,
        "--vary",
        "max_num_seqs=" + ",".join(map(str, range(1, 600))),
        "--workers",
        "2",
    ]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **CLEAN}
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


@posix
def test_a_pipe_is_read_and_written(tmp_path):
    os.mkfifo(tmp_path / "in")
    words = [
        sys.executable,
        "-m",
        "kvtax",
        "sweep",
        str(tmp_path / "in"),
        "--input-format",
        "csv",
        "-o",
        str(tmp_path / "out.csv"),
    ]
    with subprocess.Popen(words, stderr=subprocess.PIPE, env={**os.environ, **CLEAN}) as process:
        (tmp_path / "in").write_text("model,gpu\nllama-3-8b,l4\n", encoding="utf-8")
        assert process.wait(60) == 0
        process.stderr.read()
    assert (tmp_path / "out.csv").read_text(encoding="utf-8").count("\n") == 2


def test_parquet_in_and_out(here, table, tmp_path):
    pytest.importorskip("pyarrow")
    assert here("sweep", table, "-o", "results.parquet").code == 2
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(tmp_path / "results.parquet").to_pylist()
    assert [row["verdict"] for row in rows] == ["fits", "out_of_memory", None, None]
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist([{"model": "llama-3-8b", "gpu": "l4"}]), tmp_path / "in.parquet"
    )
    assert json.loads(here("sweep", "in.parquet").out)["verdict"] == "fits"


@posix
def test_a_bar_on_a_terminal_and_none_in_a_pipe(tmp_path):
    import pty

    words = [
        *GRID,
        "--vary",
        "max_num_seqs=" + ",".join(map(str, range(1, 1500))),
        "-o",
        str(tmp_path / "r.jsonl"),
        "--workers",
        "1",
    ]
    main, side = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "kvtax", *words], stderr=side, env={**os.environ, **CLEAN, "COLUMNS": "80"}
    ) as process:
        os.close(side)
        seen = b""
        while True:
            try:
                data = os.read(main, 4096)
            except OSError:
                break
            if not data:
                break
            seen += data
        assert process.wait(60) == 0
    os.close(main)
    assert b"/5996" in seen
    assert b"/s" in seen
    ran = run(*words, "--overwrite")
    assert ran.err == "5,996 deployments answered\n"


def test_a_sweep_imports_what_it_needs():
    script = "import sys; from kvtax.cli import main; main(sys.argv[1:]); print(*sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script, *GRID], capture_output=True, text=True, check=True)
    modules = set(done.stderr.split())
    heavy = {
        "typer",
        "rich",
        "pydantic",
        "huggingface_hub",
        "numpy",
        "pyarrow",
        "distributed",
        "dask",
        "multiprocessing",
        "asyncio",
    }
    assert not modules & heavy
