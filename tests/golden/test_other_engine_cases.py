"""Blocks and concurrency of TensorRT-LLM, TGI and LMDeploy as derived by hand from their sources, for 20 GiB of KV memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvtax
from kvtax.architectures.architecture import Architecture
from kvtax.architectures.registry import read_architecture
from kvtax.deployment import make_deployment
from kvtax.engines.block_table import table_blocks, table_token_bytes
from kvtax.engines.tgi.plan import TgiPlan
from kvtax.prepared import Prepared
from kvtax.sources.class_defaults import class_defaults

DATA = Path(__file__).parents[1] / "data" / "engine-cases"
HAND = json.loads((DATA / "cases.json").read_text())["hand_derived"]
POOL = 20 * 2**30
CONFIGS = {
    "phi-3-mini": "phi-3-mini-4k", "mistral-7b": "mistral-7b-v0.1", "gemma-3-27b": "gemma-3-27b-text",
}  # fmt: skip


def read(row: dict[str, Any]) -> tuple[dict[str, Any], int, str | None]:
    """Config, tensor parallel size and KV format of a row such as `deepseek-v3 fp8 tp8`."""
    name, *words = row["model"].split()
    config = json.loads((DATA / "configs" / f"{CONFIGS.get(name, name)}.json").read_text())
    tp = next((int(word[2:]) for word in words if word.startswith("tp")), 1)
    return config, tp, {"fp8": "fp8", "bf16": "bfloat16"}.get((words or [""])[0])


def architecture(config: dict[str, Any]) -> Architecture:
    return read_architecture(config, class_defaults)


@pytest.mark.parametrize("row", HAND["tensorrt-llm"], ids=lambda row: row["model"])
def test_tensorrt_llm(row: dict[str, Any]) -> None:
    config, tp, kv_cache_dtype = read(row)
    found = kvtax.budget(
        model=config,
        vram="1000GiB",
        engine="tensorrt-llm",
        engine_version="1.2",
        tensor_parallel_size=tp,
        kv_cache_memory_bytes=POOL,
        kv_cache_dtype=kv_cache_dtype,
        max_model_len=8192,
    )
    pool = found.pool
    assert pool.bytes_per_token == row["bytes_per_token"]
    assert pool.block_size == row["tokens_per_block"]
    assert (pool.blocks, pool.capacity_tokens) == (row["blocks"], row["tokens"])
    assert found.max_concurrency == row["concurrency_at_8192"]
    assert found.kv_pool_bytes == POOL


@pytest.mark.parametrize("row", HAND["tgi"], ids=lambda row: row["model"])
def test_tgi(row: dict[str, Any]) -> None:
    config, tp, _ = read(row)
    given = {"model": config, "gpu": "h200-sxm", "engine": "tgi", "tensor_parallel_size": tp}
    if architecture(config).head_dim == 96:
        # the case has blocks of one token, as with flashinfer; the launcher takes flashdecoding for heads that flashinfer does not have
        assert Prepared(make_deployment(given), (), ()).plan.settings["block_size"].value == 256
        given["block_size"] = row["block"]
    plan = Prepared(make_deployment(given), (), ()).plan
    assert isinstance(plan, TgiPlan)
    assert plan.settings["block_size"].value == row["block"]
    # the parts that the server itself counts with, at the memory that the case gives
    pool, own = plan._count(plan.stages[0], POOL, 4096 + 1024)
    assert pool.bytes_per_block == row["bytes_per_block"]
    assert pool.capacity_tokens == row["max_batch_total_tokens"]
    assert own.reserved_tokens == 4096 + 1024 - 1
    assert pool.max_concurrency == row["concurrency_in4096_new1024"]


@pytest.mark.parametrize("row", HAND["lmdeploy-pytorch"], ids=lambda row: row["model"])
def test_lmdeploy(row: dict[str, Any]) -> None:
    config, tp, _ = read(row)
    found = kvtax.budget(
        model=config, gpu="h200-sxm", engine="lmdeploy", backend="pytorch", tensor_parallel_size=tp, max_model_len=8192
    )
    assert found.pool.block_size == row["block"]
    assert found.pool.bytes_per_block == row["bytes_per_block"]
    caches = [cache.per_rank(tp) for cache in architecture(config).caches]
    block = row["block"] * table_token_bytes(caches, "bfloat16")
    blocks = table_blocks(POOL, block)
    assert (blocks, blocks * row["block"]) == (row["num_gpu_blocks"], row["tokens"])
    assert found.max_concurrency == found.pool.blocks // found.pool.blocks_per_request
