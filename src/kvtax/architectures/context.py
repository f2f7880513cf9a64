"""The longest context that a config allows, as engines read it."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.config import MAXIMUM_POSITIONS, Config, describe


def context_limit(config: Config) -> int | None:
    """The longest context that the config allows: max_position_embeddings, times the rope scaling factor where the type extends it.

    yarn: original_max_position_embeddings x factor; linear, dynamic: max_position_embeddings x factor; llama3, longrope, su, mrope: already in.

    Args:
        config: of the text model.

    Returns:
        Tokens, or None where the config states no limit.

    Source: vllm 0.33.0 config/model.py _get_and_verify_max_len.
    """
    limit = config.optional_integer(
        "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
        "max_target_positions", "max_sequence_length", "max_seq_length", "seq_len", "n_ctx", "context_length",
        maximum=MAXIMUM_POSITIONS,
    )  # fmt: skip
    if limit is None or "gemma3" in config.model_type:
        return limit
    factor = 1.0
    for scaling in _ropes(config):
        kind, times = scaling.get("rope_type") or scaling.get("type"), scaling.get("factor")
        if kind not in ("yarn", "linear", "dynamic") or times is None:
            continue
        if isinstance(times, bool) or not isinstance(times, (int, float)) or not 0 < times < 1e6:
            config.fail("rope_scaling", f"factor must be between 0 and 1e6, not {describe(times)}")
        if kind == "yarn":
            original = _positions(scaling.get("original_max_position_embeddings"))
            if original is not None:
                limit = original
            elif config.states("max_position_embeddings"):
                continue
        factor = times
    return min(int(limit * factor), MAXIMUM_POSITIONS)


def usual_context(config: Config) -> int | None:
    """The context that an engine takes where none is asked for, below the limit: a LongRoPE config's original_max_position_embeddings.

    Args:
        config: of the text model.

    Returns:
        Tokens, or None where the limit itself is taken.

    Source: vllm 0.33.0 config/model.py _get_and_verify_max_len (vllm-project/vllm#27431, 2025-10).
    """
    if any((scaling.get("rope_type") or scaling.get("type")) in ("longrope", "su") for scaling in _ropes(config)):
        return _positions(config.values.get("original_max_position_embeddings"))
    return None


def _ropes(config: Config) -> list[dict[str, Any]]:
    """The rope settings of the config: one, or one for each type of layer."""
    scaling = config.values.get("rope_scaling") or config.values.get("rope_parameters")
    if not isinstance(scaling, dict) or not scaling:
        return []
    inner = list(scaling.values())
    return inner if all(isinstance(one, dict) for one in inner) else [scaling]


def _positions(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAXIMUM_POSITIONS else None


def rope_factors(config: Config, rotary_dim: int) -> int:
    """Frequency factors of the rope scaling: rotary_dim / 2 for llama3, twice as many (short and long) for LongRoPE, else none [elements]."""
    for scaling in _ropes(config):
        kind = scaling.get("rope_type") or scaling.get("type")
        if kind in ("longrope", "su"):
            return rotary_dim
        if kind == "llama3":
            return rotary_dim // 2
    return 0
