"""Faults that an audit found, one test for each kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvtax
from kvtax.architectures.registry import read_architecture
from kvtax.sources.class_defaults import class_defaults

ROOT = Path(__file__).parents[2]
TINY: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 2048,
    "num_hidden_layers": 4, "num_attention_heads": 12, "num_key_value_heads": 6, "head_dim": 64, "vocab_size": 1000,
    "max_position_embeddings": 8192, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


def verdict(config: dict[str, Any], **fields: Any) -> tuple[str, list[str]]:
    found = kvtax.budget(model=config, gpu="h100-sxm", max_model_len=4096, **fields)
    return found.verdict, [notice.code for notice in found.notices]


@pytest.mark.parametrize("tp", [1, 2, 3, 6, 12])
def test_key_value_heads_that_divide_or_repeat(tp: int) -> None:
    assert verdict(TINY, tensor_parallel_size=tp)[0] == "fits"


def test_key_value_heads_that_neither_divide_nor_repeat() -> None:
    # LlamaAttention asserts that one divides the other (Phi-3 medium has 40 and 10 heads: tp 4 does not start)
    assert verdict(TINY, tensor_parallel_size=4) == ("refused", ["kv-heads-not-divisible"])
    latent = json.loads((ROOT / "configs/models/deepseek-ai--DeepSeek-V2-Lite.json").read_text())
    assert kvtax.budget(model=latent, gpu="h100-sxm", tensor_parallel_size=8, max_model_len=4096).verdict == "fits"


def test_fewer_cards_than_ranks_are_refused() -> None:
    assert verdict(TINY, tensor_parallel_size=2, pipeline_parallel_size=2, gpu_count=2) == ("refused", ["too-few-gpus"])
    assert verdict(TINY, tensor_parallel_size=2, gpu_count=2) == ("fits", [])


def test_how_autofp8_found_its_scales_is_no_cache_format() -> None:
    section = {"quant_method": "fp8", "activation_scheme": "static", "kv_cache_scheme": "static"}
    found = kvtax.budget(model={**TINY, "quantization_config": section}, gpu="h100-sxm", max_model_len=4096).to_dict()
    assert found["deployment"]["kv_cache_dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("size", "order", "version", "expected"),
    [
        (128, True, None, "refused"),
        (128, True, "0.33.0", "refused"),
        (128, True, "0.11", "fits"),
        (128, False, None, "fits"),
        (-1, True, None, "fits"),
    ],
)
def test_gptq_in_activation_order_is_no_longer_loaded(
    size: int, order: bool, version: str | None, expected: str
) -> None:
    section = {"quant_method": "gptq", "bits": 4, "group_size": size, "desc_act": order, "sym": True}
    assert verdict({**TINY, "quantization_config": section}, engine_version=version)[0] == expected


def test_newest_version_named_is_the_newest() -> None:
    section = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    for version in (None, "0.33", "nightly"):
        assert verdict({**TINY, "quantization_config": section}, engine_version=version)[0] == "refused"


def test_llama_with_listed_windows() -> None:
    kinds = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
    token = 2 * 6 * 64 * 2
    listed = read_architecture({**TINY, "layer_types": kinds, "sliding_window": 512}, class_defaults)
    assert (listed.kv_bytes_per_token(), listed.kv_bytes_per_token(at=1)) == (token, 4 * token)
    assert listed.kv_bytes(1000) == (3 * 512 + 1000) * token
    for other in ({"sliding_window": 512}, {"layer_types": kinds, "sliding_window": None}, {"layer_types": kinds}):
        assert read_architecture({**TINY, **other}, class_defaults).kv_bytes_per_token() == 4 * token


def test_voxtral_fills_in_what_a_stated_text_config_leaves_out() -> None:
    # total from transformers 5.24.0, the same with every key of the text model stated
    config = json.loads((ROOT / "configs/models/mistralai--Voxtral-Mini-3B-2507.json").read_text())
    whole = read_architecture(config, class_defaults).parameters
    for key in ("hidden_size", "head_dim", "intermediate_size", "num_key_value_heads", "vocab_size"):
        text = {name: value for name, value in config["text_config"].items() if name != key}
        assert read_architecture({**config, "text_config": text}, class_defaults).parameters == whole, key


@pytest.mark.parametrize("stored", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("asked", "size"), [(None, 2), ("bfloat16", 2), ("float32", 4)])
def test_weights_are_held_in_the_dtype_that_runs(stored: str, asked: str | None, size: int) -> None:
    found = kvtax.budget(
        model={**TINY, "torch_dtype": stored}, gpu="h100-sxm", max_model_len=4096, dtype=asked
    ).to_dict()
    assert found["per_gpu"]["weights_bytes"] == size * found["model"]["parameters"]
    assert found["model"]["checkpoint_bytes"] == (4 if stored == "float32" else 2) * found["model"]["parameters"]


def test_scales_and_buffers_keep_their_dtype() -> None:
    section = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    held = [
        kvtax.budget(
            model={**TINY, "torch_dtype": stored, "quantization_config": section}, gpu="h100-sxm", max_model_len=4096
        ).weights_bytes
        for stored in ("bfloat16", "float32")
    ]
    assert held[0] == held[1]


@pytest.mark.parametrize("card", ["t4", "v100-32gb"])
def test_what_is_unstable_in_float16_falls_back_to_float32(card: str) -> None:
    found = kvtax.budget(model="gemma-2-2b", gpu=card, max_model_len=4096)
    assert found.settings()["dtype"].value == "float32"
    assert found.weights_bytes == 4 * 2_614_341_888
    assert "dtype-falls-back" in [notice.code for notice in found.notices]
    assert kvtax.budget(model="gemma-2-2b", gpu=card, max_model_len=4096, dtype="float16").verdict == "refused"


@pytest.mark.parametrize(("version", "length"), [(None, 4096), ("0.12.0", 4096), ("0.10.2", 131072)])
def test_default_context_of_longrope(version: str | None, length: int) -> None:
    rope = {"type": "longrope", "long_factor": [1.0] * 32, "short_factor": [1.0] * 32}
    long = {**TINY, "max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "rope_scaling": rope}
    found = kvtax.budget(model=long, gpu="h100-sxm", engine_version=version)
    assert found.max_model_len == length
    asked = kvtax.budget(model=long, gpu="h100-sxm", max_model_len=131072)
    assert "context-above-limit" not in [notice.code for notice in asked.notices]


def test_rope_settings_by_type_of_layer() -> None:
    plain = {"rope_type": "default", "rope_theta": 10000.0}
    yarn = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192, "rope_theta": 10000.0}
    for ropes in (
        {"rope_parameters": {"full_attention": yarn, "sliding_attention": plain}},
        {"rope_parameters": yarn},
        {"rope_scaling": yarn},
    ):
        assert read_architecture({**TINY, **ropes}, class_defaults).max_position_embeddings == 65536
    assert read_architecture({**TINY, "rope_parameters": plain}, class_defaults).max_position_embeddings == 8192


def test_a_card_of_unknown_make_is_not_refused_for_what_is_not_known() -> None:
    found = kvtax.budget(model=TINY, vram="40GiB", kv_cache_dtype="fp8", max_model_len=4096)
    assert (found.verdict, "kv-dtype-unchecked" in [notice.code for notice in found.notices]) == ("fits", True)
    assert kvtax.budget(model=TINY, gpu="a100-80", kv_cache_dtype="fp8", max_model_len=4096).verdict == "refused"


@pytest.mark.parametrize("tokens", [-1, 1.5, "8k", True, None])
def test_tokens_that_are_none_are_refused(tokens: Any) -> None:
    found = read_architecture(TINY, class_defaults)
    for ask in (
        lambda: found.kv_bytes(tokens),
        lambda: found.cross_attention_bytes(tokens if tokens is not None else -1),
        lambda: found.kv_bytes_per_token(at=tokens if tokens is not None else -1),
    ):
        with pytest.raises(kvtax.InputError, match="whole number"):
            ask()


@pytest.mark.parametrize("dtype", [None, 5, b"fp8"])
def test_dtypes_that_are_no_words_are_refused(dtype: Any) -> None:
    found = read_architecture(TINY, class_defaults)
    for ask in (lambda: found.kv_bytes(10, dtype), lambda: found.weight_bytes(dtype or 5)):
        with pytest.raises(kvtax.InputError, match="named by a word"):
            ask()


@pytest.mark.parametrize("version", ["", "  ", "nightly", "0.0.1", "a" * 1000, "\x1b[31m"])
def test_any_engine_version_is_answered(version: str) -> None:
    found = kvtax.budget(model=TINY, gpu="h100-sxm", max_model_len=4096, engine_version=version)
    assert found.to_dict()["engine"]["version"] == "0.33"
    assert "engine-version-newest" in [notice.code for notice in found.notices]


@pytest.mark.parametrize("name", ["google--gemma-3-4b-it", "Qwen--Qwen3-VL-4B-Instruct", "llava-hf--llava-1.5-7b-hf"])
def test_the_outer_dtype_wins(name: str) -> None:
    config = json.loads((ROOT / f"configs/models/{name}.json").read_text())
    for level in (config, config["text_config"]):
        level.pop("dtype", None)
        level.pop("torch_dtype", None)
    for outer, inner, expected in (("bfloat16", "float32", 2), (None, "float16", 2), (None, "float32", 4)):
        text = {**config["text_config"], "torch_dtype": inner}
        found = read_architecture({**config, "text_config": text, "torch_dtype": outer}, class_defaults)
        assert found.weight_bytes() == expected * found.parameters
