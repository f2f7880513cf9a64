"""The profile run beside what real servers printed of its parts, and the rules that changed by version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvtax
from kvtax.budgets import Budget
from kvtax.deployment import make_deployment
from kvtax.engines.answer import Question
from kvtax.engines.vllm import memory, rules
from kvtax.engines.vllm.plan import VllmPlan
from kvtax.engines.vllm.profile_run import Step, activation, bytes_per_logit, forward_part, sampler_part
from kvtax.sources.gpus import find_gpu
from kvtax.sources.resolve import find

GIB, MIB = 2**30, 2**20
# activation that starts printed [GiB]: vLLM issues, PRs and logs in public repositories (tests/data/evidence/starts.jsonl)
PRINTED = [
    ("Qwen/Qwen3-30B-A3B", "h100-sxm", "0.10.2", {"max_model_len": 6144}, 5.58),
    ("Qwen/Qwen3-4B", "h100-sxm", "0.10.2", {"max_model_len": 40960}, 5.59),
    ("meta-llama/Llama-3.1-8B-Instruct", "h100-sxm", "0.11", {"max_model_len": 8192}, 4.76),
    ("openai/gpt-oss-120b", "h100-sxm", "0.11", {"max_model_len": 8192}, 7.38),
    ("Qwen/Qwen3-8B", "rtx-4090", "0.10.2", {"max_model_len": 1024}, 1.40),
    ("llava-hf/llava-1.5-7b-hf", "rtx-4080", "0.10.2", {"max_model_len": 4096}, 0.34),
    ("Qwen/Qwen2.5-3B", "rtx-4090", "0.10.2", {"max_model_len": 4096, "max_num_seqs": 1}, 0.17),
    ("Qwen/Qwen2.5-1.5B", "l4", "0.7", {"max_model_len": 4096}, 1.40),
    ("meta-llama/Meta-Llama-3-8B", "h100-sxm", "0.6", {"max_model_len": 8192}, 1.26),
    ("meta-llama/Llama-3.1-8B-Instruct", "l40s", "0.6", {"max_model_len": 20_000}, 2.07),
    ("meta-llama/Llama-3.1-8B-Instruct", "l40s", "0.6", {"max_model_len": 29_000}, 2.99),
]
# limit - weights - pool that starts printed [GiB]: everything that is subtracted
SUBTRACTED = [
    ("Qwen/Qwen3-30B-A3B", "h100-sxm", "0.12", {"tensor_parallel_size": 2, "max_num_seqs": 64}, 1.12),
    (
        "Qwen/Qwen3-VL-30B-A3B-Instruct",
        "h100-sxm",
        "0.12",
        {"tensor_parallel_size": 2, "max_num_seqs": 64, "max_model_len": 65536},
        3.80,
    ),
    (
        "Qwen/Qwen3-VL-30B-A3B-Instruct",
        "h100-sxm",
        "0.12",
        {"tensor_parallel_size": 2, "max_num_seqs": 256, "max_model_len": 65536},
        4.72,
    ),
    ("Qwen/Qwen3-Embedding-8B", "h100-sxm", "0.12", {"max_model_len": 8192, "runner": "pooling"}, 0.92),
    (
        "meta-llama/Meta-Llama-3-8B-Instruct",
        "a800-80gb",
        "0.13",
        {"tensor_parallel_size": 4, "max_model_len": 8192},
        5.14,
    ),
    ("meta-llama/Llama-3.1-8B-Instruct", "a100-80gb-sxm", "0.17.1", {"max_model_len": 32768}, 0.55),
    ("Qwen/Qwen2.5-3B", "a100-80gb-sxm", "0.17.1", {"max_model_len": 32768}, 0.63),
    (
        "zai-org/GLM-5.1",
        "h200",
        "0.19.1",
        {"tensor_parallel_size": 8, "quantization": "fp8-block", "enforce_eager": True},
        4.38,
    ),
    (
        "Qwen/Qwen3-30B-A3B",
        "h100-sxm",
        "0.22.1",
        {"max_num_seqs": 64, "max_num_batched_tokens": 8192, "max_model_len": 8192},
        1.23,
    ),
]


def budget(model: str, gpu: str, version: str, flags: dict[str, Any]) -> Budget:
    return kvtax.budget(model=model, gpu=gpu, engine_version=version, **flags)


@pytest.mark.parametrize(("model", "gpu", "version", "flags", "printed"), PRINTED)
def test_activation_is_what_was_printed(
    model: str, gpu: str, version: str, flags: dict[str, Any], printed: float
) -> None:
    found = budget(model, gpu, version, flags).memory.activation_bytes / GIB
    assert abs(found - printed) <= max(0.03, 0.02 * printed)


@pytest.mark.parametrize(("model", "gpu", "version", "flags", "printed"), SUBTRACTED)
def test_all_that_is_subtracted_is_what_was_printed(
    model: str, gpu: str, version: str, flags: dict[str, Any], printed: float
) -> None:
    taken = budget(model, gpu, version, flags).memory
    found = (taken.limit_bytes - taken.weights_bytes - taken.load_extra_bytes - taken.kv_pool_bytes) / GIB
    assert abs(found - printed) <= max(0.25, 0.04 * printed)


def step(
    version: tuple[int, int], *, seqs: int = 256, tokens: int = 2048, model: str = "Qwen/Qwen3-8B", **more: Any
) -> Step:
    prepared = kvtax.budget(model=model, gpu="l4").prepared
    return Step(prepared.architecture, prepared.gpu, version, 1, tokens, seqs, 2, **more)


@pytest.mark.parametrize(
    ("version", "rows", "expected"),
    [
        ((0, 16), 1024, 38),
        ((0, 16), 128, 38),
        ((0, 16), 127, 50),
        ((0, 16), 2, 50),
        ((0, 16), 1, 28),
        ((0, 17), 256, 14),
        ((0, 17), 7, 50),
        ((0, 22), 256, 6),
        ((0, 26), 256, 2),
        ((0, 33), 256, 6),
    ],
)
def test_bytes_per_logit(version: tuple[int, int], rows: int, expected: int) -> None:
    assert bytes_per_logit(step(version, seqs=rows)) == expected


@pytest.mark.parametrize(
    ("model", "version", "expected"),
    [
        ("Qwen/Qwen3-8B", (0, 19), False),
        ("Qwen/Qwen3-8B", (0, 22), True),
        ("Qwen/Qwen3-30B-A3B", (0, 22), False),
        ("Qwen/Qwen3-30B-A3B", (0, 28), False),
        ("Qwen/Qwen3-30B-A3B", (0, 30), True),
        ("openai/gpt-oss-20b", (0, 26), False),
    ],
)
def test_runner_by_version(model: str, version: tuple[int, int], expected: bool) -> None:
    assert rules.v2_runner(kvtax.architecture(model), version) is expected


def test_a_pooling_model_has_no_sampler() -> None:
    assert sampler_part(step((0, 12), pooling=True)) is None
    assert activation(step((0, 12), pooling=True)).name == "forward"


def test_a_name_that_says_embedding_is_taken_as_pooling_and_said_so() -> None:
    card = find_gpu("h100-sxm")
    architecture = find("Qwen/Qwen3-8B").architecture
    deployment = make_deployment({"model": "acme/Some-Embedding-8B"})
    plain = Question(deployment, architecture, card, card.total_bytes, "catalogue")
    assert "taken-as-pooling" in {notice.code for notice in VllmPlan(plain).notices}
    generate = kvtax.budget(model="Qwen/Qwen3-Embedding-8B", gpu="h100-sxm", runner="generate", engine_version="0.12")
    assert generate.memory.activation_bytes > 5 * GIB


def test_states_stand_apart_from_the_pool_before_0_11() -> None:
    """256 states of Nemotron-Nano-9B-v2 in float32 were 33.75 GiB, and the start failed (vllm-project/vllm#23230)."""
    flags = {"model": "nvidia/NVIDIA-Nemotron-Nano-9B-v2", "gpu": "l40s", "mamba_ssm_cache_dtype": "float32"}
    early, late = (kvtax.budget(**flags, engine_version=version) for version in ("0.10.1", "0.11"))
    assert early.verdict == "out_of_memory"
    assert early.memory.activation_bytes - late.memory.activation_bytes == pytest.approx(33.75 * GIB, rel=0.03)


def test_an_image_for_each_request_of_a_cross_attention_model() -> None:
    """36.6 GiB for 128 requests; 256 do not fit a card of 94 GiB (vllm-project/vllm#9630)."""
    flags = {
        "model": "meta-llama/Llama-3.2-11B-Vision-Instruct",
        "engine_version": "0.6",
        "vram": "94.5GiB",
        "gpu": "h100-sxm",
    }
    assert kvtax.budget(**flags, max_num_seqs=128).memory.activation_bytes == pytest.approx(36.6 * GIB, rel=0.05)
    assert kvtax.budget(**flags).verdict == "out_of_memory"


@pytest.mark.parametrize(
    ("tp", "length", "expected"),
    [(1, 163_840, 65_536 * 4096 * 2), (8, 163_840, 65_536 * 512 * 2), (1, 1024, 65_536 // 4 * 4096 * 2)],
)
def test_context_of_latent_attention(tp: int, length: int, expected: int) -> None:
    """8 requests of max_model_len, 4 blocks of every request, at most 65,536 tokens, of 16 heads of 128 + 128."""
    prepared = kvtax.budget(model="deepseek-ai/DeepSeek-V2-Lite", gpu="h100-sxm").prepared
    found = Step(prepared.architecture, prepared.gpu, (0, 12), tp, 8192, 256, 2, max_model_len=length)
    assert forward_part(found).inputs["context_bytes"].value == expected
    assert forward_part(found._replace(version=(0, 10))).inputs["context_bytes"].value == 0


@pytest.mark.parametrize(("version", "expected"), [((0, 16), 0), ((0, 19), 512 * MIB)])
def test_index_logits_of_sparse_attention(version: tuple[int, int], expected: int) -> None:
    prepared = kvtax.budget(model="zai-org/GLM-5.1", gpu="h200", tensor_parallel_size=8).prepared
    found = Step(prepared.architecture, prepared.gpu, version, 8, 8192, 256, 2, max_model_len=8192)
    assert forward_part(found).inputs["context_bytes"].value == expected


def test_a_step_of_deepseek_v4_grows_by_two_thirds_of_a_mebibyte_a_token() -> None:
    """5.30 GiB for 8,224 tokens and 1.39 for 2,048 (GB10, one request at once)."""
    sizes = [
        kvtax.budget(
            model="deepseek-ai/DeepSeek-V4-Flash",
            gpu="gb10",
            engine_version="0.27",
            max_num_seqs=1,
            max_num_batched_tokens=tokens,
        ).memory.activation_bytes
        / GIB
        for tokens in (8224, 2048)
    ]
    assert sizes == [pytest.approx(5.30, abs=0.1), pytest.approx(1.39, abs=0.1)]


@given(st.sampled_from([(0, 8), (0, 12), (0, 17), (0, 22), (0, 33)]), st.integers(1, 2048), st.integers(1, 20_000))
@settings(max_examples=60, deadline=None)
def test_parts_evaluate_to_their_bytes(version: tuple[int, int], seqs: int, tokens: int) -> None:
    for model in ("Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B"):
        part = activation(step(version, seqs=seqs, tokens=tokens, model=model))
        values = {name: given.value for name, given in part.inputs.items()}
        assert eval(part.formula, {"__builtins__": {}}, values) == part.bytes  # noqa: S307


@given(st.integers(1, 4096), st.integers(1, 30_000), st.integers(1, 30_000))
@settings(max_examples=40, deadline=None)
def test_a_larger_step_takes_no_less(seqs: int, tokens: int, more: int) -> None:
    for version in ((0, 17), (0, 33)):
        smaller, larger = (activation(step(version, seqs=seqs, tokens=size)).bytes for size in (tokens, tokens + more))
        assert smaller <= larger


@pytest.mark.parametrize(("seqs", "printed"), [(16, 0.15), (64, 0.14), (256, 0.79), (256, 0.93)])
def test_graphs_as_estimated(seqs: int, printed: float) -> None:
    """Estimates that starts of 0.19 to 0.26 printed."""
    assert memory.graph_part(48, seqs, "9.0", estimated=True).bytes / GIB == pytest.approx(printed, abs=0.12)


@given(st.integers(1, 2048), st.integers(1, 200), st.booleans())
def test_graph_parts_evaluate_to_their_bytes(seqs: int, layers: int, estimated: bool) -> None:
    part = memory.graph_part(layers, seqs, "9.0", estimated=estimated)
    values = {name: given.value for name, given in part.inputs.items()}
    assert eval(part.formula, {"__builtins__": {}}, values) == part.bytes  # noqa: S307
