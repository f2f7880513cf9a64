"""Transient memory of a step: what a profile run finds above the weights."""

from __future__ import annotations


def mlp_peak_bytes(tokens: int, hidden_size: int, intermediate_size: int, tp: int, element_bytes: int) -> int:
    """Peak inside a gated MLP: residual, input, gate and up, their product.

    tokens * element_bytes * (2 * hidden_size + 3 * intermediate_size // tp)

    Args:
        tokens: max_num_batched_tokens [tokens].
        hidden_size: [elements].
        intermediate_size: [elements].
        tp: tensor_parallel_size [ranks].
        element_bytes: of the activation dtype [bytes].

    Returns:
        Size [bytes].

    Source: vllm 0.33.0 model_executor/models/llama.py, by reading.

    >>> mlp_peak_bytes(8192, 4096, 14336, 1, 2)
    838860800
    """
    return tokens * element_bytes * (2 * hidden_size + 3 * intermediate_size // tp)


def attention_peak_bytes(
    tokens: int, hidden_size: int, query_width: int, key_value_width: int, tp: int, element_bytes: int
) -> int:
    """Peak around attention: residual, input, query, key, value and the output of attention.

    tokens * element_bytes * (2 * hidden_size + (2 * query_width + 2 * key_value_width) // tp)

    Args:
        tokens: max_num_batched_tokens [tokens].
        hidden_size: [elements].
        query_width: num_attention_heads x head_dim [elements].
        key_value_width: num_key_value_heads x head_dim [elements].
        tp: tensor_parallel_size [ranks].
        element_bytes: of the activation dtype [bytes].

    Returns:
        Size [bytes].

    Source: vllm 0.33.0 model_executor/models/llama.py, by reading.

    >>> attention_peak_bytes(8192, 4096, 4096, 1024, 1, 2)
    301989888
    """
    return tokens * element_bytes * (2 * hidden_size + (2 * query_width + 2 * key_value_width) // tp)


def logits_peak_bytes(tokens: int, rows: int, hidden_size: int, vocab_size: int, tp: int, element_bytes: int) -> int:
    """Peak at the sampler: hidden states of the step, logits of `rows` requests in the model dtype and in float32, gathered from all ranks.

    tokens * hidden_size * element_bytes + rows * vocab_size * (element_bytes + 4) + (rows * vocab_size * element_bytes // tp where tp > 1)

    Args:
        tokens: max_num_batched_tokens [tokens].
        rows: min(max_num_seqs, tokens) [requests].
        hidden_size: [elements].
        vocab_size: padded to a multiple of 64 [tokens].
        tp: tensor_parallel_size [ranks].
        element_bytes: of the activation dtype [bytes].

    Returns:
        Size [bytes].

    Source: vllm 0.33.0 v1/worker/gpu (V2 runner), by reading; the float32 path is profiled.

    >>> logits_peak_bytes(8192, 1024, 4096, 128256, 1, 2)
    855113728
    """
    gathered = rows * vocab_size * element_bytes // tp if tp > 1 else 0
    return tokens * hidden_size * element_bytes + rows * vocab_size * (element_bytes + 4) + gathered


def moe_workspace_bytes(
    tokens: int, experts_per_token: int, hidden_size: int, moe_intermediate_size: int, element_bytes: int
) -> int:
    """The persistent workspace of fused experts: two buffers of a row per token and expert.

    tokens * experts_per_token * element_bytes * (max(moe_intermediate_size, hidden_size) + max(2 * moe_intermediate_size, hidden_size))

    Args:
        tokens: max_num_batched_tokens [tokens].
        experts_per_token: num_experts_per_tok [experts].
        hidden_size: [elements].
        moe_intermediate_size: of one rank [elements].
        element_bytes: of the activation dtype [bytes].

    Returns:
        Size [bytes].

    Source: vllm 0.33.0 model_executor/layers/fused_moe (Triton experts), by reading.

    >>> moe_workspace_bytes(8192, 8, 2048, 768, 2)
    536870912
    """
    widths = max(moe_intermediate_size, hidden_size) + max(2 * moe_intermediate_size, hidden_size)
    return tokens * experts_per_token * element_bytes * widths


def rope_cache_bytes(max_position_embeddings: int, rotary_dim: int, element_bytes: int) -> int:
    """The cos and sin tables of one rope, kept for the whole context.

    max_position_embeddings * rotary_dim * element_bytes

    Args:
        max_position_embeddings: longest context of the config [tokens].
        rotary_dim: width that is turned [elements].
        element_bytes: of the model dtype [bytes].

    Returns:
        Size [bytes].

    Source: vllm 0.33.0 model_executor/layers/rotary_embedding, measured on Llama 3.1 (33.5 MB).

    >>> rope_cache_bytes(131072, 128, 2)
    33554432
    """
    return max_position_embeddings * rotary_dim * element_bytes
