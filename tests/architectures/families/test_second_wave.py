"""Tiny configs of the second wave of families: parameters and caches as transformers 5.24.0 has them, converted to what engines keep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvtax
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

ROOT = Path(__file__).parents[3]
# config, parameters, and bytes: of the first token, of a later one, of the state, of the source
CASES = {
    row["model_type"]: row
    for row in map(json.loads, (ROOT / "tests/data/tiny_families.jsonl").read_text().splitlines())
}


def read(model_type: str, **changes: Any) -> kvtax.Architecture:
    return read_architecture({**CASES[model_type]["config"], **changes}, class_defaults)


@pytest.mark.parametrize("model_type", CASES)
def test_counts_and_caches(model_type: str) -> None:
    found, row = read(model_type), CASES[model_type]
    assert found.parameters == row["parameters"]
    assert found.kv_bytes_per_token(at=1) == row["bytes_first"]
    assert found.kv_bytes_per_token() == row["bytes_later"]
    assert found.state_bytes() == row["state_bytes"]
    assert found.cross_attention_bytes() == row["source_bytes"]


# published totals of whole checkpoints, MTP layers included where they are in the files
@pytest.mark.parametrize(
    ("config", "parameters", "stored"),
    [
        ({"model_type": "bailing_hybrid"}, 124414191072, 127486405600),  # inclusionAI/Ling-3.0-flash
        (
            {
                "model_type": "axk2", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 64,
                "moe_intermediate_size": 2048, "n_routed_experts": 256, "intermediate_size": 18432, "q_lora_rank": 1536,
                "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128, "index_n_heads": 64,
            },
            691690215680, 691690231040,  # skt/A.X-K2
        ),
    ],
)  # fmt: skip
def test_published_totals(config: dict[str, Any], parameters: int, stored: int) -> None:
    found = read_architecture(config, class_defaults)
    assert (found.parameters, found.checkpoint_parameters) == (parameters, stored)


def test_diffusion_gemma_is_as_large_as_published() -> None:
    text = {
        "num_hidden_layers": 30, "hidden_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
        "global_head_dim": 512, "num_global_key_value_heads": 2, "num_experts": 128, "top_k_experts": 8,
        "moe_intermediate_size": 704, "intermediate_size": 2112, "sliding_window": 1024,
    }  # fmt: skip
    vision = {
        "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
        "num_key_value_heads": 16, "head_dim": 72, "standardize": True,
    }  # fmt: skip
    config = {"model_type": "diffusion_gemma", "text_config": text, "vision_config": vision}
    assert read_architecture(config, class_defaults).parameters == 25823778864  # google/diffusiongemma-26B-A4B-it


@pytest.mark.parametrize(
    ("model_type", "one", "other"),
    [
        ("mistral4", {}, {"n_routed_experts": None, "num_local_experts": 8}),
        (
            "axk1",
            {},
            {"mlp_layer_types": None, "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_hidden_layers": 4},
        ),
        ("bailing_hybrid", {"layer_group_size": 4}, {"layer_types": ["linear_attention"] * 3 + ["full_attention"]}),
        ("inkling_text", {}, {"local_layer_ids": [0, 1, 2, 3, 4, 6]}),
        (
            "kolibri1",
            {"sliding_window": 64},
            {
                "sliding_window": 64,
                "layer_types": (["sliding_attention"] * 4 + ["full_attention"] + ["sliding_attention"]),
            },
        ),
        (
            "zamba",
            {},
            {"layers_block_type": ["mamba", "mamba", "hybrid", "mamba", "hybrid", "mamba", "mamba", "hybrid", "mamba"]},
        ),
        ("modernbert-decoder", {}, {"global_attn_every_n_layers": 3}),
        (
            "dots3_note_text",
            {},
            {"layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 2, "sliding_window_size": 512},
        ),
    ],
)
def test_other_spellings(model_type: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    if model_type == "axk1":
        one = {"mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}
    found, same = read(model_type, **one), read(model_type, **other)
    assert (found.parameters, found.caches) == (same.parameters, same.caches)


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("axk2", {"layer_types": ["full_attention"] * 4}),
        ("inkling_text", {"layer_types": ["conv"] * 7}),
        ("mistral_large4", {"vision_config": {"model_type": "clip_vision_model"}}),
        ("apertus1p5_text", {"tie_word_embeddings": True}),
        ("zaya", {"num_experts_per_tok": 2}),
        ("xlstm", {"weight_mode": "fused"}),
        ("mvp", {"use_prompt": True}),
        ("diffusion_gemma", {"tie_word_embeddings": False}),
        ("m2m_100", {"architectures": ["M2M100Encoder"]}),
    ],
)
def test_what_is_not_understood(model_type: str, changes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedArchitectureError):
        read(model_type, **changes)


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("axk2", {"q_lora_rank": None}),
        ("mistral_large4", {"text_config": {"num_hidden_layers": 4, "kv_source_layers": [1, 1, 1, 3]}}),
        ("kolibri1", {"sliding_window": None}),
        ("granite4_vision", {"downsample_rate": "4"}),
        ("aria", {"projector_patch_to_query_dict": []}),
        ("molmo2", {"adapter_config": {"vision_feature_layer": []}}),
        ("xlstm", {"embedding_dim": 64}),
        ("zamba", {"n_mamba_heads": 3}),
        ("ernie4_5_vl_moe", {"text_config": {"moe_intermediate_size": [1]}}),
        ("inkling2", {"vision_config": {"text_hidden_size": 63}}),
    ],
)
def test_impossible_values(model_type: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        read(model_type, **changes)
