"""What the engine refuses for another reason than memory, each with its code and what to do."""

from __future__ import annotations

from typing import Any

import pytest

import kvtax

REFUSED = [
    ("heads-not-divisible", {"model": "qwen2.5-7b", "gpu": "h100-sxm", "tensor_parallel_size": 8}),
    ("too-few-gpus", {"model": "llama-3-8b", "gpu": "h100-sxm", "tensor_parallel_size": 4, "gpu_count": 2}),
    ("too-many-stages", {"model": "llama-3-8b", "gpu": "h100-sxm", "pipeline_parallel_size": 64}),
    ("dcp-not-divisible", {"model": "deepseek-v3", "gpu": "h200", "tensor_parallel_size": 8, "decode_context_parallel_size": 3}),
    ("architecture-not-served", {"model": {"model_type": "minimax", "architectures": ["MiniMaxText01ForCausalLM"]}, "gpu": "h200"}),
    ("no-experts", {"model": "llama-3-8b", "gpu": "h100-sxm", "expert_parallel": True}),
    ("dtype-not-on-card", {"model": "llama-3.2-1b", "gpu": "t4", "dtype": "bfloat16"}),
    ("dtype-not-for-model", {"model": "gemma-2-2b", "gpu": "t4", "dtype": "float16"}),
    ("kv-dtype-not-on-card", {"model": "llama-3-8b", "gpu": "a100-80", "kv_cache_dtype": "fp8"}),
    ("kv-dtype-not-on-card", {"model": "llama-3-8b", "gpu": "h100-sxm", "kv_cache_dtype": "nvfp4"}),
    ("quantization-not-on-card", {"model": "llama-3-8b", "gpu": "v100-32gb", "quantization": "awq-int4"}),
    ("quantization-not-on-card", {"model": "gpt-oss-20b", "gpu": "t4"}),
    ("step-too-small", {"model": "llama-3-8b", "gpu": "h100-sxm", "max_num_seqs": 4096, "max_num_batched_tokens": 2048}),
    ("block-size-not-supported", {"model": "llama-3-8b", "gpu": "h100-sxm", "block_size": 24}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "fields"), REFUSED, ids=[f"{code}-{index}" for index, (code, _) in enumerate(REFUSED)]
)
def test_refused_with_its_reason(code: str, fields: dict[str, Any]) -> None:
    found = kvtax.budget(**fields)
    assert found.verdict == "refused"
    assert found.notices[0].code == code
    assert not found.to_dict()["concurrency"]["fits"]


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "llama-3.2-1b", "gpu": "t4"},
        {"model": "llama-3-8b", "gpu": "a100-80", "kv_cache_dtype": "fp8_e5m2"},
        {"model": "llama-3-8b", "gpu": "h100-sxm", "kv_cache_dtype": "fp8"},
        {"model": "llama-3-8b", "gpu": "b200", "kv_cache_dtype": "nvfp4"},
        {"model": "llama-3-8b", "gpu": "t4", "quantization": "awq-int4"},
        {"model": "qwen3-30b-a3b", "gpu": "h100-sxm", "tensor_parallel_size": 2, "expert_parallel": True},
        {"model": "llama-3-8b", "gpu": "h100-sxm", "block_size": 32},
    ],
    ids=str,
)
def test_not_refused(fields: dict[str, Any]) -> None:
    assert kvtax.budget(**fields).verdict != "refused"


def test_fallbacks_are_said() -> None:
    found = kvtax.budget(model="llama-3.2-1b", gpu="t4")
    assert found.settings()["dtype"].value == "float16"
    assert "dtype-falls-back" in [notice.code for notice in found.notices]


@pytest.mark.parametrize("name", ["zzz", "foo", "nosuch", "qwen3-next-80b-a3b", "2x4090x"])
def test_wrong_names_get_three(name: str) -> None:
    for fields in ({"model": name, "gpu": "l4"}, {"model": "llama-3-8b", "gpu": name}):
        with pytest.raises(kvtax.UnknownNameError) as caught:
            kvtax.budget(**fields)
        assert len(caught.value.suggestions) == 3


def test_counts_and_lists_of_cards_get_a_hint() -> None:
    with pytest.raises(kvtax.UnknownNameError, match="no GPU") as caught:
        kvtax.budget(model="llama-3-8b", gpu="2x4090")
    assert "--tp 2" in caught.value.hint
    with pytest.raises(kvtax.UnknownNameError, match="no GPU") as caught:
        kvtax.budget(model="llama-3-8b", gpu="a100-80,l4")
    assert "its own --gpu" in caught.value.hint
