"""What vLLM 0.33's own planner computed: groups, pages, blocks, tokens and concurrency, to the byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.deployment import make_deployment
from kvtax.engines.answer import Question
from kvtax.engines.vllm.plan import VllmPlan
from kvtax.sources.class_defaults import class_defaults
from kvtax.sources.gpus import find_gpu

DATA = Path(__file__).parents[1] / "data" / "engine-cases"
CASES = json.loads((DATA / "cases.json").read_text())
CARDS = {"h100": "h100-sxm", "b200": "b200", "l4": "l4", "a100": "a100-80gb-sxm"}
# tests/architectures/test_quantization.py builds the quantised variants of these configs; here they only differ in weights
RUNS = CASES["engine_runs"]


def option(value: str) -> Any:
    return {"True": True, "False": False}.get(value, value)


def plan(run: dict[str, Any]) -> VllmPlan:
    config = json.loads((DATA / "configs" / (run["model"].split("+")[0] + ".json")).read_text())
    given = {
        name: option(value) for name, value in run["opts"].items() if name not in ("trust_remote_code", "max_model_len")
    }
    deployment = make_deployment(
        {
            "model": config,
            "tensor_parallel_size": run["tp"],
            "pipeline_parallel_size": run["pp"],
            "decode_context_parallel_size": run["dcp"],
            "kv_cache_memory_bytes": run["budget_bytes"],
            **given,
        }
    )
    card = find_gpu(CARDS[run["gpu"]])
    return VllmPlan(
        Question(deployment, read_architecture(config, class_defaults), card, card.total_bytes, "catalogue")
    )


def name(run: dict[str, Any]) -> str:
    options = ",".join(f"{key}={value}" for key, value in run["opts"].items())
    return f"{run['model']}-tp{run['tp']}-{run['gpu']}-{options}"


@pytest.mark.parametrize("run", RUNS, ids=name)
def test_pool_is_the_planners(run: dict[str, Any]) -> None:
    found = plan(run)
    answer = found.answer(run["max_model_len"])
    pool, stage = answer.pool, answer.detail.stage
    assert stage.layout is not None
    if "max_model_len" not in run["opts"]:
        assert found.default_max_model_len() == run["max_model_len"]
    assert found.step_tokens(run["max_model_len"]) == (run["max_num_seqs"], run["max_num_batched_tokens"])
    assert stage.layout.in_flight_tokens == run["max_in_flight_tokens"]
    assert pool.block_size == run["block_size"]
    assert pool.bytes_per_block == run["bytes_per_block"]
    assert pool.blocks == run["num_blocks"]
    assert pool.blocks_per_request == run["blocks_per_request_at_max_len"]
    assert pool.capacity_tokens == run["kv_tokens"]
    assert round(pool.max_concurrency, 2) == round(run["max_concurrency"], 2)
    assert (
        sorted(group.layers for group in stage.layout.groups)[:1]
        == sorted(group["layers"] for group in run["groups"])[:1]
        or len(run["groups"]) == 1
    )


@pytest.mark.parametrize("run", [run for run in RUNS if "+" not in run["model"]], ids=name)
def test_weights_are_the_engines(run: dict[str, Any]) -> None:
    """Parameter bytes before repacking.

    The engine keeps small tensors in another dtype than the checkpoint: A_log and short convolutions (float32), the router of MiniMax M2
    (float32), the indexer's key projection of DSA (16 bit instead of fp8); together less than 0.2 % of a rank. At 16 ranks the blocks of
    128 no longer divide MiniMax M2's experts, and the engine keeps finer scales: 1 %.
    """
    detail = plan(run).answer(run["max_model_len"]).detail
    expected = run["weight_param_bytes_before_repack"]
    odd = {("minimax-m2", 4): 0.002, ("minimax-m2", 16): 0.0105, ("deepseek-v3.2", 8): 0.002}
    tolerance = odd.get((run["model"], run["tp"]), 0.0005)
    assert abs(detail.stage.weights_bytes + detail.load.padding_bytes - expected) <= tolerance * expected


def test_refusals() -> None:
    config = json.loads((DATA / "configs" / "qwen2.5-7b.json").read_text())
    deployment = make_deployment({"model": config, "tensor_parallel_size": 8})
    card = find_gpu("h100-sxm")
    found = VllmPlan(
        Question(deployment, read_architecture(config, class_defaults), card, card.total_bytes, "catalogue")
    )
    assert found.refusal is not None
    assert found.refusal.code == "heads-not-divisible"
    assert "1, 2, 4, 7, 14, 28" in found.refusal.hint


@pytest.mark.parametrize("row", CASES["real_cpu_server"]["rows"], ids=lambda row: row["model"])
def test_formula_of_real_servers_holds_in_the_planner(row: dict[str, Any]) -> None:
    """The server's own numbers agree with each other: blocks over blocks per request is the printed concurrency."""
    per_request = row["num_gpu_blocks"] / row["kv_cache_max_concurrency"]
    assert abs(per_request - round(per_request)) < 1e-6


def test_whisper_reserves_the_encoder() -> None:
    """Cross-attention is sized by max_num_batched_tokens, not by the 1500 frames: 512 blocks a request (engine run, 20 GiB)."""
    config = json.loads((DATA / "configs" / "whisper-large-v3.json").read_text())
    deployment = make_deployment({"model": config, "kv_cache_memory_bytes": "20GiB", "max_num_batched_tokens": 8192})
    card = find_gpu("h100-sxm")
    found = VllmPlan(
        Question(deployment, read_architecture(config, class_defaults), card, card.total_bytes, "catalogue")
    )
    pool = found.answer(448).pool
    assert round(pool.max_concurrency, 2) == 15.17
    assert pool.capacity_tokens == 6796


@pytest.mark.parametrize("expert_parallel", [False, True])
def test_experts_whole_or_split_weigh_the_same(expert_parallel: bool) -> None:
    """DeepSeek-V3 in fp8 on 8 ranks: 79.29 GiB either way (engine run)."""
    config = json.loads((DATA / "configs" / "deepseek-v3.json").read_text())
    deployment = make_deployment({"model": config, "tensor_parallel_size": 8, "expert_parallel": expert_parallel})
    card = find_gpu("h200-sxm")
    question = Question(deployment, read_architecture(config, class_defaults), card, card.total_bytes, "catalogue")
    stage = VllmPlan(question).answer(8192).detail.stage
    assert round(stage.weights_bytes / 2**30, 2) == 79.29
    spread = VllmPlan(question._replace(deployment=deployment._replace(tensor_parallel_size=1, data_parallel_size=8)))
    alone = spread.answer(8192).detail.stage
    experts = sum(count for (component, _), count in stage.elements.items() if component == "routed_experts")
    assert experts == sum(count for (component, _), count in alone.elements.items() if component == "routed_experts")
    assert alone.weights_bytes > stage.weights_bytes
