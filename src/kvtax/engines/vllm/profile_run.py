"""What vLLM's profile run finds above the weights: the peak of a step, and what stays after it.

The run feeds the vision tower, then a step of max_num_batched_tokens, then the sampler of as many requests as may run. The peak is the largest
moment of the three, not their sum; what the tower made is kept while the other two run.

Before 0.17 the sampler sorts all logits, with copies that the sort's own algorithm decides on. Read from v1/sample/ops/topk_topp_sampler.py
and PyTorch's sort of rows: logits in the model dtype and in float32, sorted values and int64 indices, and from 128 rows on 8 + 12 B of indices
and scratch, below it (all rows in one sort) 8 + 8 + 4 + 12 B. The activation that nine starts printed is met within 0.02 GiB.
"""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CompressedLatent, MultiHeadLatent
from kvtax.engines.base import Version
from kvtax.engines.vllm.encoder import EncoderRun, cross_attention_elements
from kvtax.engines.vllm.part import Part
from kvtax.engines.vllm.rules import rule, v2_runner
from kvtax.formulas.activation import (
    encoder_kept_bytes,
    encoder_peak_bytes,
    expert_elements,
    forward_peak_bytes,
    sampler_peak_bytes,
)
from kvtax.hardware.gpu import Gpu
from kvtax.terms import Input
from kvtax.units import KIB, MIB, ceil_div

GEMM_WORKSPACE_BYTES = 8 * MIB + 128 * KIB
HOPPER_GEMM_WORKSPACE_BYTES = 32 * MIB
"""PyTorch's cuBLAS workspace: 2 x 4 MiB + 8 x 16 KiB, 32 MiB on Hopper and Blackwell (aten/src/ATen/cuda/CublasHandlePool.cpp)."""
SORT_BY_ROW = 128
"""Rows from which PyTorch sorts row by row (aten/src/ATen/native/cuda/SortStable.cu)."""
FILTER_BUFFER_ROWS = 128
"""Programs of the top-k/top-p kernel at once, each with a row of float32: the multiprocessors of the card, 108 on A100, 132 on H100."""
LEAST_FILTER_ROWS = 8
LATENT_CONTEXT_TOKENS = 65_536
LATENT_BLOCK_TOKENS = 16
INDEX_LOGITS_BYTES = 512 * MIB
COMPRESSED_QUERY_COPIES = 10
"""DeepSeek V4: widths of the query that a step holds at once: 0.65 MiB a token at one rank (two boots on GB10, exactly linear in the step)."""


class Step(NamedTuple):
    """What is profiled on one rank.

    Args:
        architecture: the model.
        gpu: the card.
        version: of the engine.
        tp: tensor_parallel_size [ranks].
        tokens: max_num_batched_tokens [tokens].
        seqs: max_num_seqs [requests].
        element_bytes: of the activation dtype [bytes].
        pooling: no logits are computed.
        encoder: the batch of the vision tower.
        state_bytes: recurrent state of one request on this rank [bytes].
        max_model_len: longest request [tokens].
        dp: data_parallel_size [ranks].
        expert_parallel: experts whole on ranks.
    """

    architecture: Architecture
    gpu: Gpu
    version: Version
    tp: int
    tokens: int
    seqs: int
    element_bytes: int
    pooling: bool = False
    encoder: EncoderRun | None = None
    state_bytes: int = 0
    max_model_len: int = 0
    encoder_split: bool = True
    dp: int = 1
    expert_parallel: bool = False

    @property
    def expert_tokens(self) -> int:
        """Tokens that the experts of one rank see: of all data-parallel ranks, which gather them, at most a chunk but for 4-bit kernels."""
        chunk = rule("expert_chunk_tokens", self.version)
        gathered = self.tokens * self.dp
        few_bits = (getattr(self.architecture.quantization, "bits", None) or 16) < 8
        return gathered if few_bits or not chunk else min(gathered, chunk)

    @property
    def expert_width(self) -> int:
        """Width of an expert on one rank: split over tensor and data parallel ranks, whole with expert parallelism [elements]."""
        whole = self.architecture.moe_intermediate_size
        return whole if self.expert_parallel else ceil_div(whole, self.tp * self.dp)

    @property
    def encoder_tp(self) -> int:
        """Ranks that a layer of the tower is split over [ranks]."""
        return self.tp if self.encoder_split else 1

    @property
    def rows(self) -> int:
        """Requests whose logits are computed: min(max_num_seqs, max_num_batched_tokens)."""
        return min(self.seqs, self.tokens)


_CONFIG = "config.json"


def activation(step: Step) -> Part:
    """The peak of the profile run: of the tower, of the step, or of the sampler, the last two beside what the tower made."""
    kept = kept_part(step)
    found = [
        part
        for part in (encoder_part(step), *(_beside(kept, part) for part in (forward_part(step), sampler_part(step))))
        if part
    ]
    return max(found, key=lambda part: part.bytes)


def _beside(kept: Part | None, part: Part | None) -> Part | None:
    if kept is None or part is None:
        return part
    inputs = {**part.inputs, "kept_bytes": Input(kept.bytes, "B", f"encoder outputs: {kept.formula}")}
    return Part(part.name, part.bytes + kept.bytes, f"{part.formula} + kept_bytes", inputs, part.source)


def gemm_workspace_bytes(gpu: Gpu) -> int:
    """The workspace that PyTorch gives cuBLAS, once allocated kept [bytes]."""
    major = (gpu.compute_capability or "").partition(".")[0]
    return HOPPER_GEMM_WORKSPACE_BYTES if major in ("9", "10") else GEMM_WORKSPACE_BYTES


def _step_inputs(step: Step) -> dict[str, Input]:
    return {
        "tokens": Input(step.tokens, "tokens", "max_num_batched_tokens"),
        "hidden_size": Input(step.architecture.hidden_size, "elements", _CONFIG),
        "element_bytes": Input(step.element_bytes, "B", "dtype"),
        "gemm_workspace_bytes": Input(gemm_workspace_bytes(step.gpu), "B", "PyTorch"),
    }


def forward_part(step: Step) -> Part:
    """The widest moment of a layer: residual, input and output, and the widest of MLP, attention and experts.

    tokens * element_bytes * (3 * hidden_size + width) + gemm_workspace_bytes

    Source: vllm 0.33.0 model_executor/models/llama.py by reading; a step of 20,000 and of 29,000 tokens of an 8B model took 2.07 and 2.99 GiB.
    """
    architecture, tp = step.architecture, step.tp
    query, key = (
        heads * architecture.head_dim for heads in (architecture.num_attention_heads, architecture.num_key_value_heads)
    )
    widths = {
        "3 * intermediate_size / tp": 3 * architecture.intermediate_size // tp,
        "(2 * query + 2 * key) / tp": (2 * query + 2 * key) // tp,
    }
    if any(isinstance(cache, CompressedLatent) for cache, _ in architecture.cache_groups):
        widths[f"{COMPRESSED_QUERY_COPIES} * query / tp"] = COMPRESSED_QUERY_COPIES * query // tp
    if architecture.num_experts and not rule("moe_workspace_kept", step.version):
        elements = expert_elements(architecture.num_experts_per_tok, architecture.hidden_size, step.expert_width)
        widths["experts: two buffers of a row per token and expert"] = elements * step.expert_tokens // step.tokens
    name = max(widths, key=lambda key: widths[key])
    inputs = {**_step_inputs(step), "width": Input(widths[name], "elements", f"{_CONFIG}: {name}")}
    size = forward_peak_bytes(step.tokens, architecture.hidden_size, widths[name], step.element_bytes)
    context, why = latent_context_bytes(step)
    inputs["context_bytes"] = Input(context, "B", why)
    inputs["states_bytes"] = Input(_state_slots(step), "B", "max_num_seqs x recurrent state")
    size += gemm_workspace_bytes(step.gpu) + context + _state_slots(step)
    formula = "tokens * element_bytes * (3 * hidden_size + width) + gemm_workspace_bytes + context_bytes + states_bytes"
    return Part("forward", size, formula, inputs, "vllm v1/worker profile_run: a step of max_num_batched_tokens")


def latent_context_bytes(step: Step) -> tuple[int, str]:
    """What latent attention allocates in the profile run in place of a real context, and how that comes about.

    Keys and values of up to 65,536 tokens: min(max(8 * max_model_len, 4 * max_num_seqs * block_size), 65536) * kv_b width / tp * element_bytes.
    Sparse attention: 512 MiB of index logits.

    Source: vllm 0.11.2 to 0.19.1 v1/attention/backends/mla/common.py (determine_chunked_prefill_workspace_size), 0.19.1
    model_executor/layers/sparse_attn_indexer.py (VLLM_SPARSE_INDEXER_MAX_LOGITS_MB).
    """
    latent = [cache for cache, _ in step.architecture.cache_groups if isinstance(cache, MultiHeadLatent)]
    if not latent:
        return 0, "no latent attention"
    if any(cache.index_bytes for cache in latent):
        if rule("index_logits_profiled", step.version):
            return INDEX_LOGITS_BYTES, "index logits"
        return 0, "not profiled by this version"
    if not rule("latent_context_profiled", step.version):
        return 0, "not profiled by this version"
    width = next((tensor.shape[0] for tensor in step.architecture.tensors if "kv_b_proj.weight" in tensor.name), 0)
    rows = min(max(8 * step.max_model_len, 4 * step.seqs * LATENT_BLOCK_TOKENS), LATENT_CONTEXT_TOKENS)
    return rows * (width // step.tp) * step.element_bytes, f"{rows} tokens x {width // step.tp} of kv_b_proj on a rank"


def _state_slots(step: Step) -> int:
    """States of all requests at once, which releases before hybrid models ran in the V1 engine allocate apart from the pool."""
    return 0 if rule("states_in_pool", step.version) else step.seqs * step.state_bytes


def bytes_per_logit(step: Step) -> int:
    """Bytes of the sampler's peak per request and token of the vocabulary.

    Sorting: element_bytes + 4 + 4 + 8 + 20 from 128 rows on, + 32 below, + 10 for one row. The top-k/top-p kernel: element_bytes + 4 + 4 + 4 (float32
    logits, probabilities, noise). The V2 runner: element_bytes, and 4 where the run has parameters that need float32.
    """
    if v2_runner(step.architecture, step.version):
        return step.element_bytes + (4 if rule("sampler_runs_float32", step.version) else 0)
    if rule("sampler_sorts", step.version) or step.rows < LEAST_FILTER_ROWS:
        sorting = 20 if step.rows >= SORT_BY_ROW else 32 if step.rows > 1 else 10
        return step.element_bytes + 16 + sorting
    return step.element_bytes + 12


def sampler_part(step: Step) -> Part | None:
    """The peak of the sampler, beside the step's hidden states; none where a model pools.

    rows * vocab_size * bytes_per_logit + (tokens + 2 * rows) * hidden_size * element_bytes + gemm_workspace_bytes

    Source: vllm 0.12.0 v1/worker/gpu_model_runner.py _dummy_sampler_run, 0.19.1 v1/sample/ops/topk_topp_sampler.py, 0.32.0 v1/worker/gpu/sample.
    """
    if step.pooling:
        return None
    architecture, each = step.architecture, bytes_per_logit(step)
    inputs = {
        **_step_inputs(step),
        "rows": Input(step.rows, "requests", "min(max_num_seqs, max_num_batched_tokens)"),
        "vocab_size": Input(architecture.vocab_size, "tokens", _CONFIG),
        "bytes_per_logit": Input(each, "B", "sampler of this version"),
        "states_bytes": Input(_state_slots(step), "B", "max_num_seqs x recurrent state"),
    }
    size = sampler_peak_bytes(
        step.tokens, step.rows, architecture.hidden_size, architecture.vocab_size, each, step.element_bytes
    )
    formula = "rows * vocab_size * bytes_per_logit + (tokens + 2 * rows) * hidden_size * element_bytes + gemm_workspace_bytes + states_bytes"
    return Part(
        "sampler",
        size + gemm_workspace_bytes(step.gpu) + _state_slots(step),
        formula,
        inputs,
        "vllm v1/worker profile_run: the sampler of max_num_seqs requests",
    )


def encoder_part(step: Step) -> Part | None:
    """The peak inside the vision tower: pixels, residual and input, and the wider of attention and MLP.

    patches * element_bytes * (patch_elements + 2 * tower_width + width)

    Source: vllm 0.12.0 model_executor/models/qwen3_vl.py, qwen2_5_vl.py by reading: qkv, q and k before and
    after they are turned and the output are eight widths.
    """
    patches, elements = cross_attention_elements(step.architecture)
    if patches:
        return _cross_attention_part(step, patches, elements)
    if step.encoder is None:
        return None
    tower = step.encoder.tower
    width = max(8 * tower.hidden_size, tower.mlp_width) // step.encoder_tp
    inputs = {
        "patches": Input(step.encoder.patches, "patches", f"{step.encoder.items} of the largest items"),
        "element_bytes": Input(step.element_bytes, "B", "dtype"),
        "patch_elements": Input(tower.patch_elements, "elements", _CONFIG),
        "tower_width": Input(tower.hidden_size, "elements", _CONFIG),
        "width": Input(
            width, "elements", f"{_CONFIG}: the wider of 8 x hidden and the MLP, one of {step.encoder_tp} ranks"
        ),
    }
    size = encoder_peak_bytes(step.encoder.patches, tower.patch_elements, tower.hidden_size, width, step.element_bytes)
    formula = "patches * element_bytes * (patch_elements + 2 * tower_width + width)"
    return Part("encoder", size, formula, inputs, "vllm v1/worker profile_run: the vision tower on the largest batch")


def _cross_attention_part(step: Step, patches: int, elements: int) -> Part:
    inputs = {
        "rows": Input(step.rows, "requests", "min(max_num_seqs, max_num_batched_tokens)"),
        "patches": Input(patches, "patches", "four tiles of one request"),
        "elements": Input(
            elements, "elements", f"{_CONFIG}: hidden states of six layers twice, text width, four tower widths"
        ),
        "element_bytes": Input(step.element_bytes, "B", "dtype"),
    }
    size = step.rows * patches * elements * step.element_bytes
    source = "vllm 0.6 model_executor/models/mllama.py: every request of the profile has an image"
    return Part("encoder", size, "rows * patches * elements * element_bytes", inputs, source)


def kept_part(step: Step) -> Part | None:
    """What the vision tower made and was given, which stays until the run ends: embeddings (and their padded copies) and pixels.

    element_bytes * ((tokens + padded_tokens) * out_width + patches * patch_elements)

    Source: vllm 0.12.0 v1/worker/gpu_model_runner.py profile_run: encoder_cache["tmp"], outputs expanded to the tokens of an item.
    """
    run = step.encoder
    if run is None:
        return None
    inputs = {
        "embeddings": Input(run.tokens, "tokens", "encoder outputs"),
        "padded_tokens": Input(run.padded_tokens, "tokens", "rows of the padded copies"),
        "out_width": Input(run.tower.out_width, "elements", _CONFIG),
        "patches": Input(run.patches, "patches", "encoder inputs"),
        "patch_elements": Input(run.tower.patch_elements, "elements", _CONFIG),
        "element_bytes": Input(step.element_bytes, "B", "dtype"),
    }
    rows = run.tokens + run.padded_tokens
    tower = run.tower
    size = encoder_kept_bytes(rows, tower.out_width, run.patches, tower.patch_elements, step.element_bytes)
    formula = "element_bytes * ((embeddings + padded_tokens) * out_width + patches * patch_elements)"
    return Part("kept", size, formula, inputs, "vllm v1/worker profile_run: the encoder cache")
