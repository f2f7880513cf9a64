"""A Shape from kvtax's own Architecture: what the converter would write into the GGUF file."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import (
    ChunkedLocal,
    CompressedLatent,
    FullAttention,
    LayerCache,
    MultiHeadLatent,
    Recurrent,
    SlidingWindow,
)
from kvtax.architectures.gguf import traits
from kvtax.architectures.gguf.families import ARCHITECTURES, WITH_EXPERTS
from kvtax.architectures.gguf.shape import Layer, Shape
from kvtax.architectures.tensors import Tensor
from kvtax.errors import UnsupportedArchitectureError


def gguf_architecture(architecture: Architecture) -> str:
    """`general.architecture` of the file that the converter would write.

    Raises:
        UnsupportedArchitectureError: llama.cpp has no such architecture, as far as is known here.
    """
    found = ARCHITECTURES.get(architecture.model_type)
    if found is None or architecture.kind != "decoder":
        raise UnsupportedArchitectureError(
            f"llama.cpp is not known to run {architecture.model_type!r:.64}",
            where="model_type",
            hint="choose another engine, or give a GGUF file",
        )
    return WITH_EXPERTS.get(found, found) if architecture.num_experts else found


def shape_of(architecture: Architecture) -> Shape:
    """The hyper-parameters that llama.cpp would read for a model.

    Args:
        architecture: of the text model, or of a model with towers (these are a file of their own).

    Returns:
        The shape.

    Raises:
        UnsupportedArchitectureError: llama.cpp has no such architecture.

    Source: ggml-org/llama.cpp b11434 convert_hf_to_gguf.py.
    """
    arch = gguf_architecture(architecture)
    text = [
        tensor
        for tensor in architecture.tensors
        if tensor.loaded and tensor.component not in ("vision", "audio", "mtp")
    ]
    widths, sparse = _feed_forward(text), _sparse_layers(text)
    layers = [
        Layer(attends=False, head_count=architecture.num_attention_heads, feed_forward_length=widths.get(index, 0))
        for index in range(architecture.num_hidden_layers)
    ]
    window = 0
    extra: dict[str, Any] = {}
    for cache, index in zip(architecture.caches, architecture.cache_layers, strict=True):
        if index < len(layers):
            layers[index] = _with_cache(arch, layers[index], cache, extra)
            if isinstance(cache, (SlidingWindow, CompressedLatent, ChunkedLocal)) and layers[index].windowed:
                window = max(window, cache.chunk if isinstance(cache, ChunkedLocal) else cache.window)
    if arch in traits.INTERVAL:  # their files state one number of heads for all layers
        heads = next((layer for layer in layers if layer.attends), Layer())
        layers = [
            layer._replace(
                head_count_kv=heads.head_count_kv, key_length=heads.key_length, value_length=heads.value_length
            )
            for layer in layers
        ]
    dense = [index for index in range(len(layers)) if index not in sparse]
    leading = next((index for index, layer in enumerate(dense) if index != layer), len(dense)) if sparse else 0
    return Shape(
        arch=arch,
        layers=tuple(layers),
        embedding_length=architecture.hidden_size,
        vocab_size=architecture.vocab_size,
        context_length=architecture.max_position_embeddings or 0,
        sliding_window=window,
        expert_count=architecture.num_experts if sparse else 0,
        expert_used_count=architecture.num_experts_per_tok if sparse else 0,
        expert_feed_forward_length=architecture.moe_intermediate_size
        or (architecture.intermediate_size if sparse else 0),
        expert_shared_feed_forward_length=_shared_width(text),
        leading_dense_block_count=leading,
        embedding_length_per_layer_input=_per_layer_input(text, len(layers)),
        gated=arch not in traits.NOT_GATED,
        **(_widths(architecture, layers) | extra | _latent(text, architecture)),
    )


def _with_cache(arch: str, layer: Layer, cache: LayerCache, extra: dict[str, Any]) -> Layer:
    """The layer with what one cache says of it; what holds for all layers goes into `extra`."""
    if isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal)):
        windowed = not isinstance(cache, FullAttention) and arch not in traits.IGNORE_WINDOW
        index_length = cache.index_bytes // 2 if isinstance(cache, FullAttention) else 0
        return layer._replace(
            attends=True, windowed=windowed, head_count_kv=cache.num_key_value_heads, key_length=cache.head_dim,
            value_length=cache.v_head_dim, indexer_length=index_length,
        )  # fmt: skip
    if isinstance(cache, MultiHeadLatent):
        # other engines keep these keys as fp8 with a float32 scale for 128 of them
        index_length = cache.index_bytes // 132 * 128
        return layer._replace(
            attends=True,
            head_count_kv=1,
            key_length=cache.kv_lora_rank + cache.qk_rope_head_dim,
            indexer_length=index_length,
        )
    if isinstance(cache, CompressedLatent):
        found = layer._replace(attends=True, windowed=True, head_count_kv=1, key_length=cache.head_dim)
        return traits.compressed(found, cache.ratio, cache.index_head_dim)
    if isinstance(cache, Recurrent):
        extra.update(_state(cache))
        parts = {"conv": 0, "recurrent": 0}
        for state in cache.states:
            parts["conv" if state.role == "conv" else "recurrent"] += state.elements
        return layer._replace(conv_elements=parts["conv"], state_elements=parts["recurrent"])
    return layer


def _state(cache: Recurrent) -> dict[str, int]:
    """The `ssm.*` keys of a recurrent layer."""
    conv = next((state.shape for state in cache.states if state.role == "conv"), (0, 0))
    state = next((state.shape for state in cache.states if state.role == "recurrent"), ())
    kernel = min(conv[-1], conv[0]) + 1
    channels = max(conv)
    if cache.variant == "short_conv":
        return {"shortconv_l_cache": kernel}
    if cache.variant == "kimi_delta":
        return {"kda_head_dim": state[-1], "ssm_conv_kernel": kernel}
    if cache.variant == "mamba1":
        return {"ssm_inner_size": state[0], "ssm_state_size": state[1], "ssm_conv_kernel": kernel}
    if cache.variant in ("mamba2", "gated_delta_net") and len(state) == 3:
        inner, size = state[0] * (state[1] if cache.variant == "mamba2" else state[2]), state[2]
        if cache.variant == "gated_delta_net":
            inner, size = state[0] * state[2], state[1]
        return {
            "ssm_inner_size": inner, "ssm_state_size": size, "ssm_time_step_rank": state[0], "ssm_conv_kernel": kernel,
            "ssm_group_count": (channels - inner) // (2 * size) if size else 0,
        }  # fmt: skip
    return {}


def _ends(tensor: Tensor, *names: str) -> bool:
    """Whether the weight belongs to a module of one of these names."""
    module = tensor.name.removesuffix(".weight").rpartition(".")[2]
    return not tensor.name.endswith("bias") and module in names


_DOWN = (
    "down_proj", "w2", "fc2", "c_proj", "dense_4h_to_h", "fc_out", "output_linear", "w_down", "fc_2", "out_proj", "linear_2",
)  # fmt: skip


def _feed_forward(tensors: list[Tensor]) -> dict[int, int]:
    """Width of the dense MLP of each layer that has one."""
    found: dict[int, int] = {}
    for tensor in tensors:
        if tensor.component == "mlp" and len(tensor.shape) == 2 and not tensor.name.endswith("bias"):
            width = max(tensor.shape) if _ends(tensor, *_DOWN) else 0
            if width:
                found.update(dict.fromkeys(tensor.layers, width))
    return found


def _sparse_layers(tensors: list[Tensor]) -> set[int]:
    """Layers with routed experts."""
    return {index for tensor in tensors if tensor.component == "routed_experts" for index in tensor.layers}


def _shared_width(tensors: list[Tensor]) -> int:
    """Width of the shared experts."""
    for tensor in tensors:
        if tensor.component == "shared_experts" and len(tensor.shape) == 2 and _ends(tensor, *_DOWN):
            return tensor.shape[1]
    return 0


def _per_layer_input(tensors: list[Tensor], layers: int) -> int:
    """Width of the embedding of each layer (Gemma's E models)."""
    for tensor in tensors:
        if "embed_tokens_per_layer" in tensor.name and layers:
            return tensor.shape[-1] // layers
    return 0


def _widths(architecture: Architecture, layers: list[Layer]) -> dict[str, int]:
    """Widths of the heads of full-attention layers."""
    full = [layer for layer in layers if not layer.windowed and layer.attends]
    return {
        "key_length": max((layer.key_length for layer in full), default=architecture.head_dim),
        "value_length": max((layer.value_length for layer in full), default=architecture.head_dim),
        "rope_dimension_count": architecture.rotary_dim,
    }


def _latent(tensors: list[Tensor], architecture: Architecture) -> dict[str, int]:
    """The widths of latent attention, read off its projections."""
    cache = next((cache for cache in architecture.caches if isinstance(cache, MultiHeadLatent)), None)
    heads = architecture.num_attention_heads
    if cache is None or not heads:
        return {}
    found = {"kv_lora_rank": cache.kv_lora_rank, "value_length": cache.kv_lora_rank}
    found["key_length"] = cache.kv_lora_rank + cache.qk_rope_head_dim
    for tensor in tensors:
        if tensor.component != "attention" or len(tensor.shape) != 2:
            continue
        if _ends(tensor, "q_a_proj"):
            found["q_lora_rank"] = tensor.shape[0]
        elif _ends(tensor, "q_b_proj", "q_proj"):
            found["key_length_mla"] = tensor.shape[0] // heads
        elif _ends(tensor, "o_proj"):
            found["value_length_mla"] = tensor.shape[1] // heads
    found["rope_dimension_count"] = cache.qk_rope_head_dim
    return found
