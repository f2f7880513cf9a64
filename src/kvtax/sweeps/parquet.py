"""Parquet in and out, by row groups, with pyarrow: an optional extra, since it is larger than all the rest together.

Measured (2026-12, Linux x86-64, Python 3.11, installed size of each with what it needs): pyarrow 26.0 169 MB, one package, imported in
0.20 s; fastparquet 177 MB in eight packages, 0.33 s; polars 180 MB, which writes no file group by group as rows come; duckdb 68 MB, 0.09 s,
a database with SQL, extensions and threads of its own between us and the bytes. pyarrow is the format's own implementation, takes row
groups as they are handed over and writes the same bytes for the same rows; it has wheels for Python 3.11 to 3.14 on three systems.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

from kvtax.budgets import catalogue_stamp
from kvtax.deployment import FLAG_FIELDS, Deployment
from kvtax.errors import InputError, KvtaxError, NotKnownError
from kvtax.sweeps.job import ID, Job
from kvtax.sweeps.lines import MAXIMUM_LINE_BYTES, Line
from kvtax.sweeps.results import SCHEMA, cells, column_of, header

ROW_GROUP_ROWS = 16_384
_BATCH_ROWS = 256
_MOST_GROUP_BYTES = 2**30
_MOST = 2**63 - 1
_TEXT = frozenset(("verdict", "notices", "error_code", "error_message", "error_hint", ID))
_SHARES = frozenset((
    "gpu_memory_utilization", "swa_full_tokens_ratio", "mamba_full_memory_ratio", "max_concurrency", "max_concurrency_low", "max_concurrency_high",
))  # fmt: skip


def require_pyarrow() -> Any:
    """pyarrow's module for Parquet.

    Raises:
        NotKnownError: it is not installed.
    """
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise NotKnownError(
            "Parquet needs pyarrow, which is not installed",
            code="missing-extra",
            hint="pip install 'kvtax[parquet]'",
        ) from None
    return parquet


def read_parquet(stream: BinaryIO, where: str) -> tuple[tuple[str, ...], int, Iterator[Line]]:
    """The column names of a Parquet file, how many rows it has, and the rows.

    Raises:
        InputError: it cannot be read, or a row group of it would not fit into memory.
        NotKnownError: pyarrow is not installed.
    """
    parquet = require_pyarrow()
    try:
        file = parquet.ParquetFile(stream)
        metadata, names = file.metadata, tuple(file.schema_arrow.names)
        largest = max((metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups)), default=0)
    except Exception as error:  # noqa: BLE001  pyarrow raises many kinds for a broken file
        raise _broken(error, where) from None
    if largest > _MOST_GROUP_BYTES:
        raise InputError("has a row group of more than 1 GiB", code="file-too-large", where=where)
    if len(set(names)) != len(names):
        raise InputError("a column stands twice", code="invalid-header", where=where)
    return names, metadata.num_rows, _rows(file, where)


def _rows(file: Any, where: str) -> Iterator[Line]:
    number = 0
    try:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS):
            for fields in batch.to_pylist():
                number += 1
                yield _line(number, fields)
    except KvtaxError:
        raise
    except Exception as error:  # noqa: BLE001
        raise _broken(error, where) from None


def _line(number: int, fields: dict[str, Any]) -> Line:
    size = sum(len(value) for value in fields.values() if isinstance(value, str | bytes))
    if size > MAXIMUM_LINE_BYTES:
        return Line(number, None, InputError("the row is longer than 1 MiB", code="line-too-long"))
    return Line(number, fields, None, size)


def _broken(error: Exception, where: str) -> InputError:
    reason = str(error).split("\n", 1)[0][:160] or type(error).__name__
    return InputError(f"cannot be read as Parquet: {reason}", code="invalid-parquet", where=where)


def write_parquet(job: Job, lines: Iterable[str], path: str, temporary: str) -> None:
    """Results as Parquet: whole or not at all.

    Args:
        job: that they are of.
        lines: the results as JSON, in order.
        path: of the file.
        temporary: its name until it is whole, in the same folder.

    Raises:
        OSError: it cannot be written.
        NotKnownError: pyarrow is not installed.
    """
    parquet = require_pyarrow()
    schema = _schema(job)
    try:
        with parquet.ParquetWriter(temporary, schema) as writer:
            pending = iter(lines)
            while rows := [_cells(job, line) for line in islice(pending, ROW_GROUP_ROWS)]:
                writer.write_table(_table(rows, schema))
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _schema(job: Job) -> Any:
    import pyarrow

    fields = {column_of(name): name for name in job.columns}
    found = [(name, _kind(name, fields.get(name), job.keep)) for name in header(job)]
    stamp = {"schema": SCHEMA, **catalogue_stamp()}
    return pyarrow.schema(found).with_metadata({f"kvtax.{name}": value for name, value in stamp.items()})


def _kind(column: str, field: str | None, keep: Sequence[str]) -> Any:
    import pyarrow

    if column in keep or column in _TEXT:
        return pyarrow.string()
    if column in _SHARES:
        return pyarrow.float64()
    if column == "fits" or field in FLAG_FIELDS:
        return pyarrow.bool_()
    if field is not None and "int" not in str(Deployment.__annotations__[field]):
        return pyarrow.string()
    return pyarrow.int64()


def _table(rows: Sequence[Sequence[Any]], schema: Any) -> Any:
    import pyarrow

    columns = [
        pyarrow.array([_typed(value, field.type) for value in values], type=field.type)
        for field, values in zip(schema, zip(*rows, strict=True), strict=True)
    ]
    return pyarrow.Table.from_arrays(columns, schema=schema)


def _typed(value: Any, kind: Any) -> Any:
    """A value as the column holds it; a whole number beyond 64 bits is left out."""
    if value is None:
        return None
    if str(kind) == "string":
        return value if isinstance(value, str) else json.dumps(value)
    if str(kind) == "int64":
        return value if -_MOST <= value <= _MOST else None
    return value


def _cells(job: Job, line: str) -> list[Any]:
    """The cells of one result; notices say where a figure is too large for a column of 64 bits."""
    row = json.loads(line)
    figures = (row["per_gpu"] or {}).values()
    if any(abs(value) > _MOST for value in figures):
        row["notices"].append("beyond-64-bits")
    return cells(job, row)
