"""What public recipes leave in 16 bit beyond the usual, and their group sizes, by kind of model."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CompressedLatent, MultiHeadLatent, Recurrent

DELTA_RULES = frozenset(("gated_delta_net", "kimi_delta"))
_CALIBRATED = frozenset(("awq-int4", "gptq-int4", "gptq-int8", "ct-int4", "ct-int8"))
_QAT_FAMILIES = ("gemma3", "gemma4")


def left_alone(base: str, architecture: Architecture) -> frozenset[str]:
    """Components that a recipe leaves in 16 bit for this kind of model, beyond embeddings, head, norms, routers and towers.

    Mixtures of experts with delta-rule layers (Qwen3-Next, Qwen3.5): these layers; calibrated integers leave attention and shared experts
    too. Dense ones: the same for gptq; other integers quantise them whole.
    Mixtures of experts with latent attention (DeepSeek, Kimi, GLM-5) in nvfp4: attention.

    Args:
        base: name of the format without its group.
        architecture: of the model.

    Returns:
        Names of components.

    Source: the `dynamic` list of Qwen's GPTQ-Int4 files of Qwen3.5 as quoted in public (attention, shared experts, MTP and towers
    excluded; a public start of the 27B one prints 27.51 GiB, which is what this gives); llm-compressor's examples for Qwen3-Next and
    Qwen3.5 in nvfp4 (linear_attn ignored; a start of Qwen3.6-35B-A3B agrees to 0.01 GiB); hf_quant_config.json of nvidia's GLM-5, Kimi-K2.6, DeepSeek-V4-Pro
    (self_attn excluded; the newer ones exclude shared experts too).
    """
    found: set[str] = set()
    delta = _has_delta_rule(architecture)
    gptq = base.startswith("gptq")
    if delta and (gptq or (architecture.num_experts and (base == "nvfp4" or base in _CALIBRATED))):
        found.add("linear_or_ssm")
        if base in _CALIBRATED:
            found |= {"attention", "shared_experts"}
    latent = any(isinstance(cache, (MultiHeadLatent, CompressedLatent)) for cache, _ in architecture.cache_groups)
    if latent and architecture.num_experts and base == "nvfp4":
        found.add("attention")
    return frozenset(found)


def halfway(base: str, architecture: Architecture) -> frozenset[str]:
    """Components that a 4-bit recipe keeps in fp8: attention and delta-rule layers of dense models in nvfp4.

    Args:
        base: name of the format without its group.
        architecture: of the model.

    Returns:
        Names of components.

    Source: hf_quant_config.json of nvidia/Qwen3.6-35B-A3B-NVFP4 (FP8 for linear_attn and self_attn); a start of a 27B model in nvfp4
    prints 22.1 GiB with its MTP layer (this split gives 22.3): one start, so uncertain.
    """
    if base == "nvfp4" and _has_delta_rule(architecture) and not architecture.num_experts:
        return frozenset(("attention", "linear_or_ssm"))
    return frozenset()


def _has_delta_rule(architecture: Architecture) -> bool:
    return any(isinstance(cache, Recurrent) and cache.variant in DELTA_RULES for cache, _ in architecture.cache_groups)


def usual_group(base: str, usual: int, architecture: Architecture) -> int:
    """Weights that share a scale where the name does not say.

    Gemma 3 and 4 in awq-int4: 32, the blocks that they were trained for with quantisation; an expert width that groups do not divide
    leaves no choice either (704 columns in 26B-A4B). Models with delta-rule layers in awq-int4: 32, since AutoAWQ (groups of 128) has no
    such family, and the tool that has them is used with groups of 32.

    Args:
        base: name of the format without its group.
        usual: for other models [elements].
        architecture: of the model.

    Returns:
        Group size [elements].

    Source: starts of four AWQ checkpoints of Gemma 3 and 4 from three makers (vllm 0.8 and 0.25, sglang 0.5.12): 10 % under with 128,
    within 3 % with 32; casper-hansen/AutoAWQ awq/models/auto.py (families); two starts of Qwen3-Next on R9700 (vllm 0.11 and 0.13): 8.7 %
    under with 128, within 0.3 % with 32.
    """
    if base == "awq-int4" and (architecture.model_type.startswith(_QAT_FAMILIES) or _has_delta_rule(architecture)):
        return 32
    return usual
