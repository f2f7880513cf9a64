"""SGLang's defaults by version: one entry per change, with its source; and when each release came out."""

from __future__ import annotations

from typing import Any

from kvtax.engines.base import Rule, Version, find_rule

NEWEST = (0, 5, 23)
OLDEST = (0, 4, 3)

RULES = (
    Rule("fraction", (0, 0, 0), "ladder", "sglang 0.4.3.post4 and 0.4.4.post1 srt/server_args.py: by tensor_parallel_size alone"),
    Rule("fraction", (0, 4, 6), "large_cards", "sglang 0.4.6.post5 srt/server_args.py: ladder to 80 GiB, more on larger cards (0.4.5 not checked)"),
    Rule("fraction", (0, 4, 8), "by_card", "sglang 0.4.8 to 0.5.2 srt/server_args.py: a reserve by size of card (0.4.7 not checked)"),
    Rule("fraction", (0, 5, 3), "reserved", "sglang 0.5.3 to 0.5.23: a reserve for activations and graphs, later srt/arg_groups/memory_hook.py"),
    Rule("vision_share", (0, 0, 0), "none", "sglang 0.4.8 srt/server_args.py has no share for vision models"),
    Rule("vision_share", (0, 4, 9), "flat", "sglang 0.4.9.post2 srt/server_args.py: 0.90 for multimodal models"),
    Rule("vision_share", (0, 4, 10), "tower", "sglang 0.4.10.post2 to 0.5.23: by the size of the vision tower"),
    Rule("steps", (0, 0, 0), "two", "sglang 0.4.3 to 0.4.6: 2048 below 25,000 MiB, else 8192"),
    Rule("steps", (0, 4, 8), "three", "sglang 0.4.8 to 0.5.2: 2048 below 35 GiB, 8192 below 160 GiB, else 16384"),
    Rule("steps", (0, 5, 3), "tiers", "sglang 0.5.3: a table of sizes with both the step and the largest graph"),
    Rule("small_card_tier", (0, 0, 0), (2048, 16, 80), "sglang 0.5.3 and 0.5.4: below 35 GiB: step, largest graph below tp 4, from tp 4 on"),
    Rule("small_card_tier", (0, 5, 5), (2048, 24, 80), "sglang 0.5.5 to 0.5.19 srt/server_args.py"),
    Rule("small_card_tier", (0, 5, 21), (4096, 48, 160), "sglang 0.5.21 srt/arg_groups/memory_hook.py (0.5.20 not checked)"),
    Rule("prefill_graphs", (0, 0, 0), False, "sglang before 0.5.10: piecewise graphs only where asked for"),
    Rule("prefill_graphs", (0, 5, 10), True, "sglang 0.5.10 srt/server_args.py: on unless disabled"),
    Rule("draft_reserve_mib", (0, 0, 0), 0, "sglang before 0.4.8"),
    Rule("draft_reserve_mib", (0, 4, 8), 2048, "sglang 0.4.8 to 0.5.9 srt/server_args.py: draft model and its graphs"),
    Rule("draft_reserve_mib", (0, 5, 10), 4096, "sglang 0.5.10 to 0.5.13 srt/server_args.py"),
    Rule("draft_reserve_mib", (0, 5, 15), 0, "sglang 0.5.15 srt/server_args.py: no longer (0.5.14 not checked)"),
    Rule("graphs_end_at_requests", (0, 0, 0), False, "sglang before 0.5.22"),
    Rule("graphs_end_at_requests", (0, 5, 22), True, "sglang 0.5.23 srt/arg_groups/memory_hook.py; 0.5.21 has it not (0.5.22 not checked)"),
    Rule("multimodal_reserve_mib", (0, 0, 0), 0, "sglang 0.5.17 and before"),
    Rule("multimodal_reserve_mib", (0, 5, 19), 100, "sglang 0.5.19 srt/mem_cache/kv_cache_configurator.py: the embedding cache (0.5.18 not checked)"),
    Rule("state_padding_slot", (0, 0, 0), 0, "sglang 0.5.15 and before: the state pool counts its slots only"),
    Rule("state_padding_slot", (0, 5, 17), 1, "sglang 0.5.17 srt/mem_cache: one slot more is allocated and counted (0.5.16 not checked)"),
    Rule("draft_states", (0, 0, 0), "every_slot", "sglang 0.5.4 and 0.5.6 srt/model_executor/model_runner.py: each slot has its draft states"),
    Rule("draft_states", (0, 5, 8), "before_split", "sglang 0.5.8 to 0.5.12: draft states of max_running_requests come off before the split"),
    Rule("draft_states", (0, 5, 13), "within_split", "sglang 0.5.13 to 0.5.23: slots and draft states share the state's part"),
    Rule("state_dtype_from_config", (0, 0, 0), False, "sglang 0.5.8 srt/server_args.py: float32 unless --mamba-ssm-dtype"),
    Rule("state_dtype_from_config", (0, 5, 9), True, "sglang 0.5.9 srt/configs/mamba_utils.py: the config's mamba_ssm_dtype, else float32"),
    Rule("state_tracking_slots", (0, 0, 0), 0, "sglang 0.5.13 and before: no_buffer by default"),
    Rule("state_tracking_slots", (0, 5, 15), 2, "sglang 0.5.15 srt/arg_groups/overrides.py: extra_buffer with the overlap schedule (0.5.14 not checked)"),
    Rule("window_pool_by_requests", (0, 0, 0), False, "sglang 0.5.13 and before: the window pool is a share of the full one"),
    Rule("window_pool_by_requests", (0, 5, 15), True, "sglang 0.5.15 srt/model_executor/pool_configurator.py: by requests without the radix cache"),
    Rule("draft_requests", (0, 0, 0), 32, "sglang 0.4.3 srt/server_args.py: max_running_requests of a server with a draft"),
    Rule("draft_requests", (0, 5, 0), 48, "sglang 0.5.6 to 0.5.23"),
    Rule("draft_counted", (0, 0, 0), False, "sglang 0.5.13 and before: draft weights and layers come out of what the share leaves"),
    Rule("draft_counted", (0, 5, 15), True, "sglang 0.5.15 srt/model_executor/pool_configurator.py: loaded before, and layers in the cell"),
    Rule("window_pool_checked", (0, 0, 0), False, "sglang 0.5.15 and before"),
    Rule("window_pool_checked", (0, 5, 17), True, "sglang 0.5.17 srt/model_executor/pool_configurator.py: a window pool below one window is refused"),
    Rule("compressed_pools", (0, 0, 0), "per_token", "sglang 0.5.12 and 0.5.13 srt/model_executor/pool_configurator.py: all states grow with the tokens"),
    Rule("compressed_pools", (0, 5, 15), "states_fixed", "sglang 0.5.15 to 0.5.19: states of a compression by 128 belong to requests"),
    Rule("compressed_pools", (0, 5, 21), "by_requests", "sglang 0.5.21: the window pool is sized by requests, pages are padded (0.5.20 not read)"),
)  # fmt: skip

WINDOW_POOLS: dict[str, Version] = {
    "GptOssForCausalLM": (0, 5, 0),
    "Llama4ForConditionalGeneration": (0, 5, 8),
    "Llama4ForCausalLM": (0, 5, 8),  # the name that the text part of the class above states
    "MiMoV2FlashForCausalLM": (0, 5, 7),
    "Step3p5ForCausalLM": (0, 5, 9),
    "DeepseekV4ForCausalLM": (0, 5, 11),
    "MiMoV2ForCausalLM": (0, 5, 11),
    "Gemma4ForCausalLM": (0, 5, 11),
    "Gemma4ForConditionalGeneration": (0, 5, 11),
    "LagunaForCausalLM": (0, 5, 11),
    "Step3p7ForConditionalGeneration": (0, 5, 14),
    "Gemma4UnifiedForConditionalGeneration": (0, 5, 14),
    "UnlimitedOCRForCausalLM": (0, 5, 14),
    "MellumForCausalLM": (0, 5, 16),
    "InklingForConditionalGeneration": (0, 5, 16),
    "MuseGlimmerForCausalLM": (0, 5, 18),
    "MuseGlimmerForConditionalGeneration": (0, 5, 18),
    "DiffusionGemmaForBlockDiffusion": (0, 5, 20),
}
"""Classes that have a pool of their own for window layers, with the first release; every other class keeps whole rows for all layers.

Source: sglang 0.5.2, 0.5.6, 0.5.8 to 0.5.10, 0.5.12, 0.5.15 to 0.5.23 srt/configs/model_config.py is_hybrid_swa_model; before 0.5.8
srt/model_executor/model_runner.py. A release between two that were read is taken for the later one's.
"""

WINDOW_RATIO = {"DeepseekV4ForCausalLM": 0.1, "InklingForConditionalGeneration": 0.1}
"""swa_full_tokens_ratio where a class has another default than 0.8 (sglang 0.5.12 and 0.5.19 srt/arg_groups)."""

TRACKED_STATES = (
    "qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "kimi_linear", "falcon_h1", "granitemoehybrid", "nemotron_h",
)  # fmt: skip
"""Model types whose radix cache keeps tracking slots beside the states (sglang 0.5.23 srt/arg_groups/overrides.py)."""

RELEASED = (
    ((0, 4, 3), "2025-02-14"), ((0, 4, 4), "2025-03-13"), ((0, 4, 5), "2025-04-07"), ((0, 4, 6), "2025-04-27"), ((0, 4, 7), "2025-06-10"),
    ((0, 4, 8), "2025-06-24"), ((0, 4, 9), "2025-07-06"), ((0, 4, 10), "2025-07-31"), ((0, 5, 1), "2025-08-23"), ((0, 5, 2), "2025-09-11"),
    ((0, 5, 3), "2025-10-06"), ((0, 5, 4), "2025-10-24"), ((0, 5, 5), "2025-11-06"), ((0, 5, 6), "2025-12-03"), ((0, 5, 7), "2026-01-01"),
    ((0, 5, 8), "2026-01-23"), ((0, 5, 9), "2026-02-23"), ((0, 5, 10), "2026-04-05"), ((0, 5, 11), "2026-05-07"), ((0, 5, 12), "2026-05-16"),
    ((0, 5, 13), "2026-06-11"), ((0, 5, 14), "2026-06-26"), ((0, 5, 15), "2026-07-10"), ((0, 5, 16), "2026-07-25"), ((0, 5, 17), "2026-08-08"),
    ((0, 5, 18), "2026-08-21"), ((0, 5, 19), "2026-09-04"), ((0, 5, 20), "2026-09-18"), ((0, 5, 21), "2026-10-01"), ((0, 5, 22), "2026-10-16"),
    ((0, 5, 23), "2026-10-30"),
)  # fmt: skip
"""Releases and the day each was uploaded (PyPI, sglang)."""


def rule(name: str, version: Version) -> Any:
    """The value of a rule at a version: the last entry whose `since` is not later."""
    return find_rule(RULES, name, version)


def release_on(day: str) -> Version:
    """The newest release on a day.

    Args:
        day: `2025-03-25`, or a month, `2025-03`.

    Returns:
        Its version; the oldest known for an earlier day.

    Source: PyPI, upload times of sglang.

    >>> release_on("2025-03-25")
    (0, 4, 4)
    """
    found = OLDEST
    for version, released in RELEASED:
        if released <= day:
            found = version
    return found


def version_words(text: str | None) -> str | None:
    """The version that a day or a month stands for, as text: the newest release when it began; any other text as it is.

    >>> version_words("2025-10-24")
    '0.5.4'
    >>> version_words("2026-03")
    '0.5.9'
    >>> version_words("0.5.2")
    '0.5.2'
    """
    parts = (text or "").split("-")
    if [len(part) for part in parts] not in ([4, 2], [4, 2, 2]):
        return text
    if not all(part.isascii() and part.isdigit() for part in parts):
        return text
    return ".".join(map(str, release_on("-".join(parts))))


def has_window_pool(name: str, version: Version) -> bool:
    """Whether a class keeps its window layers in a pool of their own at a version.

    >>> has_window_pool("Gemma3ForCausalLM", (0, 5, 23))
    False
    """
    since = WINDOW_POOLS.get(name)
    return since is not None and since <= version
