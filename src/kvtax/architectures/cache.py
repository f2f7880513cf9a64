"""The kinds of cache that a layer can keep for a request: what the model needs, before any engine rounds or pads it.

Each kind answers the same questions and knows no engine: how many bytes `tokens` tokens hold, what one more token adds,
what is fixed per sequence, and what one of `tp` tensor-parallel ranks holds of it.
"""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.state import Recurrent, State
from kvtax.dtypes import head_bytes, latent_bytes

__all__ = [
    "ChunkedLocal",
    "CompressedLatent",
    "CrossAttention",
    "FullAttention",
    "LayerCache",
    "MultiHeadLatent",
    "NoCache",
    "Recurrent",
    "Shared",
    "SlidingWindow",
    "State",
    "heads_per_rank",
]


def heads_per_rank(num_key_value_heads: int, tp: int) -> int:
    """Key/value heads that one tensor-parallel rank holds: max(1, num_key_value_heads / tp); fewer heads than ranks are replicated.

    Args:
        num_key_value_heads: heads of the whole model [heads].
        tp: tensor_parallel_size [ranks].

    Returns:
        Heads of one rank, never less than its share [heads].

    Source: vllm 0.33.0 config/model.py get_num_kv_heads.
    """
    return max(1, -(-num_key_value_heads // tp))


class FullAttention(NamedTuple):
    """Keys and values of every token. `index_bytes` is what a sparse-attention indexer keeps beside them per token."""

    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    index_bytes: int = 0

    @property
    def kind(self) -> str:
        """Name of this kind of cache."""
        return "full_attention"

    def token_bytes(self, dtype: str) -> int:
        """num_key_value_heads x (head_dim + v_head_dim) x bits / 8 + index_bytes [bytes]."""
        return self.num_key_value_heads * head_bytes(dtype, self.head_dim, self.v_head_dim) + self.index_bytes

    def tokens_held(self, tokens: int) -> int:
        """All of them."""
        return tokens

    def bytes(self, tokens: int, dtype: str) -> int:
        """Bytes that a request of `tokens` tokens holds in this layer."""
        return tokens * self.token_bytes(dtype)

    def growth(self, dtype: str, at: int | None = None) -> int:
        """Bytes that one more token adds (`at=None`: in a long request; else as the at-th token)."""
        return self.token_bytes(dtype)

    def per_rank(self, tp: int) -> FullAttention:
        """What one tensor-parallel rank holds."""
        return self._replace(num_key_value_heads=heads_per_rank(self.num_key_value_heads, tp))


class SlidingWindow(NamedTuple):
    """Keys and values of the last `window` tokens (`sink_tokens` at the start are kept besides)."""

    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    window: int
    sink_tokens: int = 0

    @property
    def kind(self) -> str:
        """Name of this kind of cache."""
        return "sliding_window"

    def token_bytes(self, dtype: str) -> int:
        """num_key_value_heads x (head_dim + v_head_dim) x bits / 8 [bytes]."""
        return self.num_key_value_heads * head_bytes(dtype, self.head_dim, self.v_head_dim)

    def tokens_held(self, tokens: int) -> int:
        """min(tokens, window + sink_tokens)."""
        return min(tokens, self.window + self.sink_tokens)

    def bytes(self, tokens: int, dtype: str) -> int:
        """Bytes that a request of `tokens` tokens holds in this layer."""
        return self.tokens_held(tokens) * self.token_bytes(dtype)

    def growth(self, dtype: str, at: int | None = None) -> int:
        """Bytes that one more token adds: nothing once the window is full."""
        return self.token_bytes(dtype) if at is not None and at <= self.window + self.sink_tokens else 0

    def per_rank(self, tp: int) -> SlidingWindow:
        """What one tensor-parallel rank holds."""
        return self._replace(num_key_value_heads=heads_per_rank(self.num_key_value_heads, tp))


class ChunkedLocal(NamedTuple):
    """Keys and values of the current chunk of `chunk` tokens (Llama 4's local layers)."""

    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    chunk: int

    @property
    def kind(self) -> str:
        """Name of this kind of cache."""
        return "chunked_local"

    def token_bytes(self, dtype: str) -> int:
        """num_key_value_heads x (head_dim + v_head_dim) x bits / 8 [bytes]."""
        return self.num_key_value_heads * head_bytes(dtype, self.head_dim, self.v_head_dim)

    def tokens_held(self, tokens: int) -> int:
        """min(tokens, chunk): the most that a chunk can hold."""
        return min(tokens, self.chunk)

    def bytes(self, tokens: int, dtype: str) -> int:
        """Bytes that a request of `tokens` tokens holds in this layer."""
        return self.tokens_held(tokens) * self.token_bytes(dtype)

    def growth(self, dtype: str, at: int | None = None) -> int:
        """Bytes that one more token adds: nothing once the chunk is full."""
        return self.token_bytes(dtype) if at is not None and at <= self.chunk else 0

    def per_rank(self, tp: int) -> ChunkedLocal:
        """What one tensor-parallel rank holds."""
        return self._replace(num_key_value_heads=heads_per_rank(self.num_key_value_heads, tp))


class MultiHeadLatent(NamedTuple):
    """The compressed latent and the shared rotary key of every token (MLA); the same on every tensor-parallel rank.

    `index_bytes` is a row that a sparse-attention indexer of this layer keeps (DSA: 128 fp8 + 4 B of scale = 132 B), 0 without one;
    `index_pool` tokens share a row (GLM-5.3 Flash), 1 where every token has its own.
    """

    kv_lora_rank: int
    qk_rope_head_dim: int
    index_bytes: int = 0
    index_pool: int = 1

    @property
    def kind(self) -> str:
        """Name of this kind of cache."""
        return "multi_head_latent"

    def token_bytes(self, dtype: str) -> int:
        """(kv_lora_rank + qk_rope_head_dim) x bits / 8 + index_bytes / index_pool, rounded down [bytes]."""
        return latent_bytes(dtype, self.kv_lora_rank, self.qk_rope_head_dim) + self.index_bytes // self.index_pool

    def tokens_held(self, tokens: int) -> int:
        """All of them."""
        return tokens

    def bytes(self, tokens: int, dtype: str) -> int:
        """tokens x latent + floor(tokens / index_pool) x index_bytes: what a request holds in this layer [bytes]."""
        latent = latent_bytes(dtype, self.kv_lora_rank, self.qk_rope_head_dim)
        return tokens * latent + tokens // self.index_pool * self.index_bytes

    def growth(self, dtype: str, at: int | None = None) -> int:
        """Bytes that one more token adds."""
        return self.token_bytes(dtype)

    def per_rank(self, tp: int) -> MultiHeadLatent:
        """The latent is replicated on every rank."""
        return self


class CompressedLatent(NamedTuple):
    """DeepSeek V4: a window of whole rows, one compressed row for every `ratio` tokens, and an index row with each where `index_head_dim` > 0.

    `ratio` 0 is a layer with the window alone. Key and value are one vector, stored once.
    """

    head_dim: int
    window: int
    ratio: int
    index_head_dim: int = 0

    @property
    def kind(self) -> str:
        """Name of this kind of cache."""
        return "compressed_latent"

    def row_bytes(self, dtype: str) -> int:
        """Bytes of one compressed row with its index row [bytes]."""
        return head_bytes(dtype, self.head_dim, 0) + (
            head_bytes(dtype, self.index_head_dim, 0) if self.index_head_dim else 0
        )

    def token_bytes(self, dtype: str) -> int:
        """Bytes of one token inside the window [bytes]."""
        return head_bytes(dtype, self.head_dim, 0)

    def tokens_held(self, tokens: int) -> int:
        """Rows of the window and compressed rows: min(tokens, window) + tokens / ratio."""
        return min(tokens, self.window) + (tokens // self.ratio if self.ratio else 0)

    def bytes(self, tokens: int, dtype: str) -> int:
        """min(tokens, window) x token_bytes + floor(tokens / ratio) x row_bytes [bytes]."""
        compressed = tokens // self.ratio * self.row_bytes(dtype) if self.ratio else 0
        return min(tokens, self.window) * self.token_bytes(dtype) + compressed

    def growth(self, dtype: str, at: int | None = None) -> int:
        """row_bytes / ratio, on the average of `ratio` tokens, and a window row while the window fills [bytes]."""
        window = self.token_bytes(dtype) if at is not None and at <= self.window else 0
        return window + (self.row_bytes(dtype) // self.ratio if self.ratio else 0)

    def per_rank(self, tp: int) -> CompressedLatent:
        """Rows are replicated on every rank."""
        return self


class CrossAttention(NamedTuple):
    """Keys and values of a source (encoder output, image) of at most `source_len` tokens; written once, never growing."""

    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    source_len: int

    @property
    def kind(self) -> str:
        """Name of this kind of cache."""
        return "cross_attention"

    def source_bytes(self, dtype: str, source_tokens: int | None = None) -> int:
        """Bytes of the keys and values of the source [bytes]."""
        tokens = self.source_len if source_tokens is None else source_tokens
        return tokens * self.num_key_value_heads * head_bytes(dtype, self.head_dim, self.v_head_dim)

    def token_bytes(self, dtype: str) -> int:
        """A decoded token adds nothing."""
        return 0

    def tokens_held(self, tokens: int) -> int:
        """None of the decoded tokens."""
        return 0

    def bytes(self, tokens: int, dtype: str) -> int:
        """Counted apart: see source_bytes."""
        return 0

    def growth(self, dtype: str, at: int | None = None) -> int:
        """Nothing."""
        return 0

    def per_rank(self, tp: int) -> CrossAttention:
        """What one tensor-parallel rank holds."""
        return self._replace(num_key_value_heads=heads_per_rank(self.num_key_value_heads, tp))


class _Nothing:
    """The answers of a layer that keeps nothing of its own."""

    __slots__ = ()

    def token_bytes(self, dtype: str) -> int:
        """Nothing."""
        return 0

    def tokens_held(self, tokens: int) -> int:
        """Nothing."""
        return 0

    def bytes(self, tokens: int, dtype: str) -> int:
        """Nothing."""
        return 0

    def growth(self, dtype: str, at: int | None = None) -> int:
        """Nothing."""
        return 0


class Shared(_Nothing):
    """A layer that reads the cache of an earlier layer (Gemma 3n and 4, cross-layer attention)."""

    __slots__ = ("with_layer",)

    @property
    def kind(self) -> str:
        """Name of this kind of cache."""
        return "shared"

    def __init__(self, with_layer: int) -> None:
        self.with_layer = with_layer

    def __repr__(self) -> str:
        """As one would type it."""
        return f"Shared(with_layer={self.with_layer})"

    def __eq__(self, other: object) -> bool:
        """Equal where the same layer is read."""
        return isinstance(other, Shared) and other.with_layer == self.with_layer

    def __hash__(self) -> int:
        """By the layer read."""
        return hash(("shared", self.with_layer))

    def per_rank(self, tp: int) -> Shared:
        """The same on every rank."""
        return self


class NoCache(_Nothing):
    """A layer without attention or state (an MLP or MoE layer of a hybrid, an attention that was pruned away)."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """Name of this kind of cache."""
        return "no_cache"

    def __repr__(self) -> str:
        """As one would type it."""
        return "NoCache()"

    def __eq__(self, other: object) -> bool:
        """All alike."""
        return isinstance(other, NoCache)

    def __hash__(self) -> int:
        """All alike."""
        return hash("no_cache")

    def per_rank(self, tp: int) -> NoCache:
        """The same on every rank."""
        return self


LayerCache = (
    FullAttention
    | SlidingWindow
    | ChunkedLocal
    | MultiHeadLatent
    | CompressedLatent
    | Recurrent
    | CrossAttention
    | Shared
    | NoCache
)
