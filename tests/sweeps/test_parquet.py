"""Parquet in and out: what went in comes out, row group by row group, and a broken file is one line."""

import contextlib
import json

import pytest

import kvtax
from kvtax.errors import InputError
from kvtax.sweeps import parquet
from kvtax.sweeps.inputs import open_source
from kvtax.sweeps.job import Job
from kvtax.sweeps.results import header, json_line

pyarrow = pytest.importorskip("pyarrow")
import pyarrow.parquet as arrow_parquet  # noqa: E402


def written(tmp_path, rows, **options):
    path = tmp_path / "many.parquet"
    arrow_parquet.write_table(pyarrow.Table.from_pylist(rows), path, **options)
    return str(path)


def test_rows_come_typed(tmp_path):
    rows = [
        {"id": "a", "model": "llama-3-8b", "gpu": "l4", "context": 4096, "enforce_eager": True},
        {"id": "b", "model": "llama-3-8b", "gpu": "h200", "context": None, "enforce_eager": None},
    ] * 300
    with contextlib.closing(open_source(written(tmp_path, rows, row_group_size=100), None)) as source:
        assert (source.columns, source.line_count) == (("model", "gpu", "max_model_len", "enforce_eager"), 600)
        assert [line.fields for line in source.lines] == rows
    found = list(kvtax.sweep(str(tmp_path / "many.parquet")))
    assert (
        found[0].per_gpu == kvtax.budget(model="llama-3-8b", gpu="l4", max_model_len=4096, enforce_eager=True).per_gpu
    )
    assert [result.line for result in found] == list(range(1, 601))


def test_what_is_written_is_what_lines_of_json_say(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 2)
    job = Job(
        keep=("note",),
        columns=(
            "model",
            "gpu",
            "weights_bytes",
            "engine",
            "max_model_len",
            "enforce_eager",
            "lora",
            "gpu_memory_utilization",
        ),
    )
    rows = [
        {"model": "llama-3-8b", "gpu": "l4", "lora": "4:64", "enforce_eager": True, "id": 7, "note": "=1"},
        {"model": "llama-3-8b", "gpu": "l4", "gpu_memory_utilization": 0.5, "weights_bytes": "15GiB"},
        {"model": "nope", "gpu": "l4"},
    ]
    lines = [json_line(result) for result in kvtax.sweep(rows, keep=["note"])]
    path = tmp_path / "results.parquet"
    for _ in range(2):
        parquet.write_parquet(job, lines, str(path), str(tmp_path / "t"))
        first = path.read_bytes()
    assert path.read_bytes() == first
    file = arrow_parquet.ParquetFile(path)
    assert file.metadata.num_row_groups == 2
    found = file.read().to_pylist()
    assert tuple(found[0]) == header(job)
    documents = [json.loads(line) for line in lines]
    assert [row["id"] for row in found] == ["7", None, None]
    assert [row["note"] for row in found] == ["=1", None, None]
    assert [row["lora"] for row in found] == ["4:64", None, None]
    assert [row["given_weights_bytes"] for row in found] == [None, 15 * 2**30, None]
    assert [row["gpu_memory_utilization"] for row in found] == [None, 0.5, None]
    assert [row["error_code"] for row in found] == [None, None, "unknown-model"]
    for row, document in zip(found[:2], documents, strict=False):
        assert {name: row[name] for name in document["per_gpu"]} == document["per_gpu"]
        assert row["max_concurrency"] == document["concurrency"]["max"]
        assert [row["kv_pool_bytes_low"], row["kv_pool_bytes_high"]] == document["interval"]["kv_pool_bytes"]
    assert file.schema_arrow.metadata[b"kvtax.schema"] == b"kvtax.sweep/1"


def test_a_figure_beyond_64_bits_is_left_out_and_said(tmp_path):
    (result,) = kvtax.sweep([{"model": "llama-3-8b", "gpu": "l4", "concurrency": 10**9, "max_model_len": 2**31}])
    assert result.per_gpu["kv_demand_bytes"] > 2**63
    job = Job(columns=tuple(kvtax.Deployment._fields))
    parquet.write_parquet(job, [json_line(result)], str(tmp_path / "r"), str(tmp_path / "t"))
    (row,) = arrow_parquet.read_table(tmp_path / "r").to_pylist()
    assert row["kv_demand_bytes"] is None
    assert "beyond-64-bits" in row["notices"]
    assert row["kv_pool_bytes"] == result.per_gpu["kv_pool_bytes"]


def test_every_field_of_a_deployment_has_a_column_type():
    found = parquet._schema(Job(columns=tuple(kvtax.Deployment._fields)))
    kinds = {field.name: str(field.type) for field in found}
    assert kinds["max_model_len"] == kinds["vram"] == kinds["given_weights_bytes"] == "int64"
    assert kinds["model"] == kinds["speculative"] == kinds["tensor_split"] == "string"
    assert kinds["enforce_eager"] == kinds["kv_offload"] == "bool"
    assert kinds["gpu_memory_utilization"] == "double"


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"\xff" * 100 + b"PAR1", b"model,gpu\na,b\n"])
def test_broken_files(tmp_path, data):
    path = tmp_path / "many.parquet"
    path.write_bytes(data)
    with pytest.raises(InputError, match="cannot be read as Parquet") as caught:
        open_source(str(path), None)
    assert "\n" not in caught.value.message


def test_a_file_broken_in_the_middle(tmp_path):
    rows = [{"model": "llama-3-8b", "gpu": f"l{n}"} for n in range(2000)]
    path = written(tmp_path, rows, row_group_size=500, compression="zstd")
    data = bytearray((tmp_path / "many.parquet").read_bytes())
    data[len(data) // 3 : len(data) // 3 + 200] = b"\xff" * 200
    (tmp_path / "many.parquet").write_bytes(data)
    with contextlib.closing(open_source(path, None)) as source, pytest.raises(InputError, match="as Parquet"):
        list(source.lines)


def test_without_pyarrow(monkeypatch):
    import builtins

    real = builtins.__import__

    def absent(name, *arguments, **options):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(kvtax.NotKnownError) as caught:
        parquet.require_pyarrow()
    assert "pip install 'kvtax[parquet]'" in caught.value.hint
