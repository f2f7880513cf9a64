"""Tokens of one image: as the processors of the families count them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvtax
from kvtax.architectures.image_tokens import MOST_PIXELS, RULES, image_tokens
from kvtax.errors import InputError

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/image_tokens.jsonl").read_text(encoding="utf-8").splitlines()
]
MODELS = {
    "qwen2_vl": "Qwen/Qwen2-VL-7B-Instruct",
    "qwen3_vl": "Qwen/Qwen3-VL-32B-Instruct",
    "glm4v": "zai-org/GLM-4.1V-9B-Thinking",
    "gemma4": "google/gemma-4-31B-it",
    "internvl": "OpenGVLab/InternVL3_5-8B-HF",
    "idefics3": "HuggingFaceM4/Idefics3-8B-Llama3",
    "pixtral": "mistral-community/pixtral-12b",
    "mistral3": "mistralai/Mistral-Small-3.1-24B-Instruct-2503",
    "llama4": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    # the tower of LLaVA 1.5 is that of LLaVA-NeXT
    "llava_next": "llava-hf/llava-1.5-7b-hf",
}


def architecture(family: str) -> kvtax.Architecture:
    found = kvtax.architecture(MODELS[family])
    return found.replace(model_type=family) if family == "llava_next" else found


@pytest.mark.parametrize("family", MODELS)
def test_as_the_processor_counts(family: str) -> None:
    model = architecture(family)
    assert len(ROWS) == 48
    for row in ROWS:
        if row[family] is None:
            with pytest.raises(InputError):
                image_tokens(model, row["width"], row["height"])
        else:
            assert image_tokens(model, row["width"], row["height"]) == row[family], row


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("google/gemma-3-27b-it", 256),
        ("llava-hf/llava-1.5-7b-hf", 576),
        ("Qwen/Qwen2.5-VL-7B-Instruct", 1369),
        ("Qwen/Qwen3.5-27B", 1024),
        ("microsoft/Phi-3.5-vision-instruct", None),
        ("moonshotai/Kimi-K2.5", None),
        ("Qwen/Qwen3-8B", None),
    ],
)
def test_one_image_of_a_megapixel(model: str, tokens: int | None) -> None:
    assert image_tokens(kvtax.architecture(model), 1024, 1024) == tokens


@pytest.mark.parametrize(("width", "height"), [(0, 10), (10, -1), (MOST_PIXELS + 1, 10)])
def test_no_image(width: int, height: int) -> None:
    with pytest.raises(InputError):
        image_tokens(kvtax.architecture("google/gemma-3-27b-it"), width, height)


def test_rules_are_of_model_types_that_are_known() -> None:
    from kvtax.architectures.registry import FAMILIES

    known = {kind for kinds in FAMILIES.values() for kind in kinds}
    assert set(RULES) <= known


def test_a_tower_without_what_a_rule_needs_is_not_known() -> None:
    model = kvtax.architecture("Qwen/Qwen2-VL-7B-Instruct")
    for kind in RULES:
        kept = [tensor for tensor in model.tensors if "patch" not in tensor.name and "merger" not in tensor.name]
        vision = [tensor for tensor in model.tensors if tensor.component == "vision"][:1]
        found: Any = image_tokens(model.replace(model_type=kind, tensors=[*kept, *vision]), 640, 480)
        assert found is None or kind in ("gemma3", "gemma4")
