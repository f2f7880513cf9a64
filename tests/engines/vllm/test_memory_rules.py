"""Rules of vLLM's memory by version: defaults, what lies inside and outside the limit, and verdicts."""

from __future__ import annotations

import pytest

import kvtax
from kvtax.engines.vllm import rules
from kvtax.engines.vllm.outside import by_ranks, non_torch_part
from kvtax.sources.gpus import find_gpu
from kvtax.units import GIB, MIB


@pytest.mark.parametrize(
    ("gpu", "version", "seqs", "tokens"),
    [
        ("h100-sxm", (0, 12), 1024, 8192),
        ("a100-80gb-sxm", (0, 12), 256, 2048),
        ("a100-80gb-sxm", (0, 8), 1024, 8192),
        ("a800-80gb", (0, 13), 1024, 8192),
        ("l4", (0, 12), 256, 2048),
        ("b200", (0, 26), 1024, 8192),
        ("b200", (0, 33), 1024, 16384),
        ("gb10", (0, 33), 256, 2048),
        ("h100-sxm", (0, 7), 256, 2048),
    ],
)
def test_defaults_by_card_and_version(gpu: str, version: tuple[int, int], seqs: int, tokens: int) -> None:
    card = find_gpu(gpu)
    assert rules.default_max_num_seqs(card, card.total_bytes, version) == seqs
    assert rules.default_max_num_batched_tokens(card, card.total_bytes, version) == tokens


@pytest.mark.parametrize(
    ("version", "length", "tokens"),
    [("0.2", 65_536, 65_536), ("0.6", 16_384, 16_384), ("0.6", 65_536, 2048), ("0.8", 16_384, 2048)],
)
def test_a_prompt_is_one_step_in_the_first_engine(version: str, length: int, tokens: int) -> None:
    found = kvtax.budget(model="meta-llama/Llama-2-7b-hf", gpu="l40s", engine_version=version, max_model_len=length)
    assert found.max_num_batched_tokens == tokens


@pytest.mark.parametrize(
    ("gpu", "version", "ranks", "plain", "expected"),
    [
        ("h100-sxm", (0, 10), 1, True, 72 * MIB),
        ("rtx-4090", (0, 10), 1, True, 41 * MIB),
        ("h100-sxm", (0, 10), 4, True, (72 + 1331) * MIB),
        ("h100-sxm", (0, 12), 2, True, (72 + 461) * MIB),
        ("h100-sxm", (0, 8), 1, True, (72 + 480) * MIB),
        ("l4", (0, 7), 1, True, 41 * MIB),
        ("l4", (0, 2), 4, True, 0),
        ("r9700", (0, 13), 1, True, 461 * MIB),
        ("r9700", (0, 11), 1, True, (461 + 2253) * MIB),
        ("r9700", (0, 11), 1, False, 461 * MIB),
        ("mi300x", (0, 11), 2, True, 369 * MIB),
        ("gb10", (0, 25), 1, True, 1741 * MIB),
    ],
)
def test_memory_outside_pytorch(gpu: str, version: tuple[int, int], ranks: int, plain: bool, expected: int) -> None:
    part = non_torch_part(find_gpu(gpu), version, ranks, plain)
    assert part.bytes == expected
    assert eval(part.formula, {"__builtins__": {}}, {k: v.value for k, v in part.inputs.items()}) == expected  # noqa: S307


@pytest.mark.parametrize(("ranks", "expected"), [(1, 10), (2, 20), (3, 40), (4, 40), (16, 40)])
def test_the_next_larger_number_of_ranks_counts(ranks: int, expected: int) -> None:
    assert by_ranks({1: 10, 2: 20, 4: 40}, ranks) == expected


def parts(model: str, version: str, **flags: object) -> dict[str, float]:
    found = kvtax.budget(model=model, gpu="h100-sxm", engine_version=version, max_model_len=8192, **flags)
    return {term.name: term.bytes for term in found.terms}


def test_the_workspace_of_experts_is_kept_from_0_14_on() -> None:
    assert "runtime.moe_workspace" not in parts("Qwen/Qwen3-30B-A3B", "0.12")
    assert parts("Qwen/Qwen3-30B-A3B", "0.14")["runtime.moe_workspace"] == 8192 * 8 * 2 * (2048 + 2048)


@pytest.mark.parametrize(
    ("version", "flags", "tokens", "width"),
    [
        ("0.14", {}, 8192, 768),
        ("0.14", {"data_parallel_size": 4}, 16_384, 192),
        ("0.19", {"data_parallel_size": 4}, 32_768, 192),
        ("0.19", {"data_parallel_size": 4, "expert_parallel": True}, 32_768, 768),
        ("0.19", {"tensor_parallel_size": 2}, 8192, 384),
    ],
)
def test_experts_see_the_tokens_of_all_data_parallel_ranks(
    version: str, flags: dict[str, object], tokens: int, width: int
) -> None:
    found = parts("Qwen/Qwen3-30B-A3B", version, **flags)["runtime.moe_workspace"]
    assert found == tokens * 8 * 2 * (max(width, 2048) + max(2 * width, 2048))


def test_buffers_of_the_sampler_by_version() -> None:
    assert "runtime.sampler_buffers" not in parts("Qwen/Qwen3-8B", "0.16")
    assert parts("Qwen/Qwen3-8B", "0.17")["runtime.sampler_buffers"] == 128 * 151_936 * 4
    assert parts("Qwen/Qwen3-8B", "0.33")["runtime.sampler_buffers"] == 1024 * (4 * 151_936 + 4 * 4748)
    assert "runtime.sampler_buffers" not in parts("Qwen/Qwen3-8B", "0.33", runner="pooling")


def test_the_indexer_shares_the_workspace_of_experts() -> None:
    flags = {"gpu": "h200", "tensor_parallel_size": 8, "engine_version": "0.19", "max_num_batched_tokens": 1024}
    short, long = (
        {term.name for term in kvtax.budget(model="zai-org/GLM-5.1", max_model_len=length, **flags).terms}
        for length in (1024, 202_752)
    )
    assert "runtime.moe_workspace" in short - long
    assert "runtime.indexer_workspace" in long - short


def test_a_peak_beyond_the_card_is_out_of_memory() -> None:
    found = kvtax.budget(
        model="Qwen/Qwen3-8B", gpu="l4", engine_version="0.12", max_num_seqs=2048, max_num_batched_tokens=2048
    )
    assert found.memory.activation_bytes > 10 * GIB
    assert found.verdict == "out_of_memory"


def test_early_versions_start_with_any_pool() -> None:
    """A start of 0.2 with 48,448 tokens of 65,536 (vllm-project/vllm#1267)."""
    flags = {"model": "meta-llama/Llama-2-7b-hf", "gpu": "rtx-6000-ada", "max_model_len": 65_536}
    assert kvtax.budget(**flags, engine_version="0.2").verdict == "fits"
    assert kvtax.budget(**flags, engine_version="0.6").verdict == "kv_too_small"
