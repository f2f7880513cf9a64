"""What holds of every engine that loads a checkpoint as it is: TensorRT-LLM, TGI, LMDeploy, transformers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvtax
from kvtax.architectures.cache import FullAttention, LayerCache, Recurrent, SlidingWindow, State
from kvtax.budgets import Budget
from kvtax.engines.lmdeploy import rules as lmdeploy_rules
from kvtax.engines.registry import PLANS, plan_class
from kvtax.engines.tensorrt_llm import pool
from kvtax.engines.tgi import rules as tgi_rules
from kvtax.engines.transformers_generate import cache as kept
from strategies import full, latent, sliding

ENGINES = ("tensorrt-llm", "tgi", "lmdeploy", "transformers")
POOLED = ENGINES[:3]
PARTS = (
    "weights_bytes",
    "activation_bytes",
    "cuda_graph_bytes",
    "runtime_bytes",
    "kv_pool_bytes",
    "unallocated_bytes",
)
GIB = 2**30


def budget(engine: str, model: str = "llama-3-8b", **fields: Any) -> Budget:
    return kvtax.budget(**{"model": model, "gpu": "h100-sxm", "engine": engine, "max_model_len": 8192, **fields})


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["llama-3-8b", "gemma-3-27b", "deepseek-v3", "mistral-7b-v0.1", "gpt-oss-120b"])
@pytest.mark.parametrize(("gpu", "tp"), [("h100-sxm", 1), ("h200-sxm", 8), ("l4", 4)])
def test_terms_evaluate_and_parts_add_up(engine: str, model: str, gpu: str, tp: int) -> None:
    found = budget(engine, model, gpu=gpu, tensor_parallel_size=tp)
    for term in (*found.terms, *found.figures):
        values = {name: entry.value for name, entry in term.inputs.items()}
        assert eval(term.formula, {"__builtins__": {}}, values) == term.bytes, term  # noqa: S307
        assert eval(term.numbers(), {"__builtins__": {}}) == term.bytes, term  # noqa: S307
        assert term.source
    part = found.to_dict()["per_gpu"]
    assert sum(part[name] for name in PARTS) == part["total_bytes"]
    assert sum(term.bytes for term in found.terms if term.name.startswith("weights.")) == found.weights_bytes
    held = sum(term.bytes for term in found.terms if term.name.startswith("request."))
    assert held == found.live_bytes_per_request
    assert found.explain()


@pytest.mark.parametrize("engine", POOLED)
@given(st.floats(0.05, 0.99), st.floats(0.05, 0.99))
@settings(max_examples=25, deadline=None)
def test_a_larger_share_never_makes_a_smaller_pool(engine: str, one: float, other: float) -> None:
    small, large = sorted((one, other))
    pools = [budget(engine, gpu_memory_utilization=share).kv_pool_bytes for share in (small, large)]
    assert pools[0] <= pools[1]


@pytest.mark.parametrize("engine", POOLED)
@pytest.mark.parametrize("model", ["llama-3-8b", "gemma-3-27b", "mistral-7b-v0.1"])
@given(st.integers(1, 60_000), st.integers(0, 60_000))
@settings(max_examples=25, deadline=None)
def test_blocks_lie_in_the_pool_and_longer_requests_fit_less_often(
    engine: str, model: str, length: int, more: int
) -> None:
    one, other = budget(engine, model, max_model_len=length), budget(engine, model, max_model_len=length + more)
    for found in (one, other):
        assert found.pool.blocks * found.pool.bytes_per_block <= max(found.kv_pool_bytes, 0)
        assert found.pool.request_bytes * found.max_concurrency <= max(found.kv_pool_bytes, 0)
    assert one.pool.request_bytes <= other.pool.request_bytes


@pytest.mark.parametrize("engine", ENGINES)
def test_what_does_not_fit_says_why(engine: str) -> None:
    found = budget(engine, "llama-3.1-70b", gpu="rtx-4090")
    assert found.verdict == "out_of_memory"
    assert found.max_concurrency == 0
    assert found.notices[0].hint


@pytest.mark.parametrize("engine", ENGINES)
def test_heads_that_do_not_divide_are_refused(engine: str) -> None:
    found = budget(engine, "qwen2.5-7b", tensor_parallel_size=8)
    assert found.verdict == "refused"
    assert found.notices[0].code == "heads-not-divisible"


@pytest.mark.parametrize("engine", ENGINES)
def test_given_figures_stand(engine: str) -> None:
    found = budget(engine, weights_bytes=10 * GIB, free_memory=70 * GIB)
    assert found.weights_bytes == 10 * GIB
    assert found.memory.outside_bytes == found.memory.total_bytes - 70 * GIB
    assert found.free_bytes == 70 * GIB


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_is_registered_with_its_own_fields(engine: str) -> None:
    assert engine in PLANS
    assert engine == plan_class(engine).NAME
    foreign = {
        "tensorrt-llm": "quant_policy",
        "tgi": "max_beam_width",
        "lmdeploy": "num_beams",
        "transformers": "block_size",
    }
    with pytest.raises(kvtax.InputError, match=foreign[engine]):
        budget(engine, **{foreign[engine]: 4})


@pytest.mark.parametrize("rules", [plan_class(engine).RULES for engine in ENGINES])
def test_rules_have_a_source_and_come_in_order(rules: Any) -> None:
    last: dict[str, tuple[int, ...]] = {}
    for rule in rules:
        assert rule.source
        assert last.get(rule.name, (-1, 0)) < rule.since
        last[rule.name] = rule.since


@pytest.mark.parametrize("engine", POOLED)
def test_cards_of_other_makers_are_not_guessed(engine: str) -> None:
    found = budget(engine, gpu="mi300x")
    assert "no-engine-rule" in {notice.code for notice in found.notices}
    assert found.unallocated_bytes == 0
    assert budget("transformers", gpu="mi300x").verdict == "fits"


@pytest.mark.parametrize("engine", POOLED)
def test_an_engine_without_printed_starts_has_a_wide_interval(engine: str) -> None:
    found = budget(engine)
    low, high = found.interval["kv_pool_bytes"]
    assert high - low >= 0.14 * found.memory.total_bytes
    assert low < found.kv_pool_bytes < high


# ---- TensorRT-LLM ----


def test_the_share_is_of_what_is_free_not_of_the_card() -> None:
    found = budget("tensorrt-llm")
    memory = found.memory
    peak = memory.weights_bytes + memory.runtime_bytes + memory.activation_bytes + memory.cuda_graph_bytes
    assert found.kv_pool_bytes == int((memory.total_bytes - peak) * 0.9)


def test_the_smaller_of_cap_and_share_counts() -> None:
    share = budget("tensorrt-llm").kv_pool_bytes
    assert budget("tensorrt-llm", kv_cache_memory_bytes=share * 2).kv_pool_bytes == share
    capped = budget("tensorrt-llm", max_tokens=100_000)
    assert capped.kv_pool_bytes == 100_000 * 131_072
    assert capped.capacity_tokens == 100_000


def test_older_versions_round_blocks_up() -> None:
    """86,711 tokens of gpt-oss-120b were 2,710 blocks of 32 in a log of 2025-12."""
    found = budget("tensorrt-llm", "gpt-oss-120b", gpu="gb10", engine_version="1.1", max_tokens=86_711)
    assert found.pool.bytes_per_token == 73_728
    assert (found.pool.blocks, found.capacity_tokens) == (2710, 86_720)
    term = next(term for term in found.figures if term.name == "blocks")
    values = {name: entry.value for name, entry in term.inputs.items()}
    assert eval(term.formula, {"__builtins__": {}}, values) == 2710  # noqa: S307
    assert (
        budget("tensorrt-llm", "gpt-oss-120b", gpu="gb10", engine_version="1.2", max_tokens=86_711).pool.blocks == 2709
    )


def test_attention_dp_keeps_whole_heads_and_shares_the_experts() -> None:
    fields: dict[str, Any] = {"gpu": "h200-sxm", "tensor_parallel_size": 8}
    split = budget("tensorrt-llm", "qwen3-30b-a3b", **fields)
    whole = budget("tensorrt-llm", "qwen3-30b-a3b", enable_attention_dp=True, **fields)
    assert whole.pool.bytes_per_token == 4 * split.pool.bytes_per_token  # 4 heads, replicated twice, against one
    assert split.weights_bytes < whole.weights_bytes < 2 * split.weights_bytes


def test_states_are_kept_for_every_slot() -> None:
    small, large = (budget("tensorrt-llm", "lfm2-1.2b", max_batch_size=size) for size in (16, 512))
    fixed = [next(term for term in found.terms if term.name == "kv_pool.fixed") for found in (small, large)]
    assert fixed[0].bytes == 17 * small.state_bytes_per_request
    assert fixed[1].bytes == 513 * large.state_bytes_per_request
    assert small.max_concurrency == 16


def test_windows_that_are_asked_for_get_equal_pools() -> None:
    found = budget("tensorrt-llm", "gemma-3-27b", max_attention_window=[1024] * 5 + [131_072])
    split = found.answer.detail.own.split
    assert [group.layers for group in split.groups] == [52, 10]
    assert split.groups[0].window == 1024
    shares = found.answer.detail.own.shared_bytes
    assert abs(shares[0] - shares[1]) <= 1
    older = budget("tensorrt-llm", "gemma-3-27b", engine_version="1.2")
    assert older.pool.bytes_per_token == 507_904  # one pool, every layer keeps every token
    assert budget("tensorrt-llm", "gemma-3-27b").max_concurrency > older.max_concurrency


def test_a_drafting_layer_joins_the_pool_and_beams_have_blocks_of_their_own() -> None:
    plain, drafting = (
        budget("tensorrt-llm", "deepseek-v3", gpu="h200-sxm", tensor_parallel_size=8, speculative=given)
        for given in (None, "mtp:1")
    )
    assert drafting.pool.bytes_per_token * 61 == plain.pool.bytes_per_token * 62
    assert budget("tensorrt-llm", max_beam_width=4).pool.blocks_per_request == 4 * 256


def test_older_builds_hold_buffers_for_a_whole_batch() -> None:
    """Llama-2-7B on an A10 with 25 requests: 10,718 tokens were printed (NVIDIA/TensorRT-LLM#224), 10 % from what is said here."""
    found = budget(
        "tensorrt-llm",
        "llama-2-7b",
        gpu="a10",
        engine_version="0.5",
        max_batch_size=25,
        block_size=16,
        gpu_memory_utilization=0.95,
        max_model_len=4096,
        dtype="float16",
    )
    assert abs(found.capacity_tokens / 10_718 - 1) < 0.15


@given(
    st.lists(st.one_of(full, sliding, latent), min_size=1, max_size=12), st.integers(1, 50_000), st.integers(0, 10**12)
)
@settings(max_examples=100, deadline=None)
def test_pools_share_the_memory(caches: list[LayerCache], length: int, memory: int) -> None:
    for how, asked in (("single", ()), ("typical", ()), ("typical", (512, length))):
        groups = pool.groups(caches, "bfloat16", length, asked, how)
        assert sum(group.layers for group in groups) == len(caches)
        split = pool.split(groups, memory, 32, length, "equal" if asked else "typical", 1)
        assert split.allocated_bytes <= memory
        assert split.concurrency * split.request_bytes <= memory
        more = pool.split(groups, memory + 10**9, 32, length, "equal" if asked else "typical", 1)
        assert more.concurrency >= split.concurrency


def test_a_block_size_must_be_a_power_of_two() -> None:
    with pytest.raises(kvtax.InputError, match="power of two"):
        budget("tensorrt-llm", block_size=48)


def test_engines_built_ahead_capture_no_graphs() -> None:
    assert budget("tensorrt-llm").memory.cuda_graph_bytes > 0
    built = budget("tensorrt-llm", backend="tensorrt").memory
    assert (built.cuda_graph_bytes, built.load_extra_bytes) == (0, 0)
    assert budget("tensorrt-llm", engine_version="0.9").memory.cuda_graph_bytes == 0


def test_evicted_blocks_are_kept_in_ram_whole() -> None:
    found = budget("tensorrt-llm", host_cache_size=10 * GIB + 5)
    assert found.host.kv_bytes == 10 * GIB
    assert found.kv_pool_bytes == budget("tensorrt-llm").kv_pool_bytes


def test_encoder_decoders_are_not_profiled() -> None:
    memory = budget("tensorrt-llm", "whisper-large-v3", max_model_len=448, max_batch_size=8).memory
    free = memory.total_bytes - memory.weights_bytes - memory.runtime_bytes
    assert memory.kv_pool_bytes == int(free * 0.9)


def test_four_bit_keys_need_a_card_that_has_them() -> None:
    assert budget("tensorrt-llm", kv_cache_dtype="nvfp4").verdict == "refused"
    found = budget("tensorrt-llm", gpu="b200", kv_cache_dtype="nvfp4")
    assert found.pool.bytes_per_token == 131_072 // 4 + 131_072 // 32


# ---- TGI and LMDeploy ----


def test_tgi_takes_nine_tenths_of_the_card() -> None:
    memory = budget("tgi").memory
    assert memory.limit_bytes == int(memory.total_bytes * 0.9)
    left = memory.limit_bytes - memory.weights_bytes - memory.activation_bytes - memory.outside_bytes
    assert memory.kv_pool_bytes == left


def test_tgi_chooses_its_kernels() -> None:
    assert budget("tgi").pool.block_size == 1
    assert budget("tgi", gpu="t4", dtype="float16").pool.block_size == 16
    assert tgi_rules.default_block_size("flashdecoding") == 256


def test_lmdeploy_formats() -> None:
    sizes = [budget("lmdeploy", quant_policy=policy).pool.bytes_per_token for policy in (0, 8, 4, 16)]
    assert sizes == [131_072, 32 * 8 * (256 + 8), 32 * 8 * (128 + 8), 65_536]
    with pytest.raises(kvtax.InputError, match="quant_policy"):
        budget("lmdeploy", quant_policy=5)


def test_lmdeploy_engines_differ_by_what_a_step_keeps() -> None:
    pytorch, turbomind = (budget("lmdeploy", backend=name) for name in ("pytorch", "turbomind"))
    kept = (8192 + 2 * 1024) * 128_256 * 2
    assert abs(turbomind.kv_pool_bytes - pytorch.kv_pool_bytes - kept * 0.8) < 2
    assert budget("lmdeploy", num_gpu_blocks_override=100, backend="pytorch").pool.blocks == 100


@given(st.integers(0, 2**36), st.integers(1, 2**24), st.integers(1, 2**17))
@settings(max_examples=100, deadline=None)
def test_lmdeploy_halves_its_step_until_blocks_fit(free: int, block: int, vocab: int) -> None:
    kept, prefill = lmdeploy_rules.runtime_bytes(free, 0.8, block, 8192, 128, vocab)
    assert prefill == 0 or int((free - kept) * 0.8) // block >= lmdeploy_rules.LEAST_BLOCKS


@pytest.mark.parametrize(("engine", "model"), [("tgi", "lfm2-1.2b"), ("lmdeploy", "whisper-large-v3")])
def test_caches_that_are_not_known_are_not_guessed(engine: str, model: str) -> None:
    with pytest.raises(kvtax.NotKnownError, match="not known"):
        budget(engine, model)


# ---- transformers ----


@pytest.mark.parametrize("model", ["llama-3-8b", "gemma-3-27b", "lfm2-1.2b"])
@pytest.mark.parametrize("cache", ["dynamic", "static", "quantized", "offloaded"])
def test_the_largest_batch_is_the_largest(model: str, cache: str) -> None:
    found = budget("transformers", model, gpu="b200", cache_implementation=cache)
    most = int(found.max_concurrency)
    assert most >= 1
    fits = budget("transformers", model, gpu="b200", cache_implementation=cache, concurrency=most)
    assert fits.verdict == "fits"
    assert fits.unallocated_bytes >= 0
    more = budget("transformers", model, gpu="b200", cache_implementation=cache, concurrency=most + 1)
    assert more.verdict == "over_budget"
    assert more.unallocated_bytes < 0


@given(st.integers(1, 64), st.integers(1, 20_000))
@settings(max_examples=40, deadline=None)
def test_more_requests_or_tokens_never_take_less(requests: int, tokens: int) -> None:
    def taken(**fields: Any) -> int:
        memory = budget("transformers", **{"concurrency": requests, "max_model_len": tokens, **fields}).memory
        return memory.kv_pool_bytes + memory.activation_bytes

    assert taken() <= taken(concurrency=requests + 1)
    assert taken() <= taken(max_model_len=tokens + 7)
    assert taken() <= taken(num_beams=2)
    assert taken(attn_implementation="flash_attention_2") <= taken() <= taken(attn_implementation="eager")
    assert taken(max_num_batched_tokens=512) <= taken()


def test_growing_copies_the_keys_of_a_layer() -> None:
    caches = [FullAttention(8, 128, 128)] * 4 + [SlidingWindow(8, 128, 128, 1024)] * 4
    form = kept.Format("bfloat16")
    assert kept.growth_bytes(caches, 8192, form) == 8192 * 8 * 128 * 2
    assert kept.growth_bytes(caches, 8192, form._replace(implementation="static")) == 0
    assert kept.growth_bytes(caches, 512, form) == 512 * 8 * 256 * 2  # a window joins keys and values before it lets go


def test_quantised_rows_hold_scales_and_the_newest_tokens_whole() -> None:
    form = kept.Format("bfloat16", "quantized", 4)
    cache = FullAttention(8, 128, 128)
    old = (1128 - 128) * 2048
    assert kept.layer_bytes(cache, 1128, form) == 128 * 2048 * 2 + old // 2 + old // 64 * 4
    assert kept.layer_bytes(cache, 100, form) == 100 * 2048 * 2


def test_offloaded_layers_are_in_ram() -> None:
    found = budget("transformers", cache_implementation="offloaded", concurrency=2)
    layer = 8192 * 4096
    assert found.kv_pool_bytes == 2 * 2 * layer
    assert found.host.kv_bytes == 2 * 30 * layer


def test_latents_were_expanded_by_older_versions() -> None:
    fields: dict[str, Any] = {"gpu": "h200-sxm", "tensor_parallel_size": 8}
    new, old = (budget("transformers", "deepseek-v3", engine_version=text, **fields) for text in ("5.24", "5.2"))
    assert new.kv_pool_bytes == 8192 * 61 * 576 * 2
    assert old.kv_pool_bytes == 8192 * 61 * (128 * (128 + 64 + 128) // 8) * 2


def test_version_four_loads_in_float32() -> None:
    old, new = (budget("transformers", engine_version=text) for text in ("4.57", "5.24"))
    assert old.weights_bytes == 2 * new.weights_bytes
    assert "loads-float32" in {notice.code for notice in old.notices}


def test_cards_share_the_layers() -> None:
    found = budget("transformers", "llama-3.1-70b", gpu_count=4)
    assert [rank.layers for rank in found.ranks] == [20, 20, 20, 20]
    assert found.verdict == "fits"


def test_states_have_all_columns_of_the_kernel() -> None:
    cache = Recurrent("short_conv", (State("conv", (2048, 2)),))
    assert kept.recurrent_bytes(cache, "bfloat16") == 2048 * 3 * 2
    assert budget("transformers", "lfm2-1.2b").state_bytes_per_request == 10 * 2048 * 3 * 2
