"""Context, slots, KV cache, recurrent state and output buffer: what llama.cpp allocates, to the byte."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kvtax.architectures.gguf import traits
from kvtax.architectures.gguf.shape import Layer, Shape
from kvtax.dtypes import find_dtype
from kvtax.errors import InputError

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
"""Source: ggml-org/llama.cpp b11434 common/arg.cpp kv_cache_types."""


class Context(NamedTuple):
    """What a context is made with; the defaults are llama.cpp's.

    Args:
        n_ctx: -c, cells that are asked for [tokens].
        n_parallel: -np, sequences [requests].
        n_batch: -b, tokens of a logical batch [tokens].
        n_ubatch: -ub, tokens of a step [tokens].
        kv_unified: all sequences share one cache.
        flash_attn: whether flash attention is on.
        cache_type_k: format of keys.
        cache_type_v: format of values.
        swa_full: window layers keep the whole context.
        n_rs_seq: states kept to roll back to, beyond the one in use [states].
        n_outputs_max: outputs reserved in a batch, None for every token [tokens].
        cells_padding: cells are padded to a multiple of [tokens].
        latent_keys_only: whether the values of a latent are left out.
        kv_offload: whether caches are on the devices of their layers, or all in RAM.
    """

    n_ctx: int
    n_parallel: int = 1
    n_batch: int = 2048
    n_ubatch: int = 512
    kv_unified: bool = False
    flash_attn: bool = True
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    swa_full: bool = False
    n_rs_seq: int = 0
    n_outputs_max: int | None = None
    cells_padding: int = 256
    latent_keys_only: bool = True
    kv_offload: bool = True

    @property
    def batch(self) -> int:
        """min(n_ctx, n_batch) [tokens]."""
        return min(self.n_ctx, self.n_batch)

    @property
    def ubatch(self) -> int:
        """min(batch, n_ubatch) [tokens]."""
        return min(self.batch, self.n_ubatch)

    @property
    def streams(self) -> int:
        """Caches side by side: one, or one for each sequence."""
        return 1 if self.kv_unified else self.n_parallel

    @property
    def n_ctx_seq(self) -> int:
        """Cells of one stream: pad(n_ctx, 256), without a unified cache pad(pad(n_ctx, 256) // n_parallel, 256) [tokens]."""
        cells = pad(self.n_ctx, self.cells_padding)
        return cells if self.kv_unified else pad(cells // self.n_parallel, self.cells_padding)

    @property
    def n_ctx_effective(self) -> int:
        """n_ctx_seq * streams: what llama.cpp prints as n_ctx [tokens]."""
        return self.n_ctx_seq * self.streams


def pad(count: int, multiple: int) -> int:
    """count rounded up to a multiple.

    >>> pad(257, 256)
    512
    """
    return -(-count // multiple) * multiple


def row_bytes(cache_type: str, width: int) -> int:
    """Bytes of one token's keys (or values) of a layer: width / block * bytes of a block.

    Raises:
        InputError: the width is not a whole number of blocks.

    >>> row_bytes("q8_0", 1024)
    1088
    """
    dtype = find_dtype(cache_type)
    if dtype.block and width % dtype.block:
        raise InputError(
            f"{width} elements are not a whole number of blocks of {dtype.block}",
            code="cache-type-does-not-fit",
            hint="take f16, or q8_0 where heads are a multiple of 32 wide",
            where="cache_type_k",
        )
    return dtype.bytes(width)


def window_cells(shape: Shape, context: Context) -> int:
    """Cells of one stream of the sliding-window cache; 0 without one.

    pad(min(n_ctx_seq, sliding_window * (n_parallel if kv_unified else 1) + n_ubatch), 256); swa_full: n_ctx_seq

    Source: ggml-org/llama.cpp b11434 src/llama-kv-cache-iswa.cpp.
    """
    if not shape.windowed:
        return 0
    if context.swa_full:
        return context.n_ctx_seq
    windows = shape.sliding_window * (context.n_parallel if context.kv_unified else 1)
    return pad(min(context.n_ctx_seq, windows + context.ubatch), context.cells_padding)


def widest_value(shape: Shape) -> int:
    """Values of one token in the layer where they are widest [elements]."""
    return max((layer.value_width for layer in shape.layers), default=0)


def cell_bytes(shape: Shape, layer: Layer, context: Context) -> int:
    """Bytes of one cell of a layer: row(type_k, key_width) + row(type_v, value_width).

    Without flash attention values are kept transposed, and every layer takes the width of the widest.

    Source: ggml-org/llama.cpp b11434 src/llama-kv-cache.cpp.
    """
    if not layer.attends:
        return 0
    width = layer.value_width
    if width and not context.flash_attn:
        width = widest_value(shape)
    if not width and shape.latent and not context.latent_keys_only:
        width = shape.kv_lora_rank
    return row_bytes(context.cache_type_k, layer.key_width) + (row_bytes(context.cache_type_v, width) if width else 0)


def layer_kv_bytes(shape: Shape, layer: Layer, context: Context) -> int:
    """Keys and values of one layer in all streams, compressed rows and indexer keys included.

    cells * streams * cell_bytes; indexer: n_ctx_seq rows; compressed: pad(ceil(n_ctx_seq / ratio), 256) rows of a key and an indexer key

    Args:
        shape: of the model.
        layer: of it.
        context: what the context is made with.

    Returns:
        Size [bytes].

    Source: ggml-org/llama.cpp b11434 src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-kv-cache-dsa.cpp, llama-kv-cache-dsv4.cpp.
    """
    cells = window_cells(shape, context) if layer.windowed and shape.windowed else context.n_ctx_seq
    size = cells * cell_bytes(shape, layer, context)
    if layer.compress_ratio:
        rows = pad(-(-context.n_ctx_seq // layer.compress_ratio), context.cells_padding)
        size += rows * row_bytes(context.cache_type_k, layer.key_width)
        size += rows * row_bytes(context.cache_type_k, layer.indexer_length) if layer.indexer_length else 0
    elif layer.indexer_length:
        size += context.n_ctx_seq * row_bytes(context.cache_type_k, layer.indexer_length)
    return size * context.streams


def layer_state_bytes(shape: Shape, layer: Layer, context: Context) -> int:
    """Recurrent state of one layer, float32, one cell for each sequence: 4 * (R + S) * n_parallel * (1 + n_rs_seq).

    Source: ggml-org/llama.cpp b11434 src/llama-memory-recurrent.cpp.
    """
    copies = context.n_parallel * (1 + (context.n_rs_seq if shape.arch in traits.ROLLBACK else 0))
    return 4 * (layer.conv_elements + layer.state_elements + layer.compressor_elements) * copies


def layer_bytes(shape: Shape, layer: Layer, context: Context) -> int:
    """What one layer keeps: keys, values and state [bytes]."""
    return layer_kv_bytes(shape, layer, context) + layer_state_bytes(shape, layer, context)


def context_bytes(shape: Shape, context: Context) -> int:
    """KV cache and recurrent state of the whole model [bytes]."""
    return sum(layer_bytes(shape, layer, context) for layer in shape.layers)


def output_bytes(shape: Shape, context: Context) -> int:
    """The output buffer in pinned host memory: 4 * vocab_size * n_parallel, since outputs are reserved as they come [bytes].

    Source: ggml-org/llama.cpp b11434 src/llama-context.cpp output_reserve.
    """
    return 4 * shape.vocab_size * context.n_parallel


def live_request_bytes(shape: Shape, context: Context, tokens: int, layers: Iterable[int] | None = None) -> int:
    """What a request of `tokens` tokens fills of these caches: its cells, windows cut off, and one state; of some layers or of all [bytes]."""
    held = 0
    for index in range(len(shape.layers)) if layers is None else layers:
        layer = shape.layers[index]
        cells = (
            min(tokens, shape.sliding_window) if layer.windowed and shape.windowed and not context.swa_full else tokens
        )
        held += cells * cell_bytes(shape, layer, context)
        if layer.compress_ratio:
            row = row_bytes(context.cache_type_k, layer.key_width) + row_bytes(
                context.cache_type_k, layer.indexer_length
            )
            held += tokens // layer.compress_ratio * row
        elif layer.indexer_length:
            held += tokens * row_bytes(context.cache_type_k, layer.indexer_length)
        if tokens:
            held += layer_state_bytes(shape, layer, context._replace(n_parallel=1))
    return held
