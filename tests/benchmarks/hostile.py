"""Hostile inputs in bulk: every reader gets mutated files, and gives a result or a KvtaxError, nothing else.

    python tests/benchmarks/hostile.py [INPUTS]     # a million by default: some minutes

Prints how many inputs each reader took, how many were still valid, the rate, and the slowest one; stops at the first other exception and
prints the input. Rates are no test; the exceptions are.
"""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

import kvtax  # noqa: E402
import safetensors_mutations  # noqa: E402
from kvtax.architectures.from_files import match  # noqa: E402
from kvtax.architectures.gguf.model import read_model  # noqa: E402
from kvtax.architectures.registry import read_architecture  # noqa: E402
from kvtax.errors import KvtaxError  # noqa: E402
from kvtax.sources.byte_source import BytesInMemory  # noqa: E402
from kvtax.sources.class_defaults import class_defaults  # noqa: E402
from kvtax.sources.gguf import read_gguf  # noqa: E402
from kvtax.sources.hub.names import parse_hub_name  # noqa: E402
from kvtax.sources.ollama_names import parse_ollama_name  # noqa: E402
from kvtax.sources.safe_json import parse_json  # noqa: E402
from kvtax.sources.safetensors import read_header  # noqa: E402
from kvtax.sources.safetensors_index import read_index  # noqa: E402
from safetensors_files import with_length  # noqa: E402

MILLION = 1_000_000


def load(name: str) -> ModuleType:
    """A test module by its path below tests/, as pytest loads it."""
    spec = importlib.util.spec_from_file_location(name.replace("/", "_"), TESTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GGUF, MODEL, CONFIG = load("hostile/test_gguf"), load("hostile/test_gguf_model"), load("hostile/test_config")


class Reader(NamedTuple):
    """A reader, what makes its inputs, and its part of all inputs."""

    make: Callable[[random.Random], Any]
    read: Callable[[Any], object]
    share: float


def changed(chance: random.Random, data: bytes) -> bytes:
    return safetensors_mutations.changed_bytes(chance, data)


INDEX = json.dumps(
    {"metadata": {"total_size": 9}, "weight_map": {"a": "m-1.safetensors", "b.c": "m-2.safetensors"}}
).encode()
CONFIGS = [json.dumps(CONFIG.LLAMA).encode()]
LLAMA = kvtax.architecture("llama-3.2-1b")


def read_config(data: bytes) -> object:
    config, _ = parse_json(data, "config.json")
    return read_architecture(config, class_defaults).kv_bytes(4096)


def read_and_match(data: bytes) -> object:
    header = read_header(BytesInMemory(data))
    return match(LLAMA, header.tensors).bytes


def read_name(text: str) -> object:
    with suppress(KvtaxError):
        parse_ollama_name(text)
    return parse_hub_name(text)


def make_name(chance: random.Random) -> str:
    letters = "abz019/:@.-_ \n\x1b\u202e\ud800ä~\\%"
    start = chance.choice(("", "org/name", "hf.co/", "https://huggingface.co/a/b/tree/", "llama3:8b"))
    return start + "".join(chance.choice(letters) for _ in range(chance.randrange(24)))


def make_model(chance: random.Random) -> tuple[dict[str, Any], list[Any]]:
    keys = MODEL.keys_of(chance)
    return keys, MODEL.tensors_of(chance, keys)


READERS = {
    "safetensors header": Reader(safetensors_mutations.mutated, read_and_match, 0.3),
    "safetensors framing": Reader(
        lambda chance: with_length(bytes(chance.randrange(256) for _ in range(chance.randrange(40)))),
        read_and_match,
        0.1,
    ),
    "safetensors index": Reader(lambda chance: changed(chance, INDEX), lambda data: read_index(data, "index"), 0.1),
    "gguf header": Reader(GGUF.mutated, lambda data: read_gguf(BytesInMemory(data)), 0.3),
    "gguf model": Reader(
        make_model,
        lambda pair: read_model(pair[0], {}, pair[1]).kv_bytes(4096),
        0.02,
    ),
    "config.json": Reader(lambda chance: changed(chance, chance.choice(CONFIGS)), read_config, 0.08),
    "names": Reader(make_name, read_name, 0.1),
}


def drive(reader: Reader, count: int, seed: int) -> tuple[int, float, float]:
    """How many inputs were valid, the seconds in the reader, and the slowest of them [s]."""
    chance = random.Random(seed)
    valid, spent, slowest = 0, 0.0, 0.0
    for _ in range(count):
        data = reader.make(chance)
        begun = time.perf_counter()
        try:
            reader.read(data)
            valid += 1
        except KvtaxError as error:
            assert f"{error} {error.hint}".isprintable(), data
        except BaseException:
            print(f"input: {data!r:.4000}", file=sys.stderr)
            raise
        took = time.perf_counter() - begun
        spent += took
        slowest = max(slowest, took)
    return valid, spent, slowest


def main() -> None:
    """Drive every reader and print what came of it."""
    total = int(sys.argv[1]) if len(sys.argv) > 1 else MILLION
    done = 0
    for number, (name, reader) in enumerate(READERS.items()):
        count = round(total * reader.share)
        valid, spent, slowest = drive(reader, count, number)
        done += count
        print(
            f"{name:<22}{count:>9,} inputs  {valid:>8,} valid  {count / spent:>8,.0f}/s  slowest {1000 * slowest:6.1f} ms",
            flush=True,
        )
    print(f"{done:,} inputs, no other exception")


if __name__ == "__main__":
    main()
