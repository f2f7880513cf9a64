"""Parents with a vision or audio tower. Counts of the tiny configs were obtained from transformers 5.24.0."""

from __future__ import annotations

from typing import Any

import pytest

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults


def text(model_type: str = "qwen2", **values: Any) -> dict[str, Any]:
    base = {
        "model_type": model_type,
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 192,
        "vocab_size": 1000,
    }
    return {**base, **values}


def vision(model_type: str = "", **values: Any) -> dict[str, Any]:
    base = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
    return {**({"model_type": model_type} if model_type else {}), **base, "image_size": 64, "patch_size": 16, **values}


GLM_VISION = {
    "depth": 3,
    "hidden_size": 64,
    "intermediate_size": 96,
    "out_hidden_size": 128,
    "num_heads": 4,
    "image_size": 56,
}
SIGLIP = vision("siglip_vision_model", vision_use_head=False)
MOE = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "first_k_dense_replace": 1}
MLA = {
    "kv_lora_rank": 32,
    "q_lora_rank": 48,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
}

CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "llava, two feature layers": (
        797_728,
        {"model_type": "llava", "vision_feature_layer": [-2, -5], "vision_config": SIGLIP, "text_config": text()},
    ),
    "llava, SigLIP 2 with its head": (
        821_888,
        {
            "model_type": "llava",
            "vision_config": vision("siglip2_vision_model", num_patches=64),
            "text_config": text(),
        },
    ),
    "llava_next": (
        789_088,
        {"model_type": "llava_next", "vision_config": vision("clip_vision_model"), "text_config": text("mistral")},
    ),
    "llava_onevision": (
        789_664,
        {"model_type": "llava_onevision", "vision_config": SIGLIP, "text_config": text()},
    ),
    "aya_vision": (
        718_368,
        {
            "model_type": "aya_vision",
            "alignment_intermediate_size": 256,
            "vision_config": SIGLIP,
            "text_config": text("cohere2", head_dim=32),
        },
    ),
    "idefics3": (796_704, {"model_type": "idefics3", "vision_config": vision(), "text_config": text("llama")}),
    "smolvlm": (
        837_664,
        {"model_type": "smolvlm", "scale_factor": 3, "vision_config": vision(), "text_config": text("llama")},
    ),
    "internvl": (
        687_712,
        {
            "model_type": "internvl",
            "vision_config": vision(
                image_size=[64, 96], patch_size=[16, 16], use_qk_norm=True, attention_bias=True, norm_type="rms_norm",
                use_mean_pooling=False, use_mask_token=True,
            ),
            "text_config": text(),
        },
    ),
    "lfm2_vl": (
        911_936,
        {
            "model_type": "lfm2_vl",
            "projector_hidden_size": 96,
            "tie_embedding": False,
            "vision_config": vision("siglip2_vision_model", num_patches=64, vision_use_head=False),
            "text_config": text("lfm2", layer_types=["conv", "full_attention", "conv"]),
        },
    ),
    "kimi_k25": (
        1_087_504,
        {
            "model_type": "kimi_k25",
            "tie_word_embeddings": False,
            "projection_hidden_size": 64,
            "vision_config": vision(patch_size=14, pos_emb_height=8, pos_emb_width=6),
            "text_config": text("kimi_k2", num_key_value_heads=4, **MOE, **MLA),
        },
    ),
    "glm4v": (913_216, {"model_type": "glm4v", "vision_config": GLM_VISION, "text_config": text("glm4v_text")}),
    "glm4v_moe": (
        1_209_408,
        {
            "model_type": "glm4v_moe",
            "vision_config": GLM_VISION,
            "text_config": text("glm4v_moe_text", head_dim=32, **MOE),
        },
    ),
    "exaone4_5": (
        893_632,
        {
            "model_type": "exaone4_5",
            "vision_config": {**GLM_VISION, "num_key_value_heads": 2},
            "text_config": text("exaone4_5_text", sliding_window=16, num_nextn_predict_layers=1),
        },
    ),
    "ovis2": (
        839_862,
        {
            "model_type": "ovis2",
            "hidden_size": 128,
            "vocab_size": 1000,
            "vision_config": vision(
                image_size=56, patch_size=14, vocab_size=512, hidden_stride=2, qkv_bias=True, mlp_bias=True
            ),
            "text_config": text(),
        },
    ),
    "qwen2_audio": (
        712_000,
        {
            "model_type": "qwen2_audio",
            "audio_config": {
                "d_model": 64,
                "encoder_attention_heads": 4,
                "encoder_ffn_dim": 96,
                "encoder_layers": 2,
                "num_mel_bins": 16,
                "max_source_positions": 50,
            },
            "text_config": text(tie_word_embeddings=True),
        },
    ),
    "step3p7": (
        1_453_440,
        {
            "model_type": "step3p7",
            "projector_bias": True,
            "vision_config": {"width": 64, "layers": 3, "heads": 4, "image_size": 56, "mlp_ratio": 2.0},
            "text_config": text(
                "step3p5", head_dim=32, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=64,
                share_expert_dim=48, mlp_layer_types=["dense", "sparse", "sparse"],
            ),
        },
    ),
    "minimax_m3_vl": (
        2_494_560,
        {
            "model_type": "minimax_m3_vl",
            "projector_hidden_size": 96,
            "vision_config": vision(patch_size=14),
            "text_config": text(
                "minimax_m3_vl_text", head_dim=32, num_local_experts=8, num_experts_per_tok=2,
                dense_intermediate_size=96, shared_intermediate_size=64, rotary_dim=16,
            ),
        },
    ),
}  # fmt: skip


def read(config: dict[str, Any]) -> Architecture:
    return read_architecture(config, class_defaults)


@pytest.mark.parametrize("name", CASES)
def test_counts(name: str) -> None:
    expected, config = CASES[name]
    assert read(config).parameters == expected


# totals of the published files, from dimensions of their configs
def test_published_totals() -> None:
    language = text(
        "internlm2", hidden_size=2048, num_hidden_layers=24, num_attention_heads=16, num_key_value_heads=8,
        intermediate_size=8192, vocab_size=92553, bias=False, tie_word_embeddings=False,
    )  # fmt: skip
    tower = {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "image_size": 448,
        "qkv_bias": True,
        "qk_normalization": False,
        "norm_type": "layer_norm",
    }
    chat = {"model_type": "internvl_chat", "architectures": ["InternVLChatModel"], "downsample_ratio": 0.5}
    assert read({**chat, "vision_config": tower, "llm_config": language}).parameters == 2_205_754_368
    tiny = text(
        "deepseek_v2", hidden_size=1280, num_hidden_layers=12, num_attention_heads=10, num_key_value_heads=10,
        intermediate_size=6848, vocab_size=129280, moe_intermediate_size=896, n_routed_experts=64, n_shared_experts=2,
        num_experts_per_tok=6, first_k_dense_replace=1, use_mla=False, kv_lora_rank=None,
    )  # fmt: skip
    siglip = {"layers": 27, "mlp_ratio": 3.7362, "patch_size": 14, "width": 1152}
    deepseek = {"model_type": "deepseek_vl_v2", "vision_config": siglip, "projector_config": {"n_embed": 1280}}
    assert read({**deepseek, "language_config": tiny}).parameters == 3_370_501_440
    phi = {
        "model_type": "phi3_v",
        "embd_layer": {"projection_cls": "mlp", "use_hd_transform": True, "with_learnable_separator": True},
        "img_processor": {"name": "clip_vision_model", "image_dim_out": 1024},
    }
    assert read(phi).parameters == 4_146_621_440


def test_phi_4_multimodal_in_both_spellings() -> None:
    tower = vision(num_hidden_layers=2, image_size=56, patch_size=14)
    speech = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_blocks": 2,
        "num_attention_heads": 4,
        "ext_pw_out_channel": 64,
        "depthwise_separable_out_channel": 64,
        "bias_max_distance": 50,
        "nemo_conv_channels": 32,
    }
    values = {**text("phi4_multimodal"), "tie_word_embeddings": True, "vision_config": tower}
    assert read({**values, "audio_config": speech}).parameters == 866_352
    # the published file, with the adapters that are not loaded
    published = {
        **text("phi4mm", hidden_size=3072, num_hidden_layers=32, num_attention_heads=24, num_key_value_heads=8),
        "intermediate_size": 8192,
        "vocab_size": 200064,
        "tie_word_embeddings": True,
        "audio_processor": {"config": {"relative_attention_bias_args": {"t5_bias_max_distance": 500}}},
        "vision_lora": {"r": 256},
        "speech_lora": {"r": 320},
    }
    whole = read(published)
    assert whole.checkpoint_parameters == 5_574_460_384
    assert whole.parameters == 4_743_988_032


def test_published_spellings_of_kimi() -> None:
    _, config = CASES["kimi_k25"]
    spelled = {
        "vt_hidden_size": 64,
        "vt_intermediate_size": 96,
        "vt_num_hidden_layers": 3,
        "vt_num_attention_heads": 4,
        "mm_hidden_size": 64,
        "init_pos_emb_height": 8,
        "init_pos_emb_width": 6,
    }
    other = {key: value for key, value in config.items() if key != "projection_hidden_size"}
    assert read({**other, "vision_config": spelled}).tensors == read(config).tensors


def test_mtp_layers_of_exaone_are_listed_and_not_loaded() -> None:
    mtp = [tensor for tensor in read(CASES["exaone4_5"][1]).tensors if tensor.component == "mtp"]
    assert mtp
    assert not any(tensor.loaded for tensor in mtp)
    assert "mtp.layers.*.self_attn.q_proj.weight" in {tensor.name for tensor in mtp}


def test_the_first_layout_of_llava_says_what_it_cannot_count() -> None:
    flat = {
        **text("llava"),
        "architectures": ["LlavaLlamaForCausalLM"],
        "mm_vision_tower": "some/tower",
        "mm_hidden_size": 64,
        "mm_projector_type": "mlp2x_gelu",
    }
    found = read(flat)
    assert found.component_parameters()["vision"] == 64 * 128 + 128 + 128 * 128 + 128
    assert [notice.code for notice in found.notices] == ["vision-tower-not-counted"]


def test_what_is_not_understood() -> None:
    with pytest.raises(UnsupportedArchitectureError, match="vision tower"):
        read({"model_type": "llava", "vision_config": vision("no_such_tower"), "text_config": text()})
    with pytest.raises(UnsupportedArchitectureError, match="projector"):
        read({**text("llava"), "mm_vision_tower": "some/tower", "mm_projector_type": "qformer", "mm_hidden_size": 8})


def test_impossible_values() -> None:
    with pytest.raises(ConfigError, match="downsample_ratio"):
        read({"model_type": "internvl", "downsample_ratio": 2.0, "vision_config": vision(), "text_config": text()})
    with pytest.raises(ConfigError, match="llm_config"):
        read({"model_type": "internvl_chat", "vision_config": vision()})
