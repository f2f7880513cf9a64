"""What a step needs for a while above the weights, part by part: the parts do not come at once, so the largest counts."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.formulas.activation import forward_peak_bytes, moe_workspace_bytes, rope_cache_bytes, sampler_peak_bytes
from kvtax.units import ceil_div

_COPIES = 2
"""Hidden states alive at once where a layer's output takes the place of its input."""
FRAGMENTATION = 1.04
"""The allocator's own share of a peak: 2 to 10 % over the tensors."""


def step_peaks(architecture: Architecture, tp: int, tokens: int, rows: int, element_bytes: int) -> dict[str, int]:
    """Peaks of a step of `tokens` tokens whose last `rows` positions get logits [bytes].

    Args:
        architecture: of the model.
        tp: ranks that share a layer [ranks].
        tokens: of the step [tokens].
        rows: positions with logits [requests].
        element_bytes: of the activation dtype [bytes].

    Returns:
        mlp, attention, logits and, in a mixture, experts (residual and input beside the rows of each token's experts) [bytes].

    Source: formulas.activation, from the shapes of the tensors that are alive at once.
    """
    hidden = architecture.hidden_size
    query, key_value = (
        heads * architecture.head_dim for heads in (architecture.num_attention_heads, architecture.num_key_value_heads)
    )
    shared, projected = 3 * architecture.intermediate_size // tp, 2 * (query + key_value) // tp
    vocab, per_logit = architecture.vocab_size, element_bytes + 4  # in the model's dtype and in float32
    peaks = {
        "mlp": forward_peak_bytes(tokens, hidden, shared, element_bytes, _COPIES),
        "attention": forward_peak_bytes(tokens, hidden, projected, element_bytes, _COPIES),
        "logits": sampler_peak_bytes(tokens, min(rows, tokens), hidden, vocab, per_logit, element_bytes),
    }
    if architecture.num_experts and architecture.moe_intermediate_size:
        width = ceil_div(architecture.moe_intermediate_size, tp)
        workspace = moe_workspace_bytes(tokens, architecture.num_experts_per_tok, hidden, width, element_bytes)
        peaks["experts"] = workspace + 2 * tokens * hidden * element_bytes
    return peaks


def rope_bytes(architecture: Architecture, element_bytes: int) -> int:
    """The rope table of the whole context in `element_bytes`, none without rope [bytes]."""
    if not architecture.rotary_dim or not architecture.max_position_embeddings:
        return 0
    return rope_cache_bytes(architecture.max_position_embeddings, architecture.rotary_dim, element_bytes)
