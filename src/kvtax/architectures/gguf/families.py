"""Which GGUF architecture a model type of a config.json becomes."""

from __future__ import annotations

ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "ministral": "llama", "ministral3": "mistral3", "mistral3": "llama",
    "internlm3": "llama", "internlm": "llama", "iquestcoder": "llama", "llava": "llama", "llava_llama": "llama", "llava_mistral": "llama",
    "idefics3": "llama", "smolvlm": "llama", "voxtral": "llama", "qwen": "qwen", "qwen2": "qwen2", "mimo": "qwen2", "qwen3": "qwen3",
    "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "qwen3_next": "qwen3next", "qwen3_5": "qwen35", "qwen3_5_text": "qwen35",
    "qwen3_5_moe": "qwen35moe", "qwen3_5_moe_text": "qwen35moe", "qwen2_vl": "qwen2vl", "qwen2_5_vl": "qwen2vl", "qwen2_5_omni": "qwen2vl",
    "qwen2_audio": "qwen2", "qwen3_vl": "qwen3vl", "qwen3_vl_moe": "qwen3vlmoe", "qwen3_omni_moe": "qwen3vlmoe", "qwen4_exp": "qwen4exp",
    "qwen4_exp_text": "qwen4exp", "cohere": "command-r", "cohere2": "cohere2", "cohere2_moe": "cohere2moe", "starcoder2": "starcoder2",
    "gpt_bigcode": "starcoder", "stablelm": "stablelm", "olmo": "olmo", "olmo2": "olmo2", "olmo3": "olmo2", "olmoe": "olmoe",
    "internvl": "qwen3", "llava_qwen": "qwen2",
    "granite": "granite", "granite_swa": "granite_swa", "granitemoe": "granitemoe", "granitemoeshared": "granitemoe",
    "granitemoehybrid": "granitehybrid", "bamba": "granitehybrid", "exaone": "exaone", "exaone4": "exaone4", "exaone4_5": "exaone4",
    "exaone_moe": "exaone-moe", "smollm3": "smollm3", "seed_oss": "seed_oss", "apertus": "apertus", "arcee": "arcee",
    "ernie4_5": "ernie4_5", "ernie4_5_moe": "ernie4_5-moe", "hunyuan_v1_dense": "hunyuan-dense", "hunyuan_v1_moe": "hunyuan-moe",
    "hunyuan": "hunyuan-moe", "nemotron": "nemotron", "nemotron-nas": "deci", "jais2": "jais2", "bitnet": "bitnet",
    "baichuan": "baichuan", "minicpm": "minicpm", "minicpm3": "minicpm3", "orion": "orion", "xverse": "xverse", "gemma": "gemma",
    "gemma2": "gemma2", "gemma3": "gemma3", "gemma3_text": "gemma3", "gemma3n": "gemma3n", "gemma3n_text": "gemma3n",
    "gemma4": "gemma4", "gemma4_text": "gemma4", "gemma4_unified": "gemma4", "gemma4_unified_text": "gemma4", "glm": "chatglm",
    "chatglm": "chatglm", "glm4": "glm4", "glm4v": "glm4", "glm4_moe": "glm4moe", "glm4v_moe": "glm4moe", "glm4_moe_lite": "deepseek2",
    "glm_moe_dsa": "glm-dsa", "glm5_next": "glm5-next", "glm5_next_text": "glm5-next", "internlm2": "internlm2", "phi": "phi2",
    "phi3": "phi3", "phimoe": "phimoe", "gpt2": "gpt2", "gpt_neox": "gptneox", "gptj": "gptj", "bloom": "bloom", "falcon": "falcon",
    "mpt": "mpt", "deepseek": "deepseek", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "kimi_k2": "deepseek2",
    "kimi_k25": "deepseek2", "kimi_vl": "deepseek2", "youtu": "deepseek2", "deepseek_v32": "deepseek32", "deepseek_v4": "deepseek4",
    "dbrx": "dbrx", "arctic": "arctic", "grok-1": "grok", "jamba": "jamba", "mamba": "mamba", "falcon_mamba": "mamba",
    "mamba2": "mamba2", "falcon_h1": "falcon-h1", "nemotron_h": "nemotron_h", "lfm2": "lfm2", "lfm2_moe": "lfm2moe", "lfm2_vl": "lfm2",
    "rwkv6": "rwkv6", "gpt_oss": "gpt-oss", "llama4": "llama4", "llama4_text": "llama4", "minimax_m2": "minimax-m2",
    "minimax_m3": "minimax-m3", "dots1": "dots1", "bailing_moe": "bailingmoe", "bailing_moe_v2": "bailingmoe2",
    "bailing_hybrid": "bailingmoe3", "mimo_v2_flash": "mimo2", "step3p5": "step35", "afmoe": "afmoe", "kimi_linear": "kimi-linear",
    "kimi_k3": "kimi-k3", "laguna": "laguna", "mellum": "mellum", "muse_glimmer": "muse-glimmer", "muse_glimmer_text": "muse-glimmer",
    "minimax": "minimax-01", "MiniMaxText01": "minimax-01", "longcat_flash": "longcat-flash",
}  # fmt: skip
"""Source: ggml-org/llama.cpp b11434 convert_hf_to_gguf.py (classes registered by name) and src/llama-arch.cpp."""
WITH_EXPERTS = {"nemotron_h": "nemotron_h_moe"}
"""Architectures that have another name where they have experts."""

FUSED_QKV = frozenset((
    "phi3", "phimoe", "falcon", "gptneox", "bloom", "mpt", "gpt2", "starcoder", "dbrx", "chatglm", "qwen", "codeshell", "persimmon",
))  # fmt: skip
"""Converters that leave query, key and value in one matrix."""
FUSED_UP = frozenset(("phi3", "glm4", "chatglm"))
"""Converters that leave gate and up in one matrix, `ffn_up`."""
FUSED_KV_B = frozenset(("minicpm3", "plm"))
"""Latent attention whose up-projection is kept whole."""
TRANSPOSED = frozenset(("gpt2",))
"""Checkpoints that keep weights as [in, out]."""
