"""The longest context that a config allows, as engines read it."""

from __future__ import annotations

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
    scaling = config.values.get("rope_scaling") or config.values.get("rope_parameters")
    if limit is None or not isinstance(scaling, dict) or "gemma3" in config.model_type:
        return limit
    kind = scaling.get("rope_type") or scaling.get("type")
    factor = scaling.get("factor")
    if kind not in ("yarn", "linear", "dynamic") or isinstance(factor, bool) or not isinstance(factor, (int, float)):
        return limit
    if not 0 < factor < 1e6:
        config.fail("rope_scaling", f"factor must be between 0 and 1e6, not {describe(factor)}")
    if kind == "yarn":
        original = scaling.get("original_max_position_embeddings")
        if isinstance(original, int) and not isinstance(original, bool) and 0 < original <= MAXIMUM_POSITIONS:
            limit = original
        elif config.states("max_position_embeddings"):
            return limit
    return min(int(limit * factor), MAXIMUM_POSITIONS)
