"""What a well-formed GGUF file may claim of its model: any keys give an architecture and a budget, or one error."""

from __future__ import annotations

import random
import struct
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvtax
from gguf_files import TensorOf
from kvtax.architectures.gguf import traits
from kvtax.architectures.gguf.model import read_model
from kvtax.errors import KvtaxError
from llama_cpp_rows import lines

HPARAMS = {entry["model"]: entry for entry in lines("measured.jsonl")}
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 31, 64, 4096, 4097, 2**16, 2**31 - 1, 2**32, 2**48, 2**63, 2**64 - 1, 0.0, 1.5, float("nan"),
    float("inf"), "", "llama", "x\x1b[2J", (), (0,), (1, 2), (True, False), (0,) * 64, (2**63,) * 64, ("full", "shared"), (1.5,),
)  # fmt: skip


def keys_of(chance: random.Random) -> dict[str, Any]:
    entry = HPARAMS[chance.choice(sorted(HPARAMS))]
    arch = entry["arch"] if chance.random() < 0.7 else chance.choice(sorted(traits.KNOWN))
    keys: dict[str, Any] = {"general.architecture": arch}
    keys |= {
        f"{arch}.{key}": tuple(value) if isinstance(value, list) else value for key, value in entry["hparams"].items()
    }
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        name = chance.choice(sorted(keys))
        if chance.random() < 0.2:
            del keys[name]
        else:
            keys[name] = chance.choice(VALUES)
    return keys


def tensors_of(chance: random.Random, keys: dict[str, Any]) -> list[TensorOf]:
    arch = keys.get("general.architecture")
    blocks, width = keys.get(f"{arch}.block_count"), keys.get(f"{arch}.embedding_length")
    if chance.random() < 0.6 and type(blocks) is int and 0 < blocks < 200 and type(width) is int and 0 < width < 2**20:
        found = [TensorOf(f"blk.{index}.attn_norm.weight", (width,)) for index in range(blocks)]
        return [*found, TensorOf("token_embd.weight", (width, 8), "bfloat16")]
    blocks = chance.choice((0, 1, 2, 24, 32, 40))
    found = [TensorOf(f"blk.{index}.attn_q.weight", (chance.choice((1, 256)), 4), "float16") for index in range(blocks)]
    found.append(TensorOf("token_embd.weight", chance.choice(((256, 8), (1,), (2**40, 2**20))), "bfloat16"))
    return found


def outcome(keys: dict[str, Any], tensors: list[TensorOf]) -> str:
    try:
        architecture = read_model(keys, {}, tensors)
        tokens = min(architecture.max_position_embeddings or 4096, 4096)
        assert architecture.kv_bytes(tokens) >= 0
        assert architecture.checkpoint_bytes is not None
    except KvtaxError as error:
        assert f"{error} {error.hint}".isprintable()
        assert len(f"{error}") < 600
        return error.code
    return "ok"


@pytest.mark.parametrize("seed", range(4))
def test_keys_that_lie(seed):
    chance = random.Random(seed)
    outcomes = set()
    for _ in range(250):
        keys = keys_of(chance)
        tensors = tensors_of(chance, keys)
        begun = time.perf_counter()
        try:
            outcomes.add(outcome(keys, tensors))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {keys!r:.3000} {tensors[:3]!r}") from error
        assert time.perf_counter() - begun < 1
    assert {"ok", "invalid-gguf"} <= outcomes


@given(
    st.dictionaries(
        st.sampled_from([f"llama.{key}" for key in HPARAMS["llama3.2-1b"]["hparams"]]), st.sampled_from(VALUES)
    )
)
def test_any_values_under_known_keys(values):
    outcome({"general.architecture": "llama", **values}, [TensorOf("token_embd.weight", (256, 8), "bfloat16")])


def test_an_architecture_from_a_file_makes_a_budget_or_an_error(tmp_path):
    from gguf_files import gguf_bytes

    chance = random.Random(7)
    verdicts = set()
    for number in range(60):
        keys = {key: value for key, value in keys_of(chance).items() if value is not None and value != ()}
        blocks = keys.get(f"{keys.get('general.architecture')}.block_count", 0)
        count = blocks if isinstance(blocks, int) and 0 <= blocks <= 64 else 1
        tensors = [TensorOf(f"blk.{index}.attn_q.weight", (256, 2), "q4_k") for index in range(count)]
        path = tmp_path / f"{number}.gguf"
        try:
            path.write_bytes(gguf_bytes(keys, [*tensors, TensorOf("token_embd.weight", (256, 8), "q8_0")]))
        except (ValueError, TypeError, AttributeError, OverflowError, KeyError, struct.error):
            continue  # the builder cannot write such a value
        for engine in ("llama.cpp", "vllm"):
            try:
                verdicts.add(kvtax.budget(model=str(path), gpu="rtx-4090", engine=engine, max_model_len=2048).verdict)
            except KvtaxError as error:
                assert f"{error} {error.hint}".isprintable()
    assert "fits" in verdicts
