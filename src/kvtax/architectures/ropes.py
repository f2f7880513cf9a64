"""Which rope tables a model has: one for each kind of rope, and whether positions have several axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kvtax.architectures.architecture import Architecture

TEXT_LEVELS = ("text_config", "language_config", "llm_config", "thinker_config")
_SECTIONS = ("rope_parameters", "rope_scaling")
_LAYER_KINDS = ("full_attention", "sliding_attention", "chunked_attention")
_LOCAL_KEYS = ("rope_local_base_freq", "local_rope_theta", "swa_rope_theta")
# families whose classes turn local layers by a rope of their own, whether the config says so or not
_LOCAL_FAMILIES = ("gemma3", "gemma3n", "gemma4")
# families whose language model counts positions by time, height and width
_MULTIMODAL_FAMILIES = (
    "qwen2_vl", "qwen2_5_vl", "qwen2_5_omni", "qwen3_vl", "qwen3_omni", "qwen3_5", "glm4v", "glm46v", "glm_ocr", "ernie4_5_vl", "paddleocr_vl",
)  # fmt: skip


def with_ropes(architecture: Architecture, values: Mapping[str, Any]) -> Architecture:
    """The architecture with its rope tables, read from where configs state them.

    Source: transformers 5.24 modeling files of these families; vllm 0.33.0 model_executor/layers/rotary_embedding (tables are shared by
    equal ropes).
    """
    if not architecture.rotary_dim:
        return architecture
    levels = [values, *(level for key in TEXT_LEVELS if isinstance(level := values.get(key), Mapping))]
    sections = [section for level in levels for key in _SECTIONS if isinstance(section := level.get(key), Mapping)]
    family = values.get("model_type")
    family = family if isinstance(family, str) else ""
    multimodal = family.startswith(_MULTIMODAL_FAMILIES) or any(
        "mrope_section" in section or "mrope" in (section.get("type"), section.get("rope_type")) for section in sections
    )
    local = (
        family.startswith(_LOCAL_FAMILIES)
        or any(level.get(key) is not None for level in levels for key in _LOCAL_KEYS)
        or any(_differ(section) for section in sections)
    )
    if not (multimodal or local):
        return architecture
    widths = (architecture.rotary_dim, _global_width(levels) or architecture.rotary_dim) if local else None
    return architecture.replace(multimodal_rope=multimodal, rope_dims=widths)


def _differ(section: Mapping[str, Any]) -> bool:
    """Whether a section has ropes by kind of layer that are not all the same."""
    kinds = [section[kind] for kind in _LAYER_KINDS if isinstance(section.get(kind), Mapping)]
    return len(kinds) > 1 and any(kind != kinds[0] for kind in kinds[1:])


def _global_width(levels: Iterable[Mapping[str, Any]]) -> int:
    """Width of heads of layers without a window, where it is stated; their table is that wide, turned or not [elements]."""
    for level in levels:
        width = level.get("global_head_dim")
        if isinstance(width, int) and not isinstance(width, bool) and 0 < width <= 65_536:
            return width
    return 0
