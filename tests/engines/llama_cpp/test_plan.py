"""llama.cpp, Ollama and LM Studio as people ask for them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvtax
from kvtax.budget_result import Budget
from kvtax.engines.llama_cpp import rules

MIB = 2**20


def budget(model: str = "llama-3.1-8b", **fields: Any) -> Budget:
    given = {"gpu": "rtx-4090", "engine": "llama.cpp", "quantization": "q4_k_m", "max_model_len": 8192, **fields}
    return kvtax.budget(model=model, **given)


def test_it_adds_up_and_says_what_llama_cpp_prints() -> None:
    found = budget()
    memory = found.memory
    parts = memory.weights_bytes + memory.activation_bytes + memory.kv_pool_bytes + memory.runtime_bytes
    assert parts + memory.unallocated_bytes == memory.total_bytes
    assert memory.kv_pool_bytes == 1024 * MIB
    assert found.verdict == "fits"
    assert "llama_context: n_ctx         = 8192" in found.prints
    assert found.prepared.plan.label == "llama.cpp b11434"


def test_a_real_start_of_qwen3_4b_is_met() -> None:
    """Logged on one CUDA card: model 2375.91 MiB and 304.28 in RAM, KV 1152.00, compute 85.01 and 28.02 MiB."""
    found = budget("Qwen/Qwen3-4B", concurrency=1)
    assert found.memory.kv_pool_bytes == 1152 * MIB
    assert abs(found.memory.weights_bytes / MIB - 2375.91) < 0.2
    assert abs(found.host.weights_bytes / MIB - 304.28) < 0.01
    assert abs(found.memory.activation_bytes / MIB - 85.01) < 0.02
    output = 4 * 4 * 151936 / MIB
    assert abs(found.host.compute_bytes / MIB - output - 28.02) < 0.02


def test_four_slots_share_one_cache_unless_more_are_asked_for() -> None:
    one, four, nine = budget(), budget(concurrency=4), budget(concurrency=9)
    assert (one.max_concurrency, four.max_concurrency, nine.max_concurrency) == (1, 4, 9)
    assert four.memory.kv_pool_bytes == 4 * one.memory.kv_pool_bytes
    assert nine.memory.kv_pool_bytes == 9 * one.memory.kv_pool_bytes
    assert nine.answer.detail.context.streams == 9
    assert four.answer.detail.context.streams == 1


def test_a_context_that_is_given_is_divided_among_slots() -> None:
    found = budget(n_ctx=10_000, n_parallel=3, max_model_len=3000)
    assert found.answer.detail.context.n_ctx_effective == 10_752
    assert found.max_concurrency == 3
    short = budget(n_ctx=10_000, n_parallel=3, max_model_len=4000)
    assert short.verdict == "kv_too_small"
    assert short.max_concurrency == 0


def test_more_than_the_slots_is_over_budget() -> None:
    assert budget(n_parallel=2, concurrency=3).verdict == "over_budget"
    assert budget(n_ctx=8192, concurrency=2).verdict == "over_budget"


def test_cache_types() -> None:
    whole = budget(max_model_len=8192).memory.kv_pool_bytes
    assert budget(cache_type_k="q8_0", cache_type_v="q8_0").memory.kv_pool_bytes == whole * 34 // 64
    assert budget(kv_cache_dtype="q4_0").memory.kv_pool_bytes == whole * 18 // 64
    assert budget(cache_type_k="q8_0").memory.kv_pool_bytes == whole * (34 + 64) // 128
    copy = budget(kv_cache_dtype="q8_0").memory.activation_bytes - budget().memory.activation_bytes
    assert copy == 2 * 8192 * 2048 + 81_920  # one layer in float16, and the rotations


def test_values_in_blocks_need_flash_attention() -> None:
    found = budget(cache_type_v="q8_0", flash_attn="off")
    assert found.verdict == "refused"
    assert "flash_attn" in found.notices[0].message
    assert budget(cache_type_k="q8_0", flash_attn="off").verdict == "fits"


def test_a_card_without_a_backend_is_refused() -> None:
    assert budget(gpu="tpu-v5e").verdict == "refused"


def test_a_latent_has_one_type() -> None:
    found = budget("deepseek-ai/DeepSeek-V2-Lite", cache_type_k="q8_0")
    assert found.verdict == "refused"


def test_layers_in_ram() -> None:
    whole, half, none = budget(), budget(n_gpu_layers="17"), budget(n_gpu_layers="0")
    assert none.memory.weights_bytes == none.memory.kv_pool_bytes == 0
    assert none.host.kv_bytes == whole.memory.kv_pool_bytes
    # 16 blocks and the output
    assert half.memory.kv_pool_bytes == whole.memory.kv_pool_bytes // 2 == half.host.kv_bytes
    assert none.memory.weights_bytes < half.memory.weights_bytes < whole.memory.weights_bytes
    assert budget(kv_offload=False).memory.kv_pool_bytes == 0
    assert budget(n_gpu_layers="all").memory == whole.memory == budget(n_gpu_layers="33").memory


def test_experts_in_ram() -> None:
    model = "Qwen/Qwen3-30B-A3B"
    whole, spared, none = budget(model), budget(model, n_cpu_moe=24), budget(model, cpu_moe=True)
    assert none.memory.weights_bytes < spared.memory.weights_bytes < whole.memory.weights_bytes
    assert none.memory.kv_pool_bytes == whole.memory.kv_pool_bytes
    assert whole.memory.weights_bytes - none.memory.weights_bytes > 16 * 2**30
    assert budget(n_cpu_moe=4).memory == budget().memory  # nothing to keep in a dense model


def test_cards_of_different_size_share_by_what_is_free() -> None:
    found = budget("llama-3.1-70b", gpu="rtx-4090+rtx-3090+rtx-3060-12gb", max_model_len=2048)
    assert len(found.ranks) == 3
    layers = [rank.layers for rank in found.ranks]
    assert sum(layers) == 80
    assert layers[0] == pytest.approx(layers[1], abs=2)
    assert layers[2] < layers[1] * 0.6
    assert found.memory == min((rank.memory for rank in found.ranks), key=lambda memory: memory.unallocated_bytes)
    split = budget("llama-3.1-70b", gpu="rtx-4090+rtx-3090", tensor_split=[3, 1], max_model_len=2048)
    assert [rank.layers for rank in split.ranks] == [61, 19]
    even = budget(
        "llama-3.1-70b", gpu="rtx-4090+rtx-3090", split_mode="tensor", tensor_split=[1, 1], max_model_len=2048
    )
    assert even.ranks[0].memory.weights_bytes == even.ranks[1].memory.weights_bytes
    alone = budget("llama-3.1-8b", gpu="rtx-4090+rtx-3090", split_mode="none")
    assert alone.memory == budget("llama-3.1-8b").memory


def test_what_does_not_fit_is_fitted_only_where_asked() -> None:
    plain = budget("llama-3.1-70b")
    assert plain.verdict == "out_of_memory"
    fitted = budget("llama-3.1-70b", fit=True)
    assert fitted.verdict == "fits"
    assert fitted.unallocated_bytes >= 1024 * MIB
    assert fitted.host.weights_bytes > 10 * 2**30
    assert fitted.notices[0].code == "fitted"
    assert budget("llama-3.1-70b", n_gpu_layers="auto").memory == fitted.memory
    experts = budget("Qwen/Qwen3-235B-A22B", fit=True)
    assert experts.answer.detail.machine.n_gpu_layers == 95
    assert 0 < experts.answer.detail.machine.experts_in_ram <= 94
    assert budget(fit=True).memory == budget().memory
    before = budget("llama-3.1-70b", fit=True, engine_version="b6000")
    assert before.verdict == "out_of_memory"
    assert "no-fit" in {notice.code for notice in before.notices}


def test_fit_lowers_a_context_that_is_not_given() -> None:
    whole = kvtax.budget(model="llama-3.1-8b", gpu="rtx-3060-12gb", engine="llama.cpp", quantization="q4_k_m")
    fitted = kvtax.budget(
        model="llama-3.1-8b", gpu="rtx-3060-12gb", engine="llama.cpp", quantization="q4_k_m", fit=True
    )
    assert whole.max_model_len == 131_072
    assert whole.verdict == "out_of_memory"
    assert 4096 <= fitted.max_model_len < 131_072
    assert fitted.max_model_len % 256 == 0
    assert fitted.verdict == "fits"
    assert fitted.answer.detail.machine.n_gpu_layers == 33


def test_windows_states_and_latents_are_kept_as_llama_cpp_keeps_them() -> None:
    gemma = budget("google/gemma-3-27b-it", max_model_len=32_768, n_parallel=1)
    full = budget("google/gemma-3-27b-it", max_model_len=32_768, n_parallel=1, swa_full=True)
    # 10 of 62 layers are full; the others have 1024 + 512 cells
    assert gemma.memory.kv_pool_bytes == 2 * 2 * 2048 * (10 * 32_768 + 52 * 1536)
    assert full.memory.kv_pool_bytes == 2 * 2 * 2048 * 62 * 32_768
    hybrid = budget("Qwen/Qwen3.5-27B", n_parallel=1, n_rs_seq=2)
    plain = budget("Qwen/Qwen3.5-27B", n_parallel=1)
    assert f"{plain.state_bytes_per_request / MIB:.2f}" == "149.62"
    assert hybrid.memory.kv_pool_bytes - plain.memory.kv_pool_bytes == 2 * plain.state_bytes_per_request
    assert plain.early_bytes_per_token == plain.live_bytes_per_token == 16 * 2 * 1024 * 2
    latent = budget("deepseek-ai/DeepSeek-V2-Lite", n_parallel=1)
    assert latent.memory.kv_pool_bytes == 27 * 8192 * 576 * 2
    mistral = budget("mistralai/Mistral-7B-v0.1", max_model_len=32_768, n_parallel=1)
    assert mistral.memory.kv_pool_bytes == 32 * 32_768 * 2048 * 2  # its window is not looked at


def test_released_experts_stay_mxfp4_whatever_the_preset() -> None:
    sizes = [
        budget("openai/gpt-oss-20b", quantization=preset).memory.weights_bytes for preset in ("q4_k_m", "q8_0", None)
    ]
    assert sizes[0] < sizes[1] < sizes[2] < 1.2 * sizes[0]


def test_builds() -> None:
    newest, old = budget(), budget(engine_version="b7342")
    assert old.prepared.plan.label == "llama.cpp b7342"
    assert old.memory.activation_bytes > newest.memory.activation_bytes  # logits of every token
    assert budget(engine_version="b6000").answer.detail.context.cells_padding == 32
    assert budget(engine_version="nightly").memory == newest.memory
    latent = budget("deepseek-ai/DeepSeek-V2-Lite", n_parallel=1, engine_version="b6000")
    assert latent.memory.kv_pool_bytes == 27 * 8192 * (576 + 512) * 2
    coder = budget(
        "Qwen/Qwen3-30B-A3B", engine_version="b7342", max_model_len=65_536, n_parallel=4, kv_unified=True, gpu="a100-80"
    )
    assert abs(coder.memory.activation_bytes / MIB - 300.75) < 0.01  # as logged


def test_every_rule_has_a_source_and_comes_in_order() -> None:
    last: dict[str, tuple[int, ...]] = {}
    for rule in rules.RULES:
        assert rule.source
        assert last.get(rule.name, (-1,)) < rule.since
        last[rule.name] = rule.since


def test_ollama_goes_by_the_memory_of_the_cards() -> None:
    def ask(**fields: Any) -> Budget:
        return kvtax.budget(**{"model": "llama-3.1-8b", "engine": "ollama", "quantization": "q4_k_m", **fields})

    assert ask(gpu="rtx-4090").max_model_len == 32_768
    assert ask(gpu="rtx-3060-12gb").max_model_len == 4096
    assert ask(gpu="h100-sxm").max_model_len == 131_072
    assert ask(gpu="rtx-4090").max_num_batched_tokens == 1024
    assert ask(gpu="rtx-3060-12gb").max_num_batched_tokens == 512
    assert ask(gpu="rtx-4090", num_ctx=8192).max_model_len == 8192
    two = ask(gpu="rtx-4090", num_ctx=8192, n_parallel=2)
    assert two.memory.kv_pool_bytes == 2 * 1024 * MIB
    assert two.max_concurrency == 2
    assert ask(model="Qwen/Qwen3.5-9B", gpu="rtx-4090", n_parallel=4).max_num_seqs == 1
    with pytest.raises(kvtax.KvtaxError):
        ask(gpu="rtx-4090", num_ctx=8192, n_ctx=8192)


def test_lm_studio_has_4096_tokens_and_says_how_little_is_known() -> None:
    found = kvtax.budget(model="openai/gpt-oss-120b", gpu="h100-sxm", engine="lm-studio")
    assert found.max_model_len == 4096
    assert found.memory.kv_pool_bytes == 288 * MIB  # as logged
    assert "defaults-uncertain" in {notice.code for notice in found.notices}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("quantization", "fp8"), ("cache_type_k", "q3_k"), ("flash_attn", "maybe"), ("n_gpu_layers", "many"), ("split_mode", "half"),
        ("tensor_split", [0, 0]), ("tensor_split", [1, 1]), ("tensor_parallel_size", 2), ("num_ctx", 4096),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_clear_error(field: str, value: Any) -> None:
    with pytest.raises(kvtax.KvtaxError):
        budget(**{field: value})


def test_a_model_that_llama_cpp_does_not_run_is_not_guessed() -> None:
    with pytest.raises(kvtax.KvtaxError) as caught:
        budget("openai/whisper-large-v3")
    assert "llama.cpp" in caught.value.message


MODELS = (
    "llama-3.1-8b", "google/gemma-3-4b-it", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3.5-9B", "deepseek-ai/DeepSeek-V2-Lite", "openai/gpt-oss-20b",
    "state-spaces/mamba-2.8b-hf", "tiiuae/Falcon-H1-0.5B-Instruct",
)  # fmt: skip


@given(
    st.sampled_from(MODELS),
    st.integers(1, 60_000),
    st.one_of(st.none(), st.integers(1, 12)),
    st.sampled_from(["rtx-4090", "rtx-4090+rtx-3060-12gb", "h100-sxm"]),
    st.sampled_from(
        [
            {},
            {"n_gpu_layers": "9"},
            {"cpu_moe": True},
            {"kv_offload": False},
            {"flash_attn": "off"},
            {"split_mode": "tensor"},
        ]
    ),
)
@settings(max_examples=60, deadline=None)
def test_printed_formulas_give_their_values_and_parts_add_up(
    model: str, length: int, concurrency: int | None, gpu: str, more: dict[str, Any]
) -> None:
    found = budget(model, max_model_len=length, concurrency=concurrency, gpu=gpu, **more)
    for term in (*found.terms, *found.figures):
        values = {name: entry.value for name, entry in term.inputs.items()}
        assert eval(term.formula, {"__builtins__": {}}, values) == term.bytes, term  # noqa: S307
        assert term.source
    part = found.to_dict()["per_gpu"]
    total = sum(
        part[f"{name}_bytes"] for name in ("weights", "activation", "cuda_graph", "runtime", "kv_pool", "unallocated")
    )
    assert total == part["total_bytes"]
    assert found.kv_bytes_per_request * found.max_concurrency <= max(found.memory.kv_pool_bytes, 0)
    assert found.live_bytes_per_request >= found.state_bytes_per_request
    if found.concurrency and found.verdict == "fits":
        assert found.max_concurrency >= found.concurrency


@given(st.sampled_from(MODELS), st.integers(1, 30_000), st.integers(0, 3000))
@settings(max_examples=30, deadline=None)
def test_longer_requests_never_take_less(model: str, length: int, more: int) -> None:
    one, other = budget(model, max_model_len=length), budget(model, max_model_len=length + more)
    assert one.memory.kv_pool_bytes <= other.memory.kv_pool_bytes
    assert one.memory.activation_bytes <= other.memory.activation_bytes
    assert one.live_bytes_per_request <= other.live_bytes_per_request
