"""What llama.cpp b11434 reported, as tests read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kvtax.architectures.gguf.keys import read_shape
from kvtax.architectures.gguf.shape import Shape
from kvtax.architectures.gguf.tensor import GgufTensor
from kvtax.engines.llama_cpp import inventory, presets
from kvtax.engines.llama_cpp.cache import Context

FOLDER = Path(__file__).parent / "data" / "llama-cpp"


class Row(NamedTuple):
    model: str
    shape: Shape
    context: Context
    values: dict[str, Any]

    def bytes(self, part: str, place: str) -> int | None:
        found = self.values[place]
        return None if found is None else int(found[("model", "context", "compute").index(part)])

    @property
    def everything_on_the_device(self) -> bool:
        return self.values["device"] is not None and self.values["ngl"] == -1 and bool(self.values["kv_offload"])


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


@cache
def shapes() -> dict[str, Shape]:
    return {entry["model"]: read_shape(entry["hparams"], entry["arch"]) for entry in lines("measured.jsonl")}


def rows() -> Iterator[Row]:
    for entry in lines("measured.jsonl"):
        for row in entry["rows"]:
            values = dict(zip(entry["columns"], row, strict=True))
            context = Context(
                n_ctx=values["n_ctx_requested"],
                n_parallel=values["n_seq_max"],
                n_batch=values["n_batch"],
                n_ubatch=values["n_ubatch"],
                kv_unified=bool(values["kv_unified"]),
                flash_attn=values["flash_attn"] != "off",
                cache_type_k=values["type_k"],
                cache_type_v=values["type_v"],
                swa_full=bool(values["swa_full"]),
                n_rs_seq=values["n_rs_seq"],
                n_outputs_max=values["n_outputs_max"],
                kv_offload=bool(values["kv_offload"]),
            )
            yield Row(entry["model"], shapes()[entry["model"]], context, values)


def file_tensors(entry: dict[str, Any]) -> list[GgufTensor]:
    """The tensors of a measured file; `optional` ones are those that the tool which made the files put into them."""
    found = inventory.tensors(
        shapes()[entry["model"]],
        tied=entry["tied"],
        rope_factors=entry["rope_factors"],
        sparse_layers=entry.get("sparse_layers"),
    )
    return found + [GgufTensor(kind, tuple(shape)) for kind, shape in entry.get("optional", ())]


def preset_bytes(shape: Shape, tensors: list[GgufTensor], preset: str) -> int:
    types = presets.tensor_types(presets.find_preset(preset), tensors, inventory.facts(shape))
    return sum(tensor.bytes(dtype) for tensor, dtype in zip(tensors, types, strict=True))
