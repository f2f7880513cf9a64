"""Features of vLLM beside what its planner computed and real starts printed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvtax
from kvtax.architectures.tensors import COLUMN, EXPERT, REPLICATED, ROW, Tensor
from kvtax.budgets import Budget
from kvtax.dtypes import TURBOQUANT_BITS, head_bytes
from kvtax.engines.vllm.offload import offloaded_bytes
from kvtax.engines.vllm.rules import rule
from kvtax.formulas.lora import lora_bytes, lora_elements, slot_elements
from kvtax.formulas.weights import RankTensor

GIB = 2**30
LLAMA = "meta-llama/Meta-Llama-3-8B"


def budget(**fields: Any) -> Budget:
    found = kvtax.budget(**{"model": LLAMA, "gpu": "h100-sxm", "max_model_len": 8192, **fields})
    assert isinstance(found, Budget)
    return found


# starts of GB10 with MTP (vLLM issues and public logs): pool [GiB], block, concurrency; the blocks printed settle three draft tokens
MTP_STARTS = [
    ("Qwen/Qwen3.6-35B-A3B", "0.25.1", "auto", 74.22, 262_144, 1072, 12.84),
    ("Qwen/Qwen3.5-27B", "0.25.1", "auto", 80.17, 262_144, 800, 4.54),
    ("Qwen/Qwen3.5-27B", "0.25.1", "fp8", 76.40, 262_144, 1600, 8.36),
    ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "0.19.2", "fp8", 36.25, 131_072, 8432, 27.81),
]


@pytest.mark.parametrize(("model", "version", "kv", "pool", "length", "block", "concurrency"), MTP_STARTS)
def test_drafting_layers_join_the_pool_as_servers_printed(
    model: str, version: str, kv: str, pool: float, length: int, block: int, concurrency: float
) -> None:
    found = budget(
        model=model,
        gpu="gb10",
        engine_version=version,
        kv_cache_dtype=kv,
        kv_cache_memory_bytes=round(pool * GIB),
        max_model_len=length,
        speculative="mtp:3",
    )
    assert found.answer.pool.block_size == block
    assert found.answer.pool.max_concurrency == pytest.approx(concurrency, abs=0.006)


def test_an_mtp_layer_is_loaded_where_it_drafts() -> None:
    """Qwen3-Next over four H100 prints 37.99 GiB with qwen3_next_mtp."""
    fields: dict[str, Any] = {"model": "Qwen/Qwen3-Next-80B-A3B-Instruct", "tp": 4, "engine_version": "0.11"}
    found = budget(**fields, speculative="qwen3_next_mtp:2")
    assert found.to_dict()["per_gpu"]["model_load_bytes"] / GIB == pytest.approx(37.99, abs=0.03)
    assert found.answer.memory.weights_bytes > budget(**fields).answer.memory.weights_bytes


def test_an_eagle_draft_adds_a_layer_of_cache() -> None:
    """EAGLE on an 8B Llama takes 132 KiB a token in a real start, 33 layers."""
    found = budget(speculative="eagle:3")
    assert found.answer.pool.bytes_per_block == 16 * 132 * 1024
    assert found.prepared.plan.growth_bytes() == 132 * 1024
    assert {"draft-assumed"} <= {notice.code for notice in found.notices}


def test_what_a_named_draft_adds_is_its_own() -> None:
    found = budget(speculative="draft:5:llama-3.2-1b")
    draft = kvtax.architecture("llama-3.2-1b")
    plain = budget()
    assert found.answer.pool.bytes_per_block - plain.answer.pool.bytes_per_block == 16 * draft.kv_bytes_per_token()
    assert found.answer.memory.weights_bytes - plain.answer.memory.weights_bytes == draft.weight_bytes()


def test_a_draft_that_is_not_known_is_a_notice() -> None:
    found = budget(speculative="eagle3:3:someone/not-in-the-catalogue")
    assert "draft-not-found" in {notice.code for notice in found.notices}


def test_mtp_without_layers_is_refused() -> None:
    assert budget(speculative="mtp:1").verdict == "refused"


@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_drafting_from_the_text_takes_nothing(method: str) -> None:
    found, plain = budget(speculative=f"{method}:4"), budget()
    assert found.answer.memory == plain.answer.memory
    assert found.answer.pool == plain.answer.pool


def test_turboquant_leaves_the_edges_alone_as_the_planner_does() -> None:
    """Llama-3-8B in turboquant_4bit_nc: blocks of 32 tokens and 1,484,800 B (engine run)."""
    found = budget(kv_cache_dtype="turboquant_4bit_nc", kv_cache_memory_bytes=20 * GIB)
    assert (found.answer.pool.block_size, found.answer.pool.bytes_per_block) == (32, 1_484_800)
    assert found.prepared.plan.growth_bytes() == 46_400
    assert found.prepared.plan.request_bytes(8192) == 8192 * 46_400
    held = [term for term in found.terms if term.name.startswith("request.")]
    assert sum(term.bytes for term in held) == 8192 * 46_400


@given(st.sampled_from(sorted(TURBOQUANT_BITS)), st.integers(1, 64))
def test_a_turboquant_slot_is_even_and_below_16_bit(name: str, eighths: int) -> None:
    width = 8 * eighths
    size = head_bytes(name, width, width)
    assert size % 2 == 0
    assert size >= 2 * width * min(TURBOQUANT_BITS[name]) // 8
    assert width < 64 or size < 2 * head_bytes("fp8_e4m3", width, width)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"kv_cache_dtype": "turboquant_k8v4", "engine_version": "0.12"}, "kv-dtype-not-in-version"),
        ({"kv_cache_dtype": "turboquant_k8v4", "model": "deepseek-ai/DeepSeek-V3", "tp": 8}, "kv-dtype-not-for-model"),
        ({"lora": "1:48"}, "lora-rank-not-supported"),
        ({"prefill_context_parallel_size": 2, "engine_version": "0.10"}, "pcp-not-in-version"),
        ({"decode_context_parallel_size": 2, "tp": 2, "engine_version": "0.9"}, "dcp-above-repeats"),
        ({"decode_context_parallel_size": 3, "tp": 8}, "dcp-not-divisible"),
    ],
)
def test_what_the_engine_refuses(fields: dict[str, Any], code: str) -> None:
    found = budget(**fields)
    assert found.verdict == "refused"
    assert found.answer.reason is not None
    assert found.answer.reason.code == code


def test_context_parallel_ranks_share_the_tokens_of_a_request() -> None:
    """DeepSeek-V3 over eight ranks in 20 GiB: 305,584 tokens, and 2,444,672 with decode context parallelism of 8 (engine run)."""
    fields: dict[str, Any] = {
        "model": "deepseek-ai/DeepSeek-V3",
        "tp": 8,
        "kv_cache_memory_bytes": 20 * GIB,
        "max_model_len": 163_840,
    }
    assert budget(**fields).answer.pool.capacity_tokens == 305_584
    assert budget(**fields, dcp=8).answer.pool.capacity_tokens == 2_444_672
    both = budget(**fields, dcp=4, prefill_context_parallel_size=2).answer.pool
    assert both.blocks_per_request == budget(**fields, dcp=8).answer.pool.blocks_per_request


def test_adapters_take_a_slot_in_every_linear_layer() -> None:
    """Llama-3-8B: 32 layers of q, k, v, o, gate, up and down: 2,621,440 inputs and outputs."""
    found = budget(lora="4:64")
    slots = next(term for term in found.terms if term.name == "runtime.lora_slots")
    assert slots.bytes == lora_bytes(4, 64, 2_621_440 + 264_704, 2)  # layers, then embedding and head
    plain = budget()
    assert plain.answer.memory.kv_pool_bytes - found.answer.memory.kv_pool_bytes == slots.bytes


@pytest.mark.parametrize(
    ("shard", "a", "b"),
    [(COLUMN, 4096, 14_336 // 4), (ROW, 4096 // 4, 14_336), (REPLICATED, 4096, 14_336), (EXPERT, 4096, 14_336 // 4)],
)
def test_how_a_slot_is_split(shard: str, a: int, b: int) -> None:
    tensor = Tensor("mlp.up_proj.weight", (14_336, 4096), "mlp", shard=shard, linear=True)
    assert slot_elements(tensor, 4, expert_ranks=4) == (a, b)


@given(st.integers(0, 3))
def test_slots_never_grow_with_ranks(power: int) -> None:
    tensors = kvtax.architecture(LLAMA).tensors
    assert lora_elements(tensors, 2 ** (power + 1), experts=True) <= lora_elements(tensors, 2**power, experts=True)


def test_offloaded_weights_leave_the_card_for_the_host() -> None:
    found, plain = budget(cpu_offload="4GiB"), budget()
    away = plain.answer.memory.weights_bytes - found.answer.memory.weights_bytes
    assert found.answer.host.weights_bytes == away
    assert 4 * GIB <= away <= 4 * GIB + 14_336 * 4096 * 2
    weights = [term for term in found.terms if term.name.startswith("weights")]
    assert sum(term.bytes for term in weights) == found.answer.memory.weights_bytes


@given(st.integers(0, 4000))
def test_offloading_stops_at_the_parameter_that_reaches_the_sum(wanted: int) -> None:
    tensors = [RankTensor("layers.*.w", "mlp", "bfloat16", tuple(range(10)), 10, 1000, False)]
    away = offloaded_bytes(tensors, wanted)
    assert away == min(-(-wanted // 200) * 200, 2000)


def test_cache_beside_the_pool_is_in_ram() -> None:
    assert budget(kv_offloading_size="64GiB").answer.host.kv_bytes == 64 * GIB


def test_quantising_online_creates_16_bit_weights_first() -> None:
    """Llama-3-8B in fp8: 8.46 GiB at rest, 14.96 before they are converted (engine run)."""
    fields: dict[str, Any] = {"quantization": "fp8-online", "gpu": None, "vram": "14GiB", "max_model_len": 512}
    old = budget(**fields, engine_version="0.12")
    peak = old.answer.memory.weights_bytes + old.answer.memory.loading_bytes
    assert peak / GIB == pytest.approx(14.958, abs=0.01)
    assert old.verdict == "out_of_memory"
    assert old.answer.reason is not None
    assert "at rest" in old.answer.reason.message
    checkpoint = budget(**fields | {"quantization": "fp8"}, engine_version="0.12")
    assert checkpoint.answer.memory.loading_bytes == 0
    assert checkpoint.verdict != "out_of_memory"
    new = budget(**fields, engine_version="0.33")
    assert 0 < new.answer.memory.loading_bytes < GIB
    assert new.verdict != "out_of_memory"


def test_the_error_of_a_pool_that_is_too_small_has_the_engines_words() -> None:
    found = budget(gpu="rtx-4090", max_model_len=131_072, gpu_memory_utilization=0.8)
    assert found.verdict == "kv_too_small"
    assert found.answer.reason is not None
    assert (
        "(16.0 GiB KV cache is needed, which is larger than the available KV cache memory"
        in found.answer.reason.message
    )
    longest = int(found.answer.reason.message.partition("estimated maximum model length is ")[2].partition(".")[0])
    assert budget(gpu="rtx-4090", max_model_len=longest, gpu_memory_utilization=0.8).verdict == "fits"


def test_hybrids_cached_no_prefixes_by_default_up_to_0_27() -> None:
    assert not rule("hybrid_prefix_caching", (0, 27))
    assert rule("hybrid_prefix_caching", (0, 28))
    # Qwen3.5-27B over four ranks with 0.19: 7.47 GiB, 122,304 tokens, 13.87x (a public start)
    found = budget(
        model="Qwen/Qwen3.5-27B",
        tp=4,
        engine_version="0.19",
        kv_cache_memory_bytes=round(7.47 * GIB),
        max_model_len=32_768,
    )
    assert found.answer.pool.capacity_tokens == 122_304
    assert found.answer.pool.max_concurrency == pytest.approx(13.87, abs=0.005)
