"""Qwen's vision-language models and thinkers. Counts of the tiny configs were obtained from transformers 5.24.0."""

from __future__ import annotations

from typing import Any

import pytest

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError
from kvtax.sources.class_defaults import class_defaults

TEXT = {
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 192,
    "vocab_size": 1000,
}
VISION_2 = {"depth": 3, "embed_dim": 64, "hidden_size": 128, "num_heads": 4, "mlp_ratio": 4}
VISION_3 = {
    "depth": 3,
    "hidden_size": 64,
    "intermediate_size": 96,
    "out_hidden_size": 128,
    "num_heads": 4,
    "num_position_embeddings": 64,
    "patch_size": 14,
    "deepstack_visual_indexes": [0, 2],
}
AUDIO = {
    "d_model": 64,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "encoder_layers": 2,
    "num_mel_bins": 16,
    "output_dim": 128,
    "downsample_hidden_size": 24,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "head_dim": 32}


def read(model_type: str, architecture: str, **values: Any) -> Architecture:
    return read_architecture({"model_type": model_type, "architectures": [architecture], **values}, class_defaults)


def qwen2_vl(**values: Any) -> Architecture:
    return read("qwen2_vl", "Qwen2VLForConditionalGeneration", vision_config=VISION_2, **values)


def test_flat_and_nested_layouts_give_the_same_answer() -> None:
    flat, nested = qwen2_vl(**TEXT, head_dim=7), qwen2_vl(text_config=TEXT)
    assert flat.parameters == nested.parameters == 950_336
    assert flat.tensors == nested.tensors
    assert flat.caches == nested.caches


def test_windows_only_where_they_are_turned_on() -> None:
    windows = {"sliding_window": 32, "max_window_layers": 1}
    assert qwen2_vl(text_config={**TEXT, **windows}).kv_bytes(100) == 3 * 100 * 2 * 2 * 32 * 2
    assert qwen2_vl(text_config={**TEXT, **windows, "use_sliding_window": True}).kv_bytes(100) == (100 + 2 * 32) * 256


@pytest.mark.parametrize(
    ("outer", "inner", "tied"), [(None, None, False), (True, None, True), (None, True, True), (False, True, True)]
)
def test_either_level_may_tie_the_head_of_qwen2_vl(outer: bool | None, inner: bool | None, tied: bool) -> None:
    levels = {"tie_word_embeddings": outer} if outer is not None else {}
    text = {**TEXT, "tie_word_embeddings": inner} if inner is not None else TEXT
    assert qwen2_vl(text_config=text, **levels).parameters == 950_336 - tied * 128_000


def test_only_the_outer_level_ties_the_head_of_qwen3_vl_moe() -> None:
    values = {"vision_config": {**VISION_3, "model_type": "qwen3_vl_moe"}, "text_config": {**TEXT, **EXPERTS}}
    whole = read("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", **values)
    assert whole.component_parameters()["lm_head"] == 128_000
    assert whole.active_parameters == whole.parameters - 3 * 6 * 3 * 64 * 128


@pytest.mark.parametrize(
    ("model_type", "architecture", "text", "expected"),
    [
        ("qwen2_5_omni_thinker", "Qwen2_5OmniThinkerForConditionalGeneration", TEXT, 989_440),
        ("qwen3_omni_moe_thinker", "Qwen3OmniMoeThinkerForConditionalGeneration", {**TEXT, **EXPERTS}, 1_547_136),
    ],
)
def test_thinkers(model_type: str, architecture: str, text: dict[str, Any], expected: int) -> None:
    parts = {"vision_config": VISION_3, "audio_config": AUDIO, "text_config": text}
    thinker = read(model_type, architecture, **parts)
    assert thinker.parameters == expected
    whole = read(model_type.removesuffix("_thinker"), "Qwen2_5OmniModel", thinker_config=parts, torch_dtype="float16")
    assert (whole.parameters, whole.dtype) == (expected, "float16")
    assert [notice.code for notice in whole.notices] == ["talker-not-counted"]


def test_left_out_keys_take_the_class_defaults() -> None:
    # Qwen2-VL-72B is the default of the class
    whole = read("qwen2_vl", "Qwen2VLForConditionalGeneration", vision_config={"hidden_size": 8192})
    assert whole.parameters == 73_405_560_320
    assert whole.defaults_used["vision_config.embed_dim"] == 1280


def test_impossible_values() -> None:
    with pytest.raises(ConfigError, match="does not divide"):
        qwen2_vl(text_config={**TEXT, "num_attention_heads": 3, "num_key_value_heads": 3})
    with pytest.raises(ConfigError, match="mlp_ratio"):
        read("qwen2_vl", "Qwen2VLForConditionalGeneration", vision_config={"mlp_ratio": -1}, text_config=TEXT)
