"""Transient memory of a step: what a profile run finds above the weights."""

from __future__ import annotations


def forward_peak_bytes(tokens: int, hidden_size: int, width: int, element_bytes: int, copies: int = 3) -> int:
    """Peak of a step: residual, input and output of a layer, and its widest part.

    tokens * element_bytes * (copies * hidden_size + width)

    Args:
        tokens: max_num_batched_tokens [tokens].
        hidden_size: [elements].
        width: of a gated MLP 3 x intermediate_size, of attention 2 x (query + key) width, of experts their buffers, on one rank [elements].
        element_bytes: of the activation dtype [bytes].
        copies: hidden states alive at once: residual, input and output; two where the output takes the input's place [copies].

    Returns:
        Size [bytes].

    Source: vllm 0.33.0 model_executor/models/llama.py by reading; 2.07 and 2.99 GiB were printed for 20,000 and 29,000 tokens of an 8B model.

    >>> forward_peak_bytes(20_000, 4096, 3 * 14336, 2)
    2211840000
    """
    return tokens * element_bytes * (copies * hidden_size + width)


def sampler_peak_bytes(
    tokens: int, rows: int, hidden_size: int, vocab_size: int, bytes_per_logit: int, element_bytes: int
) -> int:
    """Peak at the sampler: logits with their copies, hidden states of the step, and those of `rows` requests twice (picked, and random in their place).

    rows * vocab_size * bytes_per_logit + (tokens + 2 * rows) * hidden_size * element_bytes

    Args:
        tokens: max_num_batched_tokens [tokens].
        rows: min(max_num_seqs, tokens) [requests].
        hidden_size: [elements].
        vocab_size: [tokens].
        bytes_per_logit: of the sampler, copies in [bytes].
        element_bytes: of the activation dtype [bytes].

    Returns:
        Size [bytes].

    Source: vllm 0.12.0 v1/worker/gpu_model_runner.py _dummy_sampler_run; with 32 MiB of cuBLAS workspace it is the 4.76 GiB that was printed.

    >>> sampler_peak_bytes(8192, 1024, 4096, 128256, 38, 2)
    5074583552
    """
    return rows * vocab_size * bytes_per_logit + (tokens + 2 * rows) * hidden_size * element_bytes


def expert_elements(experts_per_token: int, hidden_size: int, moe_intermediate_size: int) -> int:
    """Elements of one token in the two buffers of a call of fused experts.

    experts_per_token * (max(2 * moe_intermediate_size, hidden_size) + moe_intermediate_size)

    Args:
        experts_per_token: num_experts_per_tok [experts].
        hidden_size: [elements].
        moe_intermediate_size: of one rank [elements].

    Returns:
        Count [elements].

    Source: vllm 0.12.0 model_executor/layers/fused_moe/fused_moe.py (intermediate_cache13, intermediate_cache2).

    >>> expert_elements(8, 2048, 768)
    22528
    """
    return experts_per_token * (max(2 * moe_intermediate_size, hidden_size) + moe_intermediate_size)


def encoder_peak_bytes(patches: int, patch_elements: int, hidden_size: int, width: int, element_bytes: int) -> int:
    """Peak inside a vision tower: pixels, residual and input, and the wider of attention and MLP.

    patches * element_bytes * (patch_elements + 2 * hidden_size + width)

    Args:
        patches: of all items [patches].
        patch_elements: channels x frames x side x side [elements].
        hidden_size: of the tower [elements].
        width: of attention 8 x hidden_size (qkv, q and k before and after they are turned, output), or the MLP's, on one rank [elements].
        element_bytes: of the activation dtype [bytes].

    Returns:
        Size [bytes].

    Source: vllm 0.12.0 model_executor/models/qwen3_vl.py and qwen2_5_vl.py, by reading.

    >>> encoder_peak_bytes(65536, 1536, 1152, 8 * 1152, 2)
    1711276032
    """
    return patches * element_bytes * (patch_elements + 2 * hidden_size + width)


def encoder_kept_bytes(embeddings: int, out_width: int, patches: int, patch_elements: int, element_bytes: int) -> int:
    """What stays of a profiled tower: embeddings, copies that are padded included, and pixels.

    element_bytes * (embeddings * out_width + patches * patch_elements)

    Args:
        embeddings: rows, padded ones too [tokens].
        out_width: of an embedding, deepstack features included [elements].
        patches: of all items [patches].
        patch_elements: [elements].
        element_bytes: of the activation dtype [bytes].

    Returns:
        Size [bytes].

    Source: vllm 0.12.0 v1/worker/gpu_model_runner.py profile_run; 2.7 GiB between two starts of 0.12 with and without Qwen3-VL's tower.

    >>> encoder_kept_bytes(165888, 8192, 49152, 1536, 2)
    2868903936
    """
    return element_bytes * (embeddings * out_width + patches * patch_elements)


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
