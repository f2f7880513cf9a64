"""What stays inside the limit after vLLM's profile run: workspaces of experts, indexers and the sampler, and memory outside PyTorch."""

from __future__ import annotations

from kvtax.architectures.cache import MultiHeadLatent, Recurrent
from kvtax.engines.vllm.outside import non_torch_part
from kvtax.engines.vllm.part import Part
from kvtax.engines.vllm.profile_run import FILTER_BUFFER_ROWS, LEAST_FILTER_ROWS, Step
from kvtax.engines.vllm.rules import rule, v2_runner
from kvtax.formulas.activation import moe_workspace_bytes
from kvtax.terms import Input
from kvtax.units import ceil_div

_CONFIG = "config.json"
INDEX_GATHER_REQUESTS = 40
"""Sparse attention gathers the index rows of at most 40 requests of max_model_len (vllm 0.11.2 to 0.32.0 v1/attention/backends/mla/indexer.py)."""


def persistent_parts(step: Step, ranks: int) -> list[Part]:
    """The persistent parts of a rank.

    Args:
        step: of the profile run.
        ranks: that communicate [ranks].
    """
    shared = [part for part in (_moe_workspace(step), _indexer_workspace(step)) if part is not None]
    workspace = [max(shared, key=lambda part: part.bytes)] if shared else []  # one buffer, as large as its largest use
    buffers = _sampler_buffers(step)
    plain = _plain(step)
    return [*workspace, *([buffers] if buffers else []), non_torch_part(step.gpu, step.version, ranks, plain)]


def _plain(step: Step) -> bool:
    """Whether a model has neither a vision tower nor recurrent state."""
    recurrent = any(isinstance(cache, Recurrent) for cache in step.architecture.caches)
    return not recurrent and all(tensor.component != "vision" for tensor in step.architecture.tensors)


def _indexer_workspace(step: Step) -> Part | None:
    """The rows that a sparse-attention indexer gathers: 40 * max_model_len * index_bytes."""
    latent = [cache for cache, _ in step.architecture.cache_groups if isinstance(cache, MultiHeadLatent)]
    row = max((cache.index_bytes for cache in latent), default=0)
    if not row or not rule("moe_workspace_kept", step.version):
        return None
    inputs = {
        "requests": Input(INDEX_GATHER_REQUESTS, "requests", "of the engine"),
        "max_model_len": Input(step.max_model_len, "tokens", "setting"),
        "index_bytes": Input(row, "B", _CONFIG),
    }
    size = INDEX_GATHER_REQUESTS * step.max_model_len * row
    source = "vllm model_executor/layers/sparse_attn_indexer.py: reserved in the profile run"
    return Part("indexer_workspace", size, "requests * max_model_len * index_bytes", inputs, source)


def _moe_workspace(step: Step) -> Part | None:
    """The workspace of fused experts, which a manager keeps: two buffers of a row per token and expert.

    tokens * experts_per_token * element_bytes * (max(width, hidden_size) + max(2 * width, hidden_size))
    """
    architecture = step.architecture
    if (
        not architecture.num_experts
        or not architecture.moe_intermediate_size
        or not rule("moe_workspace_kept", step.version)
    ):
        return None
    width, tokens = step.expert_width, step.expert_tokens
    widths = max(width, architecture.hidden_size) + max(2 * width, architecture.hidden_size)
    size = moe_workspace_bytes(
        tokens, architecture.num_experts_per_tok, architecture.hidden_size, width, step.element_bytes
    )
    inputs = {
        "tokens": Input(tokens, "tokens", "max_num_batched_tokens x data_parallel_size, at most a chunk"),
        "experts_per_token": Input(architecture.num_experts_per_tok, "experts", _CONFIG),
        "element_bytes": Input(step.element_bytes, "B", "dtype"),
        "widths": Input(
            widths,
            "elements",
            f"{_CONFIG}: max(width, hidden_size) + max(2 x width, hidden_size), width {width} on a rank",
        ),
    }
    formula = "tokens * experts_per_token * element_bytes * widths"
    return Part(
        "moe_workspace",
        size,
        formula,
        inputs,
        "vllm model_executor/layers/fused_moe/modular_kernel.py, v1/worker/workspace.py",
    )


def _sampler_buffers(step: Step) -> Part | None:
    """Buffers of the sampler: counts of tokens per request (V2 runner), or rows of the top-k/top-p kernel (V1 runner since 0.17)."""
    if step.pooling:
        return None
    vocab = Input(step.architecture.vocab_size, "tokens", _CONFIG)
    if v2_runner(step.architecture, step.version):
        size = step.seqs * (4 * step.architecture.vocab_size + 4 * ceil_div(step.architecture.vocab_size, 32))
        inputs = {"max_num_seqs": Input(step.seqs, "requests", "setting"), "vocab_size": vocab}
        formula = "max_num_seqs * 4 * (vocab_size - (-vocab_size // 32))"
        return Part(
            "sampler_buffers",
            size,
            formula,
            inputs,
            "vllm v1/worker/gpu/sample/penalties.py: counts and a mask per request",
        )
    if rule("sampler_sorts", step.version) or step.rows < LEAST_FILTER_ROWS:
        return None
    rows = min(1 << (step.rows - 1).bit_length(), FILTER_BUFFER_ROWS)
    inputs = {
        "programs": Input(rows, "rows", f"at most about {FILTER_BUFFER_ROWS} multiprocessors"),
        "vocab_size": vocab,
    }
    size = rows * step.architecture.vocab_size * 4
    return Part(
        "sampler_buffers",
        size,
        "programs * vocab_size * 4",
        inputs,
        "vllm v1/sample/ops/topk_topp_triton.py: a row per program",
    )
