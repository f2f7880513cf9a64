"""A user's own models and GPUs, from the `[[model]]` and `[[gpu]]` tables of a kvtax.toml.

    [[model]]
    name = "acme/private-7b"            # also: aliases = ["private"]
    config = "configs/private-7b.json"  # relative to the file, or the config itself as a table
                                        # or: facts = "kvtax-models/acme--private-7b.json", as `kvtax models add` writes it

    [[gpu]]
    id = "lab-card"                     # also: name, aliases, vendor, note, source, price_per_hour
    memory = "46.5GiB"                  # what CUDA reports as its total
    bandwidth_gb_s = 864                # also: bf16_tflops, fp8_tflops, fp4_tflops, compute_capability, unified_memory

Other tables of the file are left to those who own them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kvtax.errors import InputError, KvtaxError
from kvtax.hardware.gpu import Gpu, Price
from kvtax.sources.models import ModelEntry
from kvtax.units import MIB, parse_bytes

if TYPE_CHECKING:
    from pydantic import BaseModel

FILE_NAME = "kvtax.toml"
MAXIMUM_BYTES = 2**20
MAXIMUM_ENTRIES = 1000
_MAKERS = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel", "apple": "Apple", "google": "Google", "aws": "AWS"}
"""How the catalogue writes the makers; a card of no stated maker (`user`) is one that engines know."""


def find_kvtax_toml(start_dir: str) -> str | None:
    """The nearest kvtax.toml in `start_dir` or above it, up to the root of the git repository or of the file system."""
    folder = os.path.abspath(start_dir)
    while True:
        path = os.path.join(folder, FILE_NAME)
        if os.path.isfile(path):
            return path
        parent = os.path.dirname(folder)
        if parent == folder or os.path.exists(os.path.join(folder, ".git")):
            return None
        folder = parent


def load_catalogue(path: str) -> tuple[tuple[ModelEntry, ...], tuple[Gpu, ...]]:
    """The models and GPUs that a TOML file defines.

    Raises:
        InputError: the file cannot be read (`unreadable-file`, `file-too-large`) or is not TOML (`invalid-toml`); an
            entry is wrong (`invalid-entry`); a name is used twice (`duplicate-name`).
    """
    document = read_toml(path)
    tables = {name: read_tables(document, name, path) for name in ("model", "gpu")}
    if not any(tables.values()):
        return (), ()
    model_schema, gpu_schema = _schemas()
    models = tuple(_model(validate(model_schema, row, where), where, path) for row, where in tables["model"])
    gpus = tuple(_gpu(validate(gpu_schema, row, where), where) for row, where in tables["gpu"])
    _refuse_duplicates([(name, "model") for entry in models for name in {entry.id.lower(), *entry.aliases}], path)
    _refuse_duplicates([(name, "gpu") for gpu in gpus for name in {gpu.id, *gpu.aliases}], path)
    return models, gpus


def read_toml(path: str) -> dict[str, Any]:
    """The document of a TOML file.

    Raises:
        InputError: it cannot be read, is too large, or is not TOML.
    """
    import tomllib

    try:
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            raise InputError("is no regular file", code="unreadable-file", where=path)
        with open(path, "rb") as file:
            data = file.read(MAXIMUM_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", code="unreadable-file", where=path) from error
    if len(data) > MAXIMUM_BYTES:
        raise InputError("is larger than 1 MiB", code="file-too-large", where=path)
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        reason = "is nested too deeply" if isinstance(error, RecursionError) else _one_line(str(error))
        raise InputError(f"is not valid TOML: {reason}", code="invalid-toml", where=path) from error


def read_tables(document: dict[str, Any], name: str, path: str) -> list[tuple[dict[str, Any], str]]:
    """The `[[name]]` tables, each with the words that point to it.

    Raises:
        InputError: they are no tables, or too many.
    """
    rows = document.get(name, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(
            f"`{name}` must be a list of tables", code="invalid-entry", hint=f"write [[{name}]]", where=path
        )
    if len(rows) > MAXIMUM_ENTRIES:
        raise InputError(f"has more than {MAXIMUM_ENTRIES} [[{name}]] tables", code="invalid-entry", where=path)
    return [(row, f"{path}: {name}[{number}]") for number, row in enumerate(rows)]


def _schemas() -> tuple[type[BaseModel], type[BaseModel]]:
    from pydantic import BaseModel, ConfigDict, Field

    strict = ConfigDict(extra="forbid", strict=True, str_strip_whitespace=True, str_max_length=200, allow_inf_nan=False)

    class UserModel(BaseModel):
        model_config = strict

        name: str = Field(min_length=1)
        aliases: list[str] = Field(default=[], max_length=50)
        config: str | dict[str, Any] | None = None
        facts: str | None = Field(default=None, min_length=1)

    class UserGpu(BaseModel):
        model_config = strict

        id: str = Field(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
        name: str = ""
        vendor: str = ""
        aliases: list[str] = Field(default=[], max_length=50)
        memory: str | int
        bandwidth_gb_s: float | None = Field(default=None, gt=0, le=1e6)
        bf16_tflops: float | None = Field(default=None, gt=0, le=1e6)
        fp8_tflops: float | None = Field(default=None, gt=0, le=1e6)
        fp4_tflops: float | None = Field(default=None, gt=0, le=1e6)
        compute_capability: str | None = Field(default=None, pattern=r"^(\d{1,2}\.\d|gfx[0-9a-f]{3,5})$")
        unified_memory: bool = False
        price_per_hour: float | None = Field(default=None, ge=0, le=1e6)
        source: str = ""
        note: str = ""

    return UserModel, UserGpu


def validate(schema: type[BaseModel], row: dict[str, Any], where: str) -> Any:
    """A table as its schema has it.

    Raises:
        InputError: a key is wrong.
    """
    from pydantic import ValidationError

    try:
        return schema.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        known = ", ".join(schema.model_fields)
        raise InputError(
            _one_line(f"`{key}`: {first['msg']}"), code="invalid-entry", hint=f"the keys are {known}", where=where
        ) from error


def _model(row: Any, where: str, path: str) -> ModelEntry:
    if (row.config is None) == (row.facts is None):
        hint = 'config = "config.json", or facts = the file that kvtax models add wrote'
        raise InputError(
            "`config` or `facts`: exactly one of them is needed", code="invalid-entry", hint=hint, where=where
        )
    inline = row.config if isinstance(row.config, dict) else None
    if row.facts is not None:
        file, key, named = _facts_file(row.facts, where, path), "facts", row.facts
    else:
        file = "" if inline is not None else os.path.join(os.path.dirname(os.path.abspath(path)), row.config)
        key, named = "config", row.config
    if inline is None and not os.path.isfile(file):
        raise InputError(
            f"`{key}`: there is no file {_one_line(named)!r}",
            code="invalid-entry",
            hint="the path is relative to the file that names it",
            where=where,
        )
    model_type = inline.get("model_type") if inline else None
    return ModelEntry(
        id=row.name,
        file=file,
        kind="user",
        source=path,
        aliases=tuple(alias.lower() for alias in row.aliases),
        model_type=model_type if isinstance(model_type, str) else None,
        config=inline,
        facts=file if row.facts is not None else None,
    )


def _facts_file(name: str, where: str, path: str) -> str:
    """The full path of a facts file, which lies below the folder of the TOML file and nowhere else.

    Raises:
        InputError: code `invalid-entry`: the path leads out, by its words or by a link.
    """
    folder = os.path.realpath(os.path.dirname(os.path.abspath(path)))
    parts = name.split("/")
    plain = all(part not in ("", ".", "..") and part.isprintable() for part in parts) and not set(name) & set("\\:")
    file = os.path.join(folder, *parts) if plain else ""
    if not plain or os.path.commonpath((folder, os.path.realpath(file))) != folder:
        raise InputError(
            f"`facts`: {_one_line(name)!r} does not lie in the folder of this file or below it",
            code="invalid-entry",
            hint="write it relative to this file, without ..",
            where=where,
        )
    return file


def _gpu(row: Any, where: str) -> Gpu:
    try:
        memory = parse_bytes(row.memory, "`memory`")
    except KvtaxError as error:
        raise InputError(error.message, code="invalid-entry", hint=error.hint, where=where) from error
    if memory < MIB:
        hint = "a number alone counts bytes: write 48GiB, 48GB or 80000MiB"
        raise InputError(f"`memory`: must be at least {MIB:,} bytes", code="invalid-entry", hint=hint, where=where)
    source = row.source or where
    price = row.price_per_hour
    return Gpu(
        id=row.id.lower(),
        name=row.name or row.id,
        vendor=_MAKERS.get(row.vendor.lower(), row.vendor) or "user",
        kind="user",
        total_bytes=memory,
        total_source=source,
        bandwidth_bytes_per_second=_scaled(row.bandwidth_gb_s, 10**9),
        bf16_flops=_scaled(row.bf16_tflops, 10**12),
        fp8_flops=_scaled(row.fp8_tflops, 10**12),
        fp4_flops=_scaled(row.fp4_tflops, 10**12),
        compute_capability=row.compute_capability,
        unified_memory=row.unified_memory,
        source=source,
        note=row.note,
        prices=() if price is None else (Price(price, "your own", "", source),),
        aliases=tuple(alias.lower() for alias in row.aliases),
    )


def _refuse_duplicates(names: list[tuple[str, str]], path: str) -> None:
    seen = set()
    for name, kind in names:
        if name in seen:
            raise InputError(f"two {kind} entries are called {_one_line(name)!r}", code="duplicate-name", where=path)
        seen.add(name)


def _scaled(value: float | None, factor: int) -> int | None:
    return None if value is None else round(value * factor)


def _one_line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:300]
