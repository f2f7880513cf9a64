"""Draft models of speculative decoding: tensors that add up to the published files, and caches of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvtax
from kvtax.architectures.cache import FullAttention, MultiHeadLatent
from kvtax.architectures.drafts import as_draft, is_draft
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 1, "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip
EAGLE3 = {**LLAMA_8B, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000}
GPT_OSS = {
    **EAGLE3, "hidden_size": 2880, "intermediate_size": 16384, "num_attention_heads": 64, "head_dim": 64, "vocab_size": 201088,
    "draft_vocab_size": 201088,
}  # fmt: skip
MINIMAX = {
    **EAGLE3, "hidden_size": 6144, "intermediate_size": 18432, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128,
    "vocab_size": 200064, "draft_vocab_size": None, "norm_before_fc": True,
}  # fmt: skip
KIMI = {
    "model_type": "kimi_k2", "architectures": ["Eagle3DeepseekV2ForCausalLM"], "hidden_size": 7168, "intermediate_size": 18432,
    "num_attention_heads": 64, "num_key_value_heads": 64, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 384, "moe_intermediate_size": 2048, "num_hidden_layers": 1,
    "vocab_size": 163840, "draft_vocab_size": 163840,
}  # fmt: skip


def speculator(hidden_size: int, intermediate_size: int, num_attention_heads: int) -> dict[str, Any]:
    layer = {
        "model_type": "llama", "hidden_size": hidden_size, "intermediate_size": intermediate_size, "head_dim": 128,
        "num_attention_heads": num_attention_heads, "num_key_value_heads": 8, "vocab_size": 151936,
    }  # fmt: skip
    return {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": 32000,
        "transformer_layer_config": layer,
    }  # fmt: skip


def block(widths: tuple[int, ...], taken: int, **more: Any) -> dict[str, Any]:
    """hidden, intermediate, heads, key/value heads, head_dim, vocabulary, layers; layers of the target that it takes."""
    names = (
        "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "num_hidden_layers",
    )  # fmt: skip
    base = {"model_type": "qwen3", "architectures": ["DFlashDraftModel"], "tie_word_embeddings": False}
    return {
        **base,
        **dict(zip(names, widths, strict=True)),
        "dflash_config": {"target_layer_ids": [*range(taken)]},
        **more,
    }


DSPARK = {"architectures": ["DSparkDraftModel"], "markov_rank": 256}


def read(config: dict[str, Any]) -> kvtax.Architecture:
    return read_architecture(config, class_defaults)


# totals of the files (database of llmfit 1.1.17, 2026-10): with an embedding where the file has one
@pytest.mark.parametrize(
    ("config", "published", "with_embedding"),
    [
        (GPT_OSS, 786873600, False),  # nvidia/gpt-oss-120b-Eagle3-short-context
        ({**GPT_OSS, "eagle_config": {"norm_before_fc": True}}, 786882240, False),  # nvidia/gpt-oss-120b-Eagle3-v3
        (speculator(4096, 12288, 32), 1022037632, False),  # RedHatAI/Qwen3-8B-speculator.eagle3
        (speculator(5120, 25600, 64), 1560616576, False),  # RedHatAI/Qwen3-32B-speculator.eagle3
        (KIMI, 3015604224, True),  # lightseekorg/kimi-k2.6-eagle3-mla
        (MINIMAX, 3074992128, True),  # Inferact/MiniMax-M3-EAGLE3-GQA
        ({**MINIMAX, "num_key_value_heads": 64}, 3263735808, True),  # Inferact/MiniMax-M3-EAGLE3
        (block((4096, 12288, 32, 8, 128, 151936, 5), 5), 1048626432, False),  # z-lab/Qwen3-8B-DFlash-b16
        (block((2560, 9728, 32, 8, 128, 151936, 5), 5), 537427200, False),  # z-lab/Qwen3-4B-DFlash-b16
        (block((5120, 17408, 32, 8, 128, 248320, 5), 5), 1730213120, False),  # z-lab/Qwen3.6-27B-DFlash
        (block((2048, 6144, 32, 8, 128, 248320, 6), 8), 385906176, False),  # z-lab/Qwen3.6-35B-A3B-DFlash
        (
            block((2880, 7680, 64, 8, 64, 201088, 8), 5, attention_bias=True),
            784767104,
            False,
        ),  # z-lab/gpt-oss-120b-DFlash
        (block((5376, 10752, 64, 8, 128, 262144, 5), 6), 1535967488, False),  # z-lab/gemma-4-31B-it-DFlash
        (block((2048, 6144, 16, 2, 128, 130560, 5), 5, **DSPARK), 323776001, False),  # openbmb/MiniCPM5-2B-DSpark
        (block((2048, 6144, 32, 8, 64, 128000, 5), 5, **DSPARK), 327707521, False),  # LiquidAI/LFM2.5-2.6B-DSpark
        (block((5120, 17408, 32, 8, 128, 248320, 5), 5, **DSPARK), 1857358337, False),  # RadixArk/Qwen3.8-27B-DSpark
    ],
)
def test_published_files(config: dict[str, Any], published: int, with_embedding: bool) -> None:
    found = read(config)
    own = sum(tensor.elements for tensor in found.tensors if tensor.component == "embedding" and not tensor.stored)
    assert (found.checkpoint_parameters or 0) + (own if with_embedding else 0) == published
    assert is_draft(found)
    assert "draft-model" in {notice.code for notice in found.notices}


def test_eagle3_shapes() -> None:
    found = read(EAGLE3)
    shapes = {tensor.name: tensor.shape for tensor in found.tensors}
    assert found.parameters == 424_689_664
    assert shapes["midlayer.self_attn.q_proj.weight"] == (4096, 8192)
    assert shapes["midlayer.self_attn.k_proj.weight"] == shapes["midlayer.self_attn.v_proj.weight"] == (1024, 8192)
    assert shapes["midlayer.self_attn.o_proj.weight"] == (4096, 4096)
    assert (shapes["fc.weight"], shapes["lm_head.weight"]) == ((4096, 12288), (32000, 4096))
    assert (shapes["d2t"], shapes["t2d"]) == ((32000,), (128256,))
    assert found.caches == (FullAttention(8, 128, 128),)


def test_hidden_states_of_the_target() -> None:
    def fc(**changes: Any) -> tuple[int, ...] | None:
        return next((one.shape for one in read({**EAGLE3, **changes}).tensors if one.name == "fc.weight"), None)

    assert fc(target_hidden_size=5120) == (4096, 3 * 5120)
    assert fc(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 2, 3, 4]}) == (4096, 4 * 4096)
    assert fc(eagle_config={"use_aux_hidden_state": False}) is None
    norms = read({**EAGLE3, "fc_norm": True}).parameters - read(EAGLE3).parameters
    assert norms == 3 * 4096


def test_latent_attention_keeps_its_latent() -> None:
    assert read(KIMI).caches == (MultiHeadLatent(512, 64),)


def test_eagle_is_a_plain_decoder_by_its_config() -> None:
    named = read({**LLAMA_8B, "architectures": ["EagleLlamaForCausalLM"]})
    plain = read({**LLAMA_8B, "architectures": ["LlamaForCausalLM"]})
    assert not is_draft(plain)
    assert as_draft(plain, "eagle").tensors == named.tensors
    assert as_draft(plain, "draft") is plain
    assert as_draft(named, "eagle") is named
    # fc, attention, MLP, one norm; the embedding is in the file and is the target's
    layer = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096
    assert named.parameters == 2 * 4096 * 4096 + layer + 4096
    assert named.checkpoint_parameters == named.parameters + 128256 * 4096
    with_bias = read({**LLAMA_8B, "architectures": ["EagleLlamaForCausalLM"], "bias": True})
    assert with_bias.parameters - named.parameters == 4096


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ["DeepseekV3ForCausalLMNextN"]},
        {"architectures": ["EagleSomethingForCausalLM"]},
        {"architectures": ["LlamaForCausalLM"], "eagle_config": {}},
        {"architectures": ["DFlash2DraftModel"]},
        {"architectures": [], "draft_vocab_size": 100},
    ],
)
def test_other_drafts_are_not_read_as_plain_models(changes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedArchitectureError):
        read({**LLAMA_8B, **changes})


def test_a_block_draft_lists_its_layers() -> None:
    with pytest.raises(ConfigError):
        read(block((2560, 9728, 32, 8, 128, 151936, 5), 0))


def test_engines_take_weights_and_cache_of_the_draft(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**EAGLE3, "num_key_value_heads": 4}), encoding="utf-8")
    draft = read({**EAGLE3, "num_key_value_heads": 4})
    loaded = sum(one.bytes for one in draft.stored_tensors() if one.source.loaded)
    for engine in ("vllm", "sglang"):
        given = {"model": "llama-3.1-8b", "gpu": "a100-80", "engine": engine, "max_model_len": 8192}
        plain = kvtax.budget(**given)
        found = kvtax.budget(**given, speculative={"method": "eagle3", "model": str(path), "num_speculative_tokens": 3})
        assert not {"draft-assumed", "draft-estimated"} & {notice.code for notice in found.notices}
        if engine == "vllm":
            assert found.memory.weights_bytes - plain.memory.weights_bytes == loaded
            assert found.live_bytes_per_request - plain.live_bytes_per_request == 8192 * draft.kv_bytes_per_token()
        else:
            assert found.answer.detail.draft_weights_bytes == loaded
