"""The one list of model types: which file of `families` understands which `model_type`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config, describe
from kvtax.architectures.drafts import build_draft, draft_kind
from kvtax.architectures.encoder import one_pass
from kvtax.architectures.quantization import read_quantization
from kvtax.architectures.ropes import with_ropes
from kvtax.errors import ConfigError, UnsupportedArchitectureError

# file in kvtax.architectures.families -> the model types that its `build` understands
# fmt: off
FAMILIES: dict[str, tuple[str, ...]] = {
    "llama": ("llama",),
    "qwen": ("qwen", "qwen2", "qwen3", "mimo"),
    "llama_like": (
        "mistral", "ministral", "ministral3", "cohere", "cohere2", "starcoder2", "stablelm", "olmo", "olmo2", "olmo3",
        "granite", "granite_swa", "hyperclovax", "exaone", "exaone4", "smollm3", "seed_oss", "apertus", "arcee", "helium",
        "ernie4_5", "hunyuan_v1_dense", "nemotron", "cwm", "jais2", "iquestcoder", "diffllama", "nanochat", "bitnet", "doge",
        "baichuan", "minicpm", "orion", "xverse",
    ),
    "gemma": ("gemma", "gemma2", "gemma3_text", "vaultgemma"),
    "glm": ("glm", "glm4", "chatglm"),
    "internlm": ("internlm", "internlm2", "internlm3"),
    "phi": ("phi", "phi3", "phi3small"),
    "gpt": ("gpt2", "gpt-sw3", "openai-gpt", "gpt_bigcode", "gpt_neo", "gptj", "codegen"),
    "neox": ("gpt_neox", "gpt_neox_japanese", "bloom", "persimmon"),
    "falcon": ("falcon",),
    "mpt": ("mpt",),
    "opt": ("opt", "xglm", "biogpt"),
    "nemotron_nas": ("nemotron-nas",),
    "deepseek": ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite", "mistral4", "sarvam_mla", "axk1", "youtu"),
    "minicpm3": ("minicpm3",),
    "deepseek_v4": ("deepseek_v4", "deepseek_ref"),
    "hy_v4": ("hy_v4",),
    "glm5_next": ("glm5_next", "glm5_next_text"),
    "longcat_flash": ("longcat_flash",),
    "qwen_vl": (
        "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe",
        "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text", "qwen2_5_omni_text",
        "qwen3_omni_moe_text",
    ),
    "gemma3_vl": ("gemma3", "paligemma", "shieldgemma2"),
    "mistral3": ("mistral3",),
    "voxtral": ("voxtral",),
    "llama4": ("llama4", "llama4_text"),
    "mllama": ("mllama", "mllama_text_model"),
    "mamba": ("mamba", "falcon_mamba", "mamba2"),
    "jamba": ("jamba",),
    "bamba": ("bamba", "granitemoehybrid"),
    "falcon_h1": ("falcon_h1",),
    "zamba2": ("zamba2",),
    "nemotron_h": ("nemotron_h",),
    "gemma3n": ("gemma3n", "gemma3n_text"),
    "gemma4": ("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"),
    "muse": ("muse_glimmer", "muse_glimmer_text", "muse_spark", "muse_spark_text"),
    "qwen3_next": ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
    "olmo_hybrid": ("olmo_hybrid",),
    "lfm2": ("lfm2", "lfm2_moe", "lfm3"),
    "recurrent_gemma": ("recurrent_gemma",),
    "llava": ("llava", "llava_next", "llava_next_video", "llava_onevision", "aya_vision", "llava_llama", "llava_mistral", "llava_qwen"),
    "idefics3": ("idefics3", "smolvlm"),
    "internvl": ("internvl", "internvl_chat"),
    "lfm2_vl": ("lfm2_vl",),
    "kimi_vl": ("kimi_k25", "kimi_k3", "kimi_vl"),
    "glm4v": ("glm4v", "glm4v_moe", "glm4v_text", "glm4v_moe_text"),
    "exaone4_5": ("exaone4_5",),
    "phi3_v": ("phi3_v",),
    "ovis2": ("ovis2",),
    "phi4_multimodal": ("phi4_multimodal", "phi4mm"),
    "qwen_audio": ("qwen2_audio",),
    "qwen_omni": ("qwen2_5_omni", "qwen2_5_omni_thinker", "qwen3_omni_moe", "qwen3_omni_moe_thinker"),
    "step3p7": ("step3p7", "minimax_m3_vl"),
    "deepseek_vl_v2": ("deepseek_vl_v2",),
    "qwen_moe": ("qwen2_moe", "qwen3_moe"),
    "mixtral": ("mixtral", "phimoe", "minimax_m2"),
    "olmoe": ("olmoe", "flex_olmo"),
    "gpt_oss": ("gpt_oss",),
    "dbrx": ("dbrx",),
    "arctic": ("arctic",),
    "grok": ("grok-1",),
    "granite_moe": ("granitemoe", "granitemoeshared", "granitemoe_swa"),
    "glm_moe": ("glm4_moe", "dots1", "solar_open", "sarvam_moe", "deepseek"),
    "bailing": ("bailing_moe", "bailing_moe_v2"),
    "ernie_moe": ("ernie4_5_moe",),
    "hy_v3": ("hy_v3",),
    "hunyuan_moe": ("hunyuan", "hunyuan_v1_moe"),
    "mimo_v2": ("mimo_v2_flash",),
    "minimax_m3": ("minimax_m3", "minimax_m3_vl_text"),
    "step3": ("step3p5",),
    "jetmoe": ("jetmoe",),
    "afmoe": ("afmoe",),
    "t5": ("t5", "mt5", "umt5"),
    "bart": ("bart", "mbart", "marian", "pegasus"),
    "whisper": ("whisper",),
    "t5gemma": ("t5gemma",),
    "git": ("git",),
    "kimi_linear": ("kimi_linear",),
    "minimax": ("minimax", "minimax_text_01", "minimax_m1", "MiniMaxText01", "MiniMaxM1"),
    "rwkv": ("rwkv", "rwkv5", "rwkv6"),
    "qwen4_exp": ("qwen4_exp_text",),
    "windowed_moe": ("exaone_moe", "laguna", "mellum", "flint", "cohere2_moe"),
    "step3_vl": ("step3_vl", "step3_text"),
    "axk2": ("axk2",),
    "bailing_hybrid": ("bailing_hybrid",),
    "kolibri": ("kolibri1",),
    "inkling": ("inkling_text",),
    "inkling2": ("inkling2_text",),
    "inkling_mm": ("inkling_mm_model", "inkling2"),
    "llava_kin": ("vipllava", "video_llava", "deepseek_vl", "cohere2_vision", "lighton_ocr"),
    "cohere_compass": ("cohere_compass", "cohere_compass_text"),
    "minicpm_v": ("minicpmv4_6", "minicpmv4_7"),
    "hunyuan_vl": ("hunyuan_vl", "hunyuan_vl_text", "hy_v4_vl", "hy_v4_vl_text"),
    "qwen4_exp_vl": ("qwen4_exp",),
    "diffusion_gemma": ("diffusion_gemma",),
    "zaya": ("zaya",),
    "idefics2": ("idefics2",),
    "sam_vlm": ("got_ocr2", "deepseek_vl_hybrid"),
    "aria": ("aria", "aria_text"),
    "bart_kin": ("m2m_100", "plbart", "mvp", "blenderbot", "blenderbot-small"),
    "molmo2": ("molmo2", "molmo2_text"),
    "paddleocr_vl": ("paddleocr_vl", "paddleocr_vl_text"),
    "glm_ocr": ("glm_ocr", "glm_ocr_text", "glm46v"),
    "dots3_note": ("dots3_note_text",),
    "zamba": ("zamba",),
    "xlstm": ("xlstm",),
    "bert_decoders": ("modernbert-decoder", "ctrl"),
    "bert": ("bert", "roberta", "xlm-roberta", "camembert", "electra", "mpnet", "distilbert"),
    "deberta": ("deberta", "deberta-v2"),
    "modernbert": ("modernbert", "eurobert"),
    "rope_bert": ("nomic_bert", "new", "gte", "jina_embeddings_v3"),
    "granite4_vision": ("granite4_vision",),
    "lfm3_vl": ("lfm3_vl",),
    "ernie_vl": ("ernie4_5_vl_moe", "ernie4_5_vl_moe_text"),
    "audio_lm": ("audioflamingo3", "musicflamingo", "qwen3_asr"),
    "apertus1p5": ("apertus1p5", "apertus1p5_text"),
    "mistral_large4": ("mistral_large4", "mistral_large4_text"),
}
# fmt: on
_FAMILY_OF = {model_type: family for family, types in FAMILIES.items() for model_type in types}


def is_encoder_type(model_type: str) -> bool:
    """Whether a model type is one of BERT's kind, with an engine's class of its own; not a decoder that attends in both directions."""
    return _FAMILY_OF.get(model_type) in ("bert", "deberta", "modernbert", "rope_bert")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """The Architecture of one level of a config, its tensors named below `prefix`.

    Raises:
        UnsupportedArchitectureError: the model type, or something in its config, is not understood.
        ConfigError: a value is impossible.
    """
    if config.parent is None and not prefix and (kind := draft_kind(config)):
        return build_draft(config, kind, _build_family)
    return _build_family(config, prefix=prefix)


def _build_family(config: Config, *, prefix: str = "") -> Architecture:
    """The Architecture that the family of a model type reads."""
    family = _FAMILY_OF.get(config.model_type)
    if family is None:
        raise UnsupportedArchitectureError(
            f"model_type {describe(config.model_type)} is not known" if config.model_type else "model_type is missing",
            where=config.where("model_type"),
            hint="`kvtax models --families` lists the model types that are understood",
        )
    module = import_module(f"kvtax.architectures.families.{family}")
    architecture: Architecture = module.build(config, prefix=prefix)
    return architecture


def read_architecture(
    values: Mapping[str, Any],
    class_defaults: Callable[[str], Mapping[str, Any] | None],
    *,
    extra_quantization: Mapping[str, Any] | None = None,
) -> Architecture:
    """The Architecture of a parsed config.json, in the formats that its quantization_config gives the weights.

    Args:
        values: the parsed file.
        class_defaults: model_type -> the defaults of its class.
        extra_quantization: content of ModelOpt's hf_quant_config.json, where there is one.

    Raises:
        ConfigError: not an object, or a value is impossible.
        UnsupportedArchitectureError: see `build`; or a quant_method that is not known.
    """
    if not isinstance(values, Mapping):
        raise ConfigError("is not a JSON object", where="config.json")
    config = Config(values, class_defaults)
    architecture = one_pass(with_ropes(build(config), values), config)
    quantization = read_quantization(config, extra_quantization)
    return architecture if quantization is None else architecture.replace(quantization=quantization)
