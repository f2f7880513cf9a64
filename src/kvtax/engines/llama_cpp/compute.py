"""Compute buffers: what a step needs beside weights and caches, on the device and in host memory.

The graph allocator reuses memory, so a buffer is what lives through the whole graph (inputs, masks, the residual stream) and the largest of
the phases that follow one another: feed-forward, attention or state scan, output matrix.
"""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.gguf import traits
from kvtax.architectures.gguf.shape import Shape
from kvtax.engines.llama_cpp.cache import Context, cell_bytes, widest_value, window_cells

NOISE_BYTES = 30
"""Small inputs of a token: its id, position, output index, rows of the caches (seen: 28 to 40 bytes)."""


class Parts(NamedTuple):
    """The parts of a device buffer [bytes]."""

    inputs_bytes: int
    """Hidden states that go in, and the residual stream."""
    mask_bytes: int
    values_bytes: int
    """Row indices of transposed values, where flash attention is off."""
    per_layer_bytes: int
    """Embeddings of every layer (Gemma's E models)."""
    feed_forward_bytes: int
    attention_bytes: int
    output_bytes: int
    rotation_bytes: int = 0
    """Matrices that turn quantised keys and values."""
    copies_bytes: int = 0
    """Copies for quantised caches: of the query, and on CUDA one layer's cache in float16."""

    @property
    def lasting_bytes(self) -> int:
        """What lives through the whole graph [bytes]."""
        return self.inputs_bytes + self.mask_bytes + self.values_bytes + self.per_layer_bytes + self.rotation_bytes

    beside_output_bytes: int = 0
    """What of it still lives when the output matrix runs."""

    @property
    def total_bytes(self) -> int:
        """max(lasting + max(feed forward, attention), beside output + output) + copies [bytes]."""
        phase = self.lasting_bytes + max(self.feed_forward_bytes, self.attention_bytes)
        return max(phase, self.beside_output_bytes + self.output_bytes) + self.copies_bytes


class Era(NamedTuple):
    """What differs between builds.

    Args:
        mask_bytes: of an element of the mask with flash attention [bytes].
        inputs: hidden states that go in, in units of 4 bytes an element.
        copy_in_buffer: whether the float16 copy of a quantised cache is in the buffer.
    """

    mask_bytes: int = 2
    inputs: int = 4
    copy_in_buffer: bool = True


NEWEST = Era()


def mask_bytes_per_token(shape: Shape, context: Context, era: Era = NEWEST) -> int:
    """m * (n_ctx_seq + window cells), m = 2 with flash attention, else 4; nothing without attention [bytes]."""
    if not shape.attends:
        return 0
    element = era.mask_bytes if context.flash_attn else 4
    return element * (context.n_ctx_seq + window_cells(shape, context))


def feed_forward_bytes_per_token(shape: Shape) -> int:
    """The feed-forward phase: gate, up and their product live together (12 * F), an MLP without gate in place (4 * F).

    Experts: g = 4 * used * F_exp and d = 4 * used * E: 3g, and d too where d > 2g; without gates g + d + 4E; at least a dense layer's.

    Source: ggml-org/llama.cpp b11434 src/llama-graph.cpp build_ffn, build_moe_ffn, against measured buffers.
    """
    dense = (12 if shape.gated else 4) * shape.feed_forward_length
    if not shape.expert_used_count:
        return dense
    grown = 4 * shape.expert_used_count * shape.expert_feed_forward_length
    down = 4 * shape.expert_used_count * shape.embedding_length
    if not shape.gated:
        return grown + down + 4 * shape.embedding_length
    sparse = 3 * grown + (down if down > 2 * grown else 0)
    return max(sparse, dense) if shape.leading_dense_block_count else sparse


def attention_bytes_per_token(shape: Shape, context: Context) -> int:
    """The attention phase: nothing of note with flash attention, scores and copies of the query without; absorbed heads of latents.

    Without: 4 * H * n_ctx_seq + 4 * H * key_length, twice that where query and its normed copy live together. Latent:
    4 * H * (key_length + kv_lora_rank + 2 * value_length_mla).

    Source: ggml-org/llama.cpp b11434 src/llama-graph.cpp build_attn_mha, against measured buffers.
    """
    heads = shape.head_count
    if not shape.attends:
        return 0
    scores = 0 if context.flash_attn else 4 * heads * context.n_ctx_seq
    if shape.latent:
        return 4 * heads * (shape.key_length + shape.value_length + 2 * shape.value_length_mla) + scores
    if not scores:
        return 0
    return scores + query_bytes_per_token(shape)


def query_bytes_per_token(shape: Shape) -> int:
    """4 * H * key_length, twice where the query and its normed copy live together, three times where a gate does too [bytes]."""
    query = 4 * shape.head_count * shape.key_length
    if shape.arch in traits.INTERVAL:
        return 3 * query
    wide = shape.arch in ("qwen3", "qwen3moe", "glm4moe") and query > 4 * shape.embedding_length
    return 2 * query if wide or shape.arch.startswith("gemma") else query


def fetched_bytes(shape: Shape, context: Context) -> int:
    """Where the cache stays in RAM, one layer's keys and values come to the card, beside the query: cells * cell_bytes + ub * query [bytes].

    Source: 39 measured device buffers of ggml-org/llama.cpp b11434 without offloaded caches.
    """
    if context.kv_offload or not shape.attends:
        return 0
    window = window_cells(shape, context)
    sizes = [
        (window if layer.windowed and window else context.n_ctx_seq) * cell_bytes(shape, layer, context)
        for layer in shape.layers
    ]
    return max(sizes) * context.streams + context.ubatch * query_bytes_per_token(shape)


def scan_bytes(shape: Shape, context: Context) -> int:
    """A Mamba 1 layer: its inner states four times, dt and x twice, and one state for each sequence [bytes].

    ub * (16 * inner + 4 * (2 * rank + 2 * state)) + 4 * state * inner * n_parallel

    Source: ggml-org/llama.cpp b11434 src/models/mamba-base.cpp, against measured buffers of one model.
    """
    if shape.arch not in ("mamba", "jamba"):
        return 0
    inner, state, rank = shape.ssm_inner_size, shape.ssm_state_size, shape.ssm_time_step_rank
    return context.ubatch * (16 * inner + 8 * (rank + state)) + 4 * state * inner * context.n_parallel


def rotation_bytes(shape: Shape, context: Context) -> int:
    """Hadamard matrices that quantised keys and values are turned with, float32, one pair for each cache: 4 * n_rot^2 [bytes].

    n_rot of keys is the largest power of two that divides key_length, of values 64; nothing below 64, nothing for latents.

    Source: ggml-org/llama.cpp b11434 src/llama-kv-cache.cpp, against 39 measured models.
    """
    pairs = {(layer.key_length, layer.value_length, layer.windowed) for layer in shape.layers if layer.attends}
    size = 0
    for key_length, value_length, _ in () if shape.latent else pairs:
        turned = key_length & -key_length
        if is_quantised(context.cache_type_k) and turned >= ROTATED:
            size += 4 * turned * turned
        if is_quantised(context.cache_type_v) and value_length % ROTATED == 0:
            size += 4 * ROTATED * ROTATED
    return size


ROTATED = 64
"""The smallest rotation, and the one of values [elements]."""


def is_quantised(cache_type: str) -> bool:
    """Whether a cache type has blocks with scales."""
    return cache_type not in ("f16", "bf16", "f32")


def rotated_query_bytes(shape: Shape, context: Context) -> int:
    """One more hidden state where the rotated query is narrower than it: 4 * E * ub, seen in three of three dense models [bytes]."""
    narrow = shape.head_count * shape.key_length < shape.embedding_length
    hybrid = any(layer.recurrent for layer in shape.layers)
    if not narrow or hybrid or shape.latent or not rotation_bytes(shape, context):
        return 0
    return 4 * shape.embedding_length * context.ubatch


def float_copy_bytes(shape: Shape, context: Context) -> int:
    """A float16 copy of one layer's cache, which CUDA's flash attention makes of any other format.

    2 * n_ctx_seq * (key_width + value_width) * streams

    Source: ggml-org/llama.cpp b11434 ggml-cuda/fattn-common.cuh; PR 23907 moved it into the compute buffer.
    """
    if not context.flash_attn or (context.cache_type_k, context.cache_type_v) == ("f16", "f16"):
        return 0
    widest = max((layer.key_width + layer.value_width for layer in shape.layers if layer.attends), default=0)
    return 2 * context.n_ctx_seq * widest * context.streams


def device_parts(
    shape: Shape, context: Context, era: Era = NEWEST, *, outputs: bool = True, on_cuda: bool = False
) -> Parts:
    """The buffer of a device that holds layers.

    Args:
        shape: of the model.
        context: what the context is made with.
        era: of the build.
        outputs: whether this device has the output matrix.
        on_cuda: whether it is an NVIDIA card.

    Returns:
        Its parts.

    Source: ggml-org/llama.cpp b11434 src/llama-context.cpp graph_reserve, against 553 measured device buffers.
    """
    ubatch, width = context.ubatch, shape.embedding_length
    parallel = 4 * width if shape.arch in traits.PARALLEL else 0
    values = 0
    if not context.flash_attn and not shape.latent and shape.attends:
        values = 8 * widest_value(shape) * (2 if shape.windowed else 1)
    reserved = min(ubatch, context.batch if context.n_outputs_max is None else context.n_outputs_max)
    parts = Parts(
        inputs_bytes=ubatch * (4 * era.inputs * width + parallel + NOISE_BYTES),
        mask_bytes=ubatch * mask_bytes_per_token(shape, context, era),
        values_bytes=ubatch * values,
        per_layer_bytes=ubatch * 4 * len(shape.layers) * shape.embedding_length_per_layer_input,
        feed_forward_bytes=ubatch * feed_forward_bytes_per_token(shape),
        attention_bytes=max(
            ubatch * attention_bytes_per_token(shape, context),
            scan_bytes(shape, context),
            fetched_bytes(shape, context),
        ),
        output_bytes=4 * shape.vocab_size * reserved if outputs else 0,
        rotation_bytes=rotation_bytes(shape, context),
        copies_bytes=rotated_query_bytes(shape, context)
        + (float_copy_bytes(shape, context) if on_cuda and era.copy_in_buffer else 0),
    )
    if era.inputs < NEWEST.inputs:  # inputs were given back once they were used: one hidden state is left
        return parts._replace(beside_output_bytes=4 * width * ubatch)
    # embeddings of each layer are gone by then, but for one hidden state's room
    gone = min(parts.per_layer_bytes, 4 * width * ubatch)
    return parts._replace(beside_output_bytes=parts.lasting_bytes - gone)


def host_bytes(shape: Shape, context: Context, era: Era = NEWEST) -> int:
    """The buffer in pinned host memory where all layers are on devices: inputs, masks and embeddings.

    ub * (16E + m * (n_ctx_seq + window cells) + values + per-layer embeddings + 36)

    Source: ggml-org/llama.cpp b11434, against 553 measured host buffers.
    """
    parts = device_parts(shape, context, era)
    state = 4 * shape.embedding_length * context.ubatch
    gathered = state if shape.embedding_length_per_layer_input else 0
    return parts.lasting_bytes - (state if shape.arch in traits.PARALLEL else 0) + gathered


def partial_device_bytes(
    shape: Shape, context: Context, era: Era = NEWEST, *, outputs: bool = True, on_cuda: bool = False
) -> int:
    """The buffer of a device where blocks stay in RAM too: hidden states come in one at a time.

    lasting - 8E * ub (4E with experts, latents or without flash attention) + phase, or the output matrix and one hidden state

    Args:
        shape: of the model.
        context: what the context is made with.
        era: of the build.
        outputs: whether this device has the output matrix.
        on_cuda: whether it is an NVIDIA card.

    Returns:
        Size [bytes].

    Source: 234 measured device buffers of ggml-org/llama.cpp b11434.
    """
    parts = device_parts(shape, context, era, outputs=outputs, on_cuda=on_cuda)
    state = 4 * shape.embedding_length * context.ubatch
    lean = shape.expert_used_count or shape.latent or not context.flash_attn
    phase = max(parts.feed_forward_bytes, parts.attention_bytes)
    lasting = parts.lasting_bytes - parts.per_layer_bytes
    body = lasting - state * (1 if lean else 2) + phase
    return max(body, parts.output_bytes + state) + parts.copies_bytes


def host_layers_bytes(shape: Shape, context: Context, era: Era = NEWEST, *, outputs: bool = False) -> int:
    """The buffer in RAM where blocks run on the processor: as on a device, and the hidden state that leaves it, 4E * ub [bytes].

    Source: 2,259 measured host buffers of ggml-org/llama.cpp b11434.
    """
    parts = device_parts(shape, context, era, outputs=outputs)
    return parts.total_bytes + 4 * shape.embedding_length * context.ubatch
