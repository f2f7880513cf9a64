"""What vLLM prints as loaded, beside the parameters."""

from __future__ import annotations

from collections.abc import Sequence

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import MultiHeadLatent
from kvtax.dtypes import DTYPES
from kvtax.engines import loading
from kvtax.engines.loading import Load
from kvtax.engines.vllm.rules import rule
from kvtax.formulas.weights import RankTensor, element_bytes
from kvtax.hardware.gpu import Gpu
from kvtax.units import MIB, ceil_div

MULTIMODAL_ROPE_ROWS = 4
INDEX_TOPK = 2048
"""Positions that a sparse indexer picks: index_topk of DeepSeek V3.2 and GLM-5 [tokens]."""
ROCM_RUNTIME_BYTES = 72 * MIB
"""On ROCm the figure is read off the driver, so kernels and handles are in it: 0.067 to 0.072 GiB over the allocator's segments
(Llama-3.1-8B, Qwen3-14B, one and two ranks of R9700)."""


def load(
    architecture: Architecture,
    tensors: Sequence[RankTensor],
    gpu: Gpu,
    tp: int,
    element_bytes: int,
    version: tuple[int, ...],
    max_num_batched_tokens: int,
) -> Load:
    """What one rank holds beside its parameters.

    On CUDA what the allocator has given out counts, on ROCm what the driver no longer has free.

    Args:
        architecture: of the model.
        tensors: of the rank.
        gpu: the card.
        tp: tensor_parallel_size [ranks].
        element_bytes: of the model's dtype [bytes].
        version: of the engine.
        max_num_batched_tokens: of a step [tokens].

    Returns:
        By cause [bytes].

    Source: vllm 0.33.0 v1/worker/gpu/model_runner.py load_model; platforms/cuda.py and rocm.py get_current_memory_usage.
    """
    taken = loading.allocation(tensors)
    amd = gpu.vendor == "AMD"
    method = getattr(architecture.quantization, "method", "")
    return Load(
        rope_bytes=loading.rope_table_bytes(architecture, element_bytes, MULTIMODAL_ROPE_ROWS),
        padding_bytes=padding_bytes(architecture, gpu, tp, version),
        rounding_bytes=(taken.reserved_bytes if amd else taken.allocated_bytes) - taken.requested_bytes,
        absorbed_bytes=absorbed_bytes(architecture, tensors, tp, element_bytes, version)
        + loading.doubled_values_bytes(tensors),
        buffer_bytes=buffer_bytes(architecture, tensors, element_bytes, max_num_batched_tokens),
        released_bytes=loading.released_bytes(tensors, method) if _has_marlin(gpu) else 0,
        runtime_bytes=ROCM_RUNTIME_BYTES + transposed_experts_bytes(tensors, method) if amd else 0,
    )


def buffer_bytes(
    architecture: Architecture, tensors: Sequence[RankTensor], element_bytes: int, max_num_batched_tokens: int
) -> int:
    """Buffers that a model makes for the tokens of a step.

    max_num_batched_tokens * (levels * hidden_size * element_bytes + 2048 * 4): features of an image for each level of a tower that feeds
    several (Qwen3-VL), where the tower is loaded; the positions that a sparse indexer picks (DeepSeek V3.2, GLM-5).

    Source: vllm 0.33.0 models/qwen3_vl.py deepstack_input_embeds, models/deepseek_v2.py topk_indices_buffer; Qwen3-VL-30B-A3B on two
    H100 (0.12) to 0.01 GiB.
    """
    levels = max((tensor.copies for tensor in tensors if "deepstack_merger_list." in tensor.name), default=0)
    found = max_num_batched_tokens * levels * architecture.hidden_size * element_bytes
    if any(isinstance(cache, MultiHeadLatent) and cache.index_bytes for cache, _ in architecture.cache_groups):
        found += max_num_batched_tokens * INDEX_TOPK * 4
    return found


def transposed_experts_bytes(tensors: Sequence[RankTensor], method: str) -> int:
    """What transposing the experts of integer formats leaves with the allocator: a layer's copy, which the driver counts as taken.

    Source: vllm 0.33.0 compressed_tensors_moe_wna16.py and moe_wna16.py process_weights_after_loading; Qwen3-30B-A3B in 4 bit on one and
    two R9700 (0.29 and 0.14 GiB over the rest).
    """
    if method not in ("gptq", "awq", "compressed-tensors"):
        return 0
    by_layer: dict[int, int] = {}
    for tensor in tensors:
        if tensor.component == "routed_experts" and tensor.layers and tensor.dtype == "int32" and not tensor.scale:
            size = element_bytes(tensor.elements, tensor.dtype) // len(tensor.layers)
            for layer in tensor.layers:
                by_layer[layer] = by_layer.get(layer, 0) + size
    return max(by_layer.values(), default=0)


def _has_marlin(gpu: Gpu) -> bool:
    major = (gpu.compute_capability or "8").partition(".")[0]
    return gpu.vendor != "AMD" and (not major.isdecimal() or int(major) >= 8)


def absorbed_bytes(
    architecture: Architecture, tensors: Sequence[RankTensor], tp: int, element_bytes: int, version: tuple[int, ...]
) -> int:
    """Copies of latent attention's projections.

    Before 0.7 none. From 0.8 on kv_b_proj in 16 bit, where it is quantised. 0.7 multiplied it into the query and output projections:
    heads / tp * (q_width * (kv_lora_rank + qk_rope_head_dim) + kv_lora_rank * hidden_size) elements a layer, with q_width the query's
    latent, or hidden_size where it has none; in 8 bit where the model is, since they are quantised again.

    Source: vllm 0.7.3 attention/backends/mla/common.py, 0.33.0 model_executor/layers/attention/mla_attention.py; DeepSeek-Coder-V2-Lite
    at eight ranks of 0.7 (0.21 GiB over the parameters).
    """
    how = rule("latent_absorbed", version)
    if how == "none":
        return 0
    if how == "copies":
        return loading.latent_copies_bytes(tensors, element_bytes)
    found = 0
    for stored in architecture.stored_tensors():
        tensor = stored.source
        if not (tensor.loaded and tensor.linear and tensor.name.endswith("kv_b_proj.weight")) or stored.scale:
            continue
        rank = tensor.shape[1]
        query = next(
            (other.shape[1] for other in architecture.tensors if other.name.endswith("q_b_proj.weight")),
            architecture.hidden_size,
        )
        rope = architecture.rotary_dim
        heads = ceil_div(architecture.num_attention_heads, tp)
        elements = heads * (query * (rank + rope) + rank * architecture.hidden_size) * len(tensor.layers)
        found += elements * (1 if stored.dtype.startswith("fp8") else element_bytes)
    return found


def padding_bytes(architecture: Architecture, gpu: Gpu, tp: int, version: tuple[int, ...]) -> int:
    """What repacking 4-bit experts (mxfp4) adds on cards without kernels of their own for them.

    Marlin pads the intermediate width of a rank to a multiple of 128 and the hidden width to one of 256, biases too; on ROCm both
    become multiples of 256.

    Source: vllm 0.33.0 model_executor/layers/quantization/mxfp4.py; equal to the byte for gpt-oss-120b on A100 (engine run);
    gpt-oss-20b on R9700 (vllm 0.11 and 0.13).
    """
    major = (gpu.compute_capability or "").partition(".")[0]
    amd = gpu.vendor == "AMD"
    if getattr(architecture.quantization, "method", None) != "mxfp4":
        return 0
    if not amd and (not major.isdecimal() or major in rule("mxfp4_kernels", version)):
        return 0
    width, hidden = ceil_div(architecture.moe_intermediate_size, tp), architecture.hidden_size
    multiple = 256 if amd else 128
    wide, high = ceil_div(width, multiple) * multiple, ceil_div(hidden, 256) * 256
    added = DTYPES["mxfp4"].bytes(3 * (wide * high - width * hidden))
    groups = [tensor for tensor in architecture.tensors if tensor.component == "routed_experts" and tensor.loaded]
    if any(tensor.name.endswith("bias") for tensor in groups):
        added += 2 * (2 * (wide - width) + high - hidden)
    layers = max((len(tensor.layers) for tensor in groups), default=0)
    return layers * architecture.num_experts * added
