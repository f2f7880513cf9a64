"""The twelve models that comparable tools get wrong: weights and KV of 16 requests of 8192 tokens, in GiB."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.sources.class_defaults import class_defaults

CHECKPOINTS = Path(__file__).parents[1] / "data" / "checkpoints"
# checkpoint, weights in GiB (file), KV bytes per token once windows are full, KV of 16 x 8192 in GiB
TWELVE = [
    ("meta-llama--Meta-Llama-3-8B", 14.958, 131_072, 16.0),
    ("meta-llama--Llama-3.1-8B", 14.958, 131_072, 16.0),
    ("meta-llama--Llama-3.1-70B", 131.417, 327_680, 40.0),
    ("Qwen--Qwen2.5-7B", 14.185, 57_344, 7.0),
    ("Qwen--Qwen3-30B-A3B", 56.871, 98_304, 12.0),
    ("mistralai--Mixtral-8x7B-v0.1", 86.991, 131_072, 16.0),
    ("deepseek-ai--DeepSeek-V3", 641.285, 70_272, 8.578),
    ("google--gemma-3-27b-it", 51.097, 81_920, 16.5),
    ("openai--gpt-oss-20b", 12.816, 24_576, 3.047),
    ("Qwen--Qwen3-Next-80B-A3B-Instruct", 151.479, 24_576, 4.151),
    ("microsoft--Phi-3-mini-4k-instruct", 7.117, 0, 11.994),
    ("hugging-quants--Meta-Llama-3.1-70B-Instruct-AWQ-INT4", 37.037, 327_680, 40.0),
]


@pytest.mark.parametrize(("name", "weights_gib", "per_token", "kv_gib"), TWELVE, ids=[row[0] for row in TWELVE])
def test_twelve(name: str, weights_gib: float, per_token: int, kv_gib: float) -> None:
    checkpoint = json.loads((CHECKPOINTS / f"{name}.json").read_text())
    found = read_architecture(checkpoint["config"], class_defaults)
    assert found.checkpoint_bytes == checkpoint["bytes"]
    assert found.checkpoint_parameters == checkpoint["parameters"]
    assert round(found.checkpoint_bytes / 2**30, 3) == weights_gib
    assert found.kv_bytes_per_token() == per_token
    assert round(16 * found.kv_bytes(8192) / 2**30, 3) == kv_gib


DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F8_E4M3": "fp8_e4m3", "I32": "int32", "U8": "uint8"}


@pytest.mark.parametrize("path", sorted(CHECKPOINTS.glob("[!v]*.json")), ids=lambda path: path.stem)
def test_tensors_are_the_checkpoints(path: Path) -> None:
    """Names, shapes, dtypes and counts of real checkpoints."""
    checkpoint = json.loads(path.read_text())
    found = read_architecture(checkpoint["config"], class_defaults)
    mine: dict[tuple[str, tuple[int, ...], str], int] = {}
    for stored in found.stored_tensors():
        if stored.source.stored:
            key = (stored.name, stored.shape, stored.dtype)
            mine[key] = mine.get(key, 0) + stored.copies
    theirs: dict[tuple[str, tuple[int, ...], str], int] = {}
    for tensor in checkpoint["tensors"]:
        key = (tensor["name"], tuple(tensor["shape"]), DTYPES[tensor["dtype"]])
        theirs[key] = theirs.get(key, 0) + tensor["count"]
    assert mine == theirs


VARIANTS = [
    ("variant--gemma3-layertypes", "google--gemma-3-27b-it"),
    ("variant--gemma3-pattern", "google--gemma-3-27b-it"),
    ("variant--qwen3next-layertypes", "Qwen--Qwen3-Next-80B-A3B-Instruct"),
]


@pytest.mark.parametrize(("variant", "original"), VARIANTS)
def test_other_spellings_give_the_same_answer(variant: str, original: str) -> None:
    one, other = (
        read_architecture(json.loads((CHECKPOINTS / f"{name}.json").read_text())["config"], class_defaults)
        for name in (variant, original)
    )
    assert one.parameters == other.parameters
    assert one.caches == other.caches
