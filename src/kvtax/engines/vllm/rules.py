"""vLLM's defaults by version: one entry per change, with its source."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CompressedLatent, MultiHeadLatent, Recurrent
from kvtax.dtypes import TURBOQUANT_BITS
from kvtax.engines.base import Rule, Version, find_rule
from kvtax.hardware.gpu import Gpu
from kvtax.units import GIB, MIB

NEWEST = (0, 33)
OLDEST = (0, 8)
FIRST_V1 = (0, 8)
"""The first version whose default is the V1 engine."""

BACKEND_BLOCK_SIZES = {
    "FLASHMLA": 64, "FLASHMLA_SPARSE": 64, "FLASHINFER_MLA": 64, "CUTLASS_MLA": 128, "FLASH_ATTN_MLA": 16, "TRITON_MLA": 16, "FLASH_ATTN": 16,
    "FLASHINFER": 16, "TRITON_ATTN": 16, "FLEX_ATTENTION": 16, "TREE_ATTN": 16, "ROCM_ATTN": 16, "ROCM_AITER_FA": 16, "XFORMERS": 16,
}  # fmt: skip
"""Tokens of a block of the backends (vllm 0.33.0 v1/attention/backends)."""

RULES = (
    Rule("gpu_memory_utilization", (0, 0), 0.90, "vllm config/cache.py 0.8.5 to 0.19.1"),
    Rule("gpu_memory_utilization", (0, 20), 0.92, "vllm config/cache.py 0.20.0"),
    Rule("cuda_graphs_inside", (0, 0), False, "vllm v1/worker/gpu_worker.py before 0.20: graphs are captured outside the limit"),
    Rule("cuda_graphs_inside", (0, 20), True, "vllm v1/worker/gpu_worker.py 0.20.0: an estimate is subtracted before the pool"),
    Rule("sampler_sorts", (0, 0), True, "vllm v1/sample/ops/topk_topp_sampler.py 0.8.5 to 0.16.0: top-k and top-p sort all logits"),
    Rule("sampler_sorts", (0, 17), False, "vllm 0.19.1 v1/sample/ops/topk_topp_triton.py; two starts of 0.17.1 show it (0.17.0 not read)"),
    Rule("v2_runner", (0, 0), (), "vllm config/vllm.py up to 0.19.1: only where asked for"),
    Rule("v2_runner", (0, 22), ("dense 16-bit",), "vllm 0.22.0 config/vllm.py: neither experts nor quantised weights"),
    Rule("v2_runner", (0, 26), ("dense 16-bit", "dense"), "vllm 0.26.0 config/vllm.py: neither experts nor recurrent state"),
    Rule("v2_runner", (0, 30), ("dense 16-bit", "dense", "all"), "vllm 0.30 to 0.33: the default of all models"),
    Rule("sampler_runs_float32", (0, 0), True, "vllm 0.22.0 v1/worker/gpu/sample/sampler.py: logits are copied to float32"),
    Rule("sampler_runs_float32", (0, 26), False, "vllm 0.26.0 to 0.32.0 v1/worker/gpu/sample/sampler.py: no copy without parameters that need one"),
    Rule("sampler_runs_float32", (0, 33), True, "vllm 0.33.0 v1/worker/gpu: run once more with penalties and top-k/top-p"),
    Rule("moe_workspace_kept", (0, 0), False, "vllm 0.12.0 fused_moe.py: buffers of a call"),
    Rule("moe_workspace_kept", (0, 14), True, "vllm 0.14.0 v1/worker/workspace.py: one workspace, kept (0.13 not read)"),
    Rule("expert_chunk_tokens", (0, 0), 32_768, "vllm 0.10.2, 0.11.2 envs.py VLLM_FUSED_MOE_CHUNK_SIZE"),
    Rule("expert_chunk_tokens", (0, 12), 16_384, "vllm 0.12.0 to 0.16.0 envs.py VLLM_FUSED_MOE_CHUNK_SIZE; Marlin's experts are not cut"),
    Rule("expert_chunk_tokens", (0, 19), 0, "vllm 0.19.1: tokens are no longer cut into chunks (0.17 and 0.18 not read)"),
    Rule("video_placeholder_factor", (0, 0), 12.5, "vllm 0.12.0 qwen3_vl.py get_max_video_tokens: 12.5 tokens for each of a video"),
    Rule("video_placeholder_factor", (0, 14), 1, "vllm 0.14.0 qwen3_vl.py (0.13 not read)"),
    Rule("video_grid_steps", (0, 0), 8, "vllm 0.8.5, 0.10.2 qwen2_vl.py: at most 16 frames of the largest image, two a step"),
    Rule("video_grid_steps", (0, 11), 7, "vllm 0.11.2 to 0.32.0 qwen2_vl.py: 14 frames"),
    Rule("states_in_pool", (0, 0), False, "vllm V0 mamba_cache.py: a state for each of max_num_seqs, apart from the pool"),
    Rule("states_in_pool", (0, 11), True, "vllm 0.11: hybrid models run in the V1 engine"),
    Rule("latent_context_profiled", (0, 0), False, "vllm 0.10.2 v1/attention/backends/mla/common.py: no such allocation"),
    Rule("latent_context_profiled", (0, 11), True, "vllm 0.11.2 v1/attention/backends/mla/common.py: allocated where there is no metadata"),
    Rule("index_logits_profiled", (0, 0), False, "vllm 0.16.0 sparse_attn_indexer.py: no such allocation"),
    Rule("index_logits_profiled", (0, 19), True, "vllm 0.19.1 sparse_attn_indexer.py (0.17 and 0.18 not read)"),
    Rule("counts_non_torch", (0, 0), False, "vllm 0.2 worker/worker.py: the peak of PyTorch's allocator alone"),
    Rule("counts_non_torch", (0, 3), True, "vllm 0.3 worker/worker.py: the difference of free memory"),
    Rule("communicators_outside", (0, 0), False, "vllm 0.10.2 gpu_worker.py: first snapshot before init_distributed_environment"),
    Rule("communicators_outside", (0, 12), True, "vllm 0.11.2 and 0.12.0 gpu_worker.py: first snapshot after it"),
    Rule("context_inside", (0, 0), 480 * MIB, "vllm up to 0.6.3 (PR 10511, 12126): all memory in use but PyTorch's own is taken off"),
    Rule("context_inside", (0, 7), 0, "vllm 0.7 worker/worker.py: growth since the first snapshot"),
    Rule("context_inside", (0, 8), 480 * MIB, "vllm 0.8.5 v1 gpu_worker.py: all memory in use but PyTorch's own is taken off"),
    Rule("context_inside", (0, 9), 0, "vllm 0.9.2 utils memory_profiling: growth since the first snapshot"),
    Rule("early_rdna", (0, 0), True, "six starts of 0.11.2 on R9700"),
    Rule("early_rdna", (0, 13), False, "eight starts of 0.13 on the same machine"),
    Rule("a100_is_large", (0, 0), True, "vllm 0.8.5 arg_utils.py: all cards of 70 GiB"),
    Rule("a100_is_large", (0, 9), False, "vllm-project/vllm#17885: names with a100 are left out"),
    Rule("largest_step", (0, 0), 8192, "vllm arg_utils.py 0.8.5 to 0.26.0"),
    Rule("largest_step", (0, 28), 16384, "vllm 0.32.0 arg_utils.py: 16384 from 160 GiB (not in 0.26.0)"),
    Rule("whole_prompt_tokens", (0, 0), 1 << 40, "vllm V0 without chunked prefill: a prompt is one step"),
    Rule("whole_prompt_tokens", (0, 5), 32_768, "vllm 0.5 engine/arg_utils.py: chunked prefill is on above 32k tokens"),
    Rule("whole_prompt_tokens", (0, 8), 0, "vllm V1: chunked prefill is on"),
    Rule("in_flight_steps", (0, 0), 1, "vllm v1/kv_cache_interface.py: one step of max_num_batched_tokens"),
    Rule("in_flight_steps", (0, 26), 2, "vllm 0.26: two batches are in flight with async scheduling"),
    Rule("one_request_checked", (0, 0), False, "vllm 0.2 worker: any pool that is not empty is taken"),
    Rule("one_request_checked", (0, 3), True, "vllm 0.3 worker: a request of max_model_len must fit"),
    Rule("reserved_blocks", (0, 0), 0, "vllm v1/core/kv_cache_utils.py"),
    Rule("reserved_blocks", (0, 30), 1, "vllm 0.30: the null block is kept back when one request is checked"),
    Rule("mxfp4_kernels", (0, 0), (), "a start of vllm 0.11 on H100 prints 65.97 GiB for gpt-oss-120b: padded"),
    Rule("mxfp4_kernels", (0, 13), ("9", "10"), "vllm 0.33.0 on H100 loads experts as stored (engine run); the release that began is not known"),
    Rule("longrope_original", (0, 0), False, "vllm config.py: the longest context is the default"),
    Rule("longrope_original", (0, 12), True, "vllm-project/vllm#27431 (2025-10): the original context of LongRoPE is the default"),
    Rule("balanced_stages", (0, 0), False, "vllm 0.6 distributed/utils.py get_pp_indices: what is left over goes to the last stage (DeepSeek-V3: 30 and 31)"),
    Rule("balanced_stages", (0, 8), True, "vllm 0.8: what is left over goes to the stages before the last (release not checked)"),
    Rule("latent_absorbed", (0, 0), "none", "vllm 0.6: keys and values are computed from the latent, nothing is absorbed"),
    Rule("latent_absorbed", (0, 7), "into-projections", "vllm 0.7.3 attention/backends/mla: multiplied into the query and output projections"),
    Rule("latent_absorbed", (0, 8), "copies", "vllm 0.8 attention/backends/mla: kv_b_proj is split"),
    Rule("hybrid_manager", (0, 0), False, "vllm 0.8.5 v1/core/kv_cache_utils.py: window layers allocate like full ones"),
    Rule("hybrid_manager", (0, 9), True, "vllm 0.9.2 v1/core/kv_cache_utils.py: groups of layers"),
    Rule("hybrid_prefix_caching", (0, 0), False, "vllm engine/arg_utils.py up to 0.27.1: opt-in for models with recurrent state"),
    Rule("hybrid_prefix_caching", (0, 28), True, "vllm-project/vllm#50991 (2026-08), on in 0.28.0 and in 0.33.0 (engine run)"),
    Rule("prefill_checkpoints", (0, 0), False, "starts of Qwen3-Next up to 0.13: blocks of 544 tokens, two states"),
    Rule("prefill_checkpoints", (0, 30), True, "vllm 0.33.0 (engine run: blocks of 576, three states); the release that began is not known"),
    Rule("expert_adapters", (0, 0), False, "vllm lora/layers: linear layers only"),
    Rule("expert_adapters", (0, 12), True, "vllm 0.12 lora/layers/fused_moe.py (0.11 not read)"),
    Rule("online_by_layer", (0, 0), False, "vllm 0.12 quantization/fp8.py: 16-bit parameters of the whole model, then converted"),
    Rule("online_by_layer", (0, 17), True, "vllm model_loader/reload: each layer is converted as it is loaded (first release not known)"),
    Rule("kv_lines", (0, 0), "two", "vllm v1/core/kv_cache_utils.py: tokens and concurrency in a line each"),
    Rule("kv_lines", (0, 30), "one", "vllm 0.32 (log of a CPU server): both in one line"),
    Rule("token_count", (0, 0), "blocks", "vllm 0.8: num_blocks x block_size"),
    Rule("token_count", (0, 9), "groups", "vllm 0.9 to 0.20: num_blocks // groups x block_size"),
    Rule("token_count", (0, 21), "concurrency", "vllm 0.22: concurrency x max_model_len (0.21 not checked)"),
)  # fmt: skip


def rule(name: str, version: Version) -> Any:
    """The value of a rule at a version: the last entry whose `since` is not later."""
    return find_rule(RULES, name, version)


def v2_runner(architecture: Architecture, version: Version) -> bool:
    """Whether the V2 model runner is the default for a model.

    Source: vllm 0.22.0, 0.26.0 and 0.33.0 config/vllm.py (use_v2_model_runner).
    """
    kinds = rule("v2_runner", version)
    if "all" in kinds:
        return True
    dense = not architecture.num_experts and not any(isinstance(cache, Recurrent) for cache in architecture.caches)
    return dense and ("dense" in kinds or ("dense 16-bit" in kinds and architecture.quantization is None))


def default_max_num_batched_tokens(gpu: Gpu, total_bytes: int, version: Version = NEWEST) -> int:
    """Tokens of one step of the API server.

    >= 160 GiB: 16384; >= 70 GiB and neither A100 nor GB10: 8192; else 2048. The V0 engine: 2048.

    Source: vllm 0.33.0 engine/arg_utils.py get_batch_defaults.
    """
    if version < FIRST_V1:
        return 2048
    if total_bytes >= 160 * GIB:
        return int(rule("largest_step", version))
    return 8192 if _large(gpu, total_bytes, version) else 2048


def default_max_num_seqs(gpu: Gpu, total_bytes: int, version: Version = NEWEST) -> int:
    """Requests that run at once: >= 70 GiB and neither A100 nor GB10: 1024; else 256. The V0 engine: 256.

    0.8.0 to 0.8.3 took 1024 on every card (vllm-project/vllm#16158); patches are not told apart, and 0.8 stands for 0.8.5.

    Source: vllm 0.33.0 engine/arg_utils.py get_batch_defaults.
    """
    return 1024 if _large(gpu, total_bytes, version) and version >= FIRST_V1 else 256


def _large(gpu: Gpu, total_bytes: int, version: Version) -> bool:
    # the engine looks for "a100" in the name that the driver gives; an A800 is not one
    small = "a100" in gpu.id.lower() and not rule("a100_is_large", version)
    return total_bytes >= 70 * GIB and not small and not gpu.unified_memory


def attention_block_size(architecture: Architecture, gpu: Gpu, kv_cache_dtype: str, backend: str | None = None) -> int:
    """Tokens of a block that the attention backend takes by default.

    16; latent attention: 64 where it is sparse, 128 on Blackwell, 64 with fp8 on Hopper; TurboQuant 32; a backend that is named: its own.

    Source: vllm 0.33.0 platforms/cuda.py and the backends it chooses (reproduced for H100, B200, A100, L4).
    """
    named = BACKEND_BLOCK_SIZES.get((backend or "").upper())
    if named:
        return named
    if kv_cache_dtype in TURBOQUANT_BITS:
        return 32
    capability = gpu.compute_capability or ""
    for cache, _ in architecture.cache_groups:
        if isinstance(cache, CompressedLatent):
            return 256
        if isinstance(cache, MultiHeadLatent):
            if any(isinstance(other, MultiHeadLatent) and other.index_bytes for other, _ in architecture.cache_groups):
                return 64
            if capability.startswith(("10.", "11.")):
                return 128
            return 64 if capability.startswith("9.") and not kv_cache_dtype.endswith("16") else 16
    return 16
