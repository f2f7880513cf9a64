"""What the profile run feeds a vision tower, by kind of tower and by version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvtax
from kvtax.deployment import make_deployment
from kvtax.engines.vllm.encoder import EncoderRun, encoder_run, vision_tower
from kvtax.engines.vllm.profile_run import Step, encoder_part, kept_part

GIB = 2**30


def run(
    model: str, version: tuple[int, int], *, tokens: int = 8192, seqs: int = 256, length: int = 32768, **flags: Any
) -> EncoderRun | None:
    deployment = make_deployment({"model": model, "gpu": "h100-sxm", **flags})
    return encoder_run(kvtax.architecture(model), deployment, version, tokens, seqs, length)


@pytest.mark.parametrize(
    ("model", "version", "length", "items", "patches", "embeddings", "padded"),
    [
        # one video of 12,288 tokens, counted as 12.5 times as many, then the largest image
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", (0, 12), 65_536, 1, 49_152, 12_288, 153_600),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", (0, 14), 65_536, 1, 65_536, 16_384, 0),
        # pairs of frames as large as an image, as many as a request may have, at most seven (eight up to 0.10)
        ("Qwen/Qwen2.5-VL-7B-Instruct", (0, 12), 8192, 1, 65_536, 16_384, 0),
        ("Qwen/Qwen2.5-VL-7B-Instruct", (0, 12), 128_000, 1, 7 * 65_536, 7 * 16_384, 0),
        ("Qwen/Qwen2.5-VL-7B-Instruct", (0, 10), 200_000, 1, 8 * 65_536, 8 * 16_384, 0),
        # images of one size: as many as fit the step
        ("google/gemma-3-12b-it", (0, 12), 8192, 32, 32 * 4096, 8192, 0),
        ("llava-hf/llava-1.5-7b-hf", (0, 12), 4096, 14, 14 * 577, 14 * 577, 0),
        # 110 x 110 patches, four to a token, a line end for each row
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", (0, 12), 8192, 2, 2 * 12_100, 2 * 55 * 56, 0),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", (0, 12), 8192, 3, 3 * 17 * 577, 3 * 17 * 144, 0),
    ],
)
def test_batch_by_kind_of_tower(
    model: str, version: tuple[int, int], length: int, items: int, patches: int, embeddings: int, padded: int
) -> None:
    found = run(model, version, length=length)
    assert found is not None
    assert (found.items, found.patches, found.tokens, found.padded_tokens) == (items, patches, embeddings, padded)


@pytest.mark.parametrize(
    "flags",
    [{"language_model_only": True}, {"skip_mm_profiling": True}, {"limit_mm_per_prompt": {"image": 0, "video": 0}}],
)
def test_towers_that_are_not_profiled(flags: dict[str, Any]) -> None:
    assert run("Qwen/Qwen3-VL-30B-A3B-Instruct", (0, 12), **flags) is None


def test_without_videos_the_largest_image_counts() -> None:
    found = run("Qwen/Qwen3-VL-30B-A3B-Instruct", (0, 12), limit_mm_per_prompt={"video": 0})
    assert found is not None
    assert (found.tokens, found.padded_tokens) == (16_384, 0)


def test_a_text_model_has_none() -> None:
    assert run("Qwen/Qwen3-8B", (0, 12)) is None


def test_what_the_tower_made_is_kept_beside_the_sampler() -> None:
    """2.68 GiB between two starts of 0.12 with and without the tower, at 64 and at 256 requests."""
    model = "Qwen/Qwen3-VL-30B-A3B-Instruct"
    prepared = kvtax.budget(model=model, gpu="h100-sxm").prepared
    found = run(model, (0, 12), length=65_536)
    step = Step(prepared.architecture, prepared.gpu, (0, 12), 2, 8192, 64, 2, encoder=found)
    kept = kept_part(step)
    assert kept is not None
    assert kept.bytes == pytest.approx(2.68 * GIB, rel=0.01)


@given(st.integers(1, 8), st.integers(1, 65_536), st.integers(1, 2048), st.integers(1, 262_144))
def test_parts_evaluate_to_their_bytes(tp: int, tokens: int, seqs: int, length: int) -> None:
    model = "google/gemma-3-12b-it"
    prepared = kvtax.budget(model=model, gpu="h100-sxm").prepared
    found = run(model, (0, 20), tokens=tokens, seqs=seqs, length=length)
    step = Step(prepared.architecture, prepared.gpu, (0, 20), tp, tokens, seqs, 2, encoder=found)
    for part in (kept_part(step), encoder_part(step)):
        assert part is not None
        values = {name: entry.value for name, entry in part.inputs.items()}
        assert eval(part.formula, {"__builtins__": {}}, values) == part.bytes  # noqa: S307


def test_gemma_4_raises_the_step_to_its_largest_item() -> None:
    found = kvtax.budget(model="google/gemma-4-26B-A4B", gpu="l4", engine_version="0.25").max_num_batched_tokens
    assert found == 2496
    asked = kvtax.budget(model="google/gemma-4-26B-A4B", gpu="l4", engine_version="0.25", language_model_only=True)
    assert asked.max_num_batched_tokens == 2048


def test_every_tower_of_the_catalogue_is_sized_or_said_to_be_unknown() -> None:
    for model in ("Qwen/Qwen3.6-35B-A3B", "google/gemma-3-27b-it", "Qwen/Qwen2.5-VL-7B-Instruct"):
        tower = vision_tower(kvtax.architecture(model), (0, 33), 8192)
        assert tower is not None
        assert tower.item_tokens <= tower.item_patches
        assert tower.placeholder_tokens >= tower.item_tokens
