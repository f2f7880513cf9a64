"""An Architecture: tensors, caches and the few facts about a model that formulas need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kvtax.architectures.cache import CrossAttention, FullAttention, LayerCache, Recurrent
from kvtax.architectures.tensors import Tensor
from kvtax.dtypes import find_dtype, resolve_kv_dtype
from kvtax.errors import InputError
from kvtax.terms import Notice

if TYPE_CHECKING:
    from kvtax.architectures.gguf.file import Gguf
    from kvtax.architectures.quantization import Quantization, StoredTensor


class Architecture:
    """What a model is, for one copy of it before any sharding.

    Args:
        model_type: the family in the config.
        name: the class in `architectures`, or the model type.
        tensors: the inventory of weights as the checkpoint names them, MTP layers marked as not loaded.
        caches: one per layer that keeps something, in layer order; a layer with attention and state has two.
        cache_layers: the layer that each cache belongs to (None: caches stand one for one for the layers).
        num_hidden_layers: decoder layers [layers].
        hidden_size: width of the residual stream [elements].
        intermediate_size: width of the widest dense MLP [elements].
        num_attention_heads: query heads of a layer [heads].
        head_dim: width of a query head [elements].
        num_key_value_heads: key/value heads of the layer that has most [heads].
        vocab_size: rows of the embedding [tokens].
        max_position_embeddings: longest context, scaling included, None where there is none [tokens].
        usual_context: a shorter one that engines take where none is asked for, None for the longest [tokens].
        num_experts: routed experts of a MoE layer, 0 for a dense model [experts].
        num_experts_per_tok: routed experts that one token uses [experts].
        moe_intermediate_size: width of one routed expert [elements].
        dtype: of the weights that are not quantised.
        dtype_stated: whether the config states it.
        quantization: the checkpoint's own, None for none.
        kind: decoder | encoder-decoder | encoder.
        active_parameters: parameters that one token uses; None: counted from the experts.
        rotary_dim: width that rope turns, 0 where there is none [elements].
        rope_factors: frequency factors that rope scaling multiplies with, both sets of LongRoPE, 0 without [elements].
        rope_dims: width of each rope that differs; None: the one of rotary_dim [elements].
        multimodal_rope: whether positions have axes for time, height and width.
        defaults_used: class defaults that filled in for keys that the config leaves out.
        notices: what the reader should know.
        stored: what the headers of its files say; None: worked out from the tensors and the quantisation.
        gguf: the GGUF file that it was read from.
    """

    def __init__(
        self,
        *,
        model_type: str,
        name: str,
        tensors: Iterable[Tensor],
        caches: Iterable[LayerCache],
        num_hidden_layers: int,
        hidden_size: int,
        vocab_size: int,
        num_attention_heads: int = 0,
        head_dim: int = 0,
        num_key_value_heads: int = 0,
        intermediate_size: int = 0,
        cache_layers: Iterable[int] | None = None,
        max_position_embeddings: int | None = None,
        usual_context: int | None = None,
        num_experts: int = 0,
        num_experts_per_tok: int = 0,
        moe_intermediate_size: int = 0,
        dtype: str = "bfloat16",
        dtype_stated: bool = True,
        quantization: Quantization | None = None,
        kind: str = "decoder",
        active_parameters: int | None = None,
        rotary_dim: int = 0,
        rope_factors: int = 0,
        rope_dims: Iterable[int] | None = None,
        multimodal_rope: bool = False,
        defaults_used: Mapping[str, Any] | None = None,
        notices: Iterable[Notice] = (),
        stored: Iterable[StoredTensor] | None = None,
        gguf: Gguf | None = None,
    ) -> None:
        self.model_type, self.name = model_type, name
        self.tensors = tuple(tensors)
        self.caches = tuple(caches)
        self.cache_layers = tuple(range(len(self.caches))) if cache_layers is None else tuple(cache_layers)
        self.num_hidden_layers, self.hidden_size = num_hidden_layers, hidden_size
        self.vocab_size = vocab_size
        self.num_attention_heads = num_attention_heads
        self.head_dim = head_dim
        self.num_key_value_heads = num_key_value_heads
        self.intermediate_size = intermediate_size
        self.max_position_embeddings = max_position_embeddings
        self.usual_context = usual_context
        self.num_experts, self.num_experts_per_tok = num_experts, num_experts_per_tok
        self.moe_intermediate_size = moe_intermediate_size
        self.dtype, self.dtype_stated = dtype, dtype_stated
        self.quantization = quantization
        self.kind = kind
        self.rotary_dim, self.rope_factors = rotary_dim, rope_factors
        self.own_rope_dims = None if rope_dims is None else tuple(rope_dims)
        self.multimodal_rope = multimodal_rope
        self.defaults_used = dict(defaults_used or {})
        self.notices = tuple(notices)
        self._active_parameters = active_parameters
        self.in_files, self.gguf = None if stored is None else tuple(stored), gguf
        self._stored = self.in_files
        self.cache_groups: tuple[tuple[LayerCache, int], ...] = tuple(Counter(self.caches).items())

    def replace(self, **changes: Any) -> Architecture:
        """A copy with other fields (a text model that becomes part of a vision-language model, say)."""
        fields = {
            key: getattr(self, key)
            for key in (
                "model_type", "name", "tensors", "caches", "cache_layers", "num_hidden_layers", "hidden_size", "vocab_size",
                "num_attention_heads", "head_dim", "num_key_value_heads", "intermediate_size", "max_position_embeddings", "usual_context",
                "num_experts", "num_experts_per_tok", "moe_intermediate_size", "dtype", "dtype_stated", "quantization", "kind",
                "rotary_dim", "rope_factors", "multimodal_rope", "defaults_used", "notices",
            )
        }  # fmt: skip
        fields["active_parameters"] = self._active_parameters
        fields["rope_dims"] = self.own_rope_dims
        fields["gguf"] = self.gguf
        if not {"tensors", "quantization", "dtype"} & set(changes):  # else the files no longer say what is stored
            fields["stored"] = self.in_files
        fields.update(changes)
        if "caches" in changes and "cache_layers" not in changes:
            fields["cache_layers"] = None
        return Architecture(**fields)

    @property
    def rope_dims(self) -> tuple[int, ...]:
        """Width of each rope that differs from the others (local and global layers) [elements]."""
        if self.own_rope_dims is not None:
            return self.own_rope_dims
        return (self.rotary_dim,) if self.rotary_dim else ()

    # ---- weights ----

    @property
    def parameters(self) -> int:
        """Parameters as loaded for serving: tied weights once, towers in, MTP layers, buffers and scales out, packed weights unpacked."""
        return sum(tensor.elements for tensor in self.tensors if tensor.loaded and tensor.parameter)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses: all but the routed experts, and num_experts_per_tok / num_experts of these."""
        if self._active_parameters is not None:
            return self._active_parameters
        routed = self.component_parameters().get("routed_experts", 0)
        if not routed or not self.num_experts:
            return self.parameters
        return self.parameters - routed + routed * self.num_experts_per_tok // self.num_experts

    @property
    def own_active_parameters(self) -> int | None:
        """The `active_parameters` that were given; None where they are counted from the experts."""
        return self._active_parameters

    def component_parameters(self) -> dict[str, int]:
        """Parameters by component, as loaded."""
        found: dict[str, int] = {}
        for tensor in self.tensors:
            if tensor.loaded and tensor.parameter:
                found[tensor.component] = found.get(tensor.component, 0) + tensor.elements
        return found

    def stored_tensors(self) -> tuple[StoredTensor, ...]:
        """The tensors as the checkpoint stores them: quantised weights packed, with their scales."""
        if self._stored is None:
            from kvtax.architectures.quantization import store

            self._stored = store(self.tensors, self.quantization, self.dtype)
        return self._stored

    def weight_bytes(self, dtype: str | None = None) -> int:
        """Bytes of `parameters` in the checkpoint's own formats, scales in; a dtype overrides all formats.

        Args:
            dtype: a format to hold every parameter in, such as `bfloat16`; None for the checkpoint's own.

        Returns:
            Size [bytes].
        """
        if dtype is not None:
            return find_dtype(dtype).bytes(self.parameters)
        return sum(stored.bytes for stored in self.stored_tensors() if stored.source.loaded and stored.source.parameter)

    @property
    def checkpoint_parameters(self) -> int | None:
        """Elements that the files hold, MTP and all, as stored (packed)."""
        return sum(stored.elements for stored in self.stored_tensors() if stored.source.stored)

    @property
    def checkpoint_bytes(self) -> int | None:
        """Bytes that the files hold, MTP and all."""
        return sum(stored.bytes for stored in self.stored_tensors() if stored.source.stored)

    def dtype_bytes(self) -> dict[str, int]:
        """Bytes that the files hold by dtype, MTP and all, the largest first."""
        found: dict[str, int] = {}
        for stored in self.stored_tensors():
            if stored.source.stored:
                found[stored.dtype] = found.get(stored.dtype, 0) + stored.bytes
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    # ---- caches ----

    def kv_bytes(self, tokens: int, dtype: str = "bfloat16") -> int:
        """Bytes that one request of `tokens` tokens really holds: windows and fixed state included, cross-attention apart.

        sum over layers of cache.bytes(tokens, dtype)

        Args:
            tokens: prompt and output so far [tokens].
            dtype: of keys and values.

        Returns:
            Size [bytes].
        """
        name = resolve_kv_dtype(dtype)
        held = _count(tokens, "tokens")
        return sum(count * cache.bytes(held, name) for cache, count in self.cache_groups)

    def kv_bytes_per_token(self, dtype: str = "bfloat16", at: int | None = None) -> int:
        """Bytes that one more token adds: once every window is full (`at=None`), or as the at-th token (`at=1`: before any window is full)."""
        name = resolve_kv_dtype(dtype)
        token = None if at is None else _count(at, "at")
        return sum(count * cache.growth(name, token) for cache, count in self.cache_groups)

    def state_bytes(self, dtype: str = "bfloat16", ssm_dtype: str | None = None) -> int:
        """Fixed bytes per sequence of recurrent layers: conv states in the model dtype, recurrent states in `ssm_dtype` or what the config declares.

        Args:
            dtype: of keys and values; recurrent state does not follow it.
            ssm_dtype: overrides the dtype of recurrent states.

        Returns:
            Size [bytes].
        """
        resolve_kv_dtype(dtype)
        name = find_dtype(ssm_dtype).name if ssm_dtype else None
        return sum(
            count * cache.state_bytes(name) for cache, count in self.cache_groups if isinstance(cache, Recurrent)
        )

    def cross_attention_bytes(self, source_tokens: int | None = None, dtype: str = "bfloat16") -> int:
        """Bytes of the keys and values of a source (encoder output, image tokens) that a request keeps; by default of the longest source."""
        name = resolve_kv_dtype(dtype)
        source_tokens = None if source_tokens is None else _count(source_tokens, "source_tokens")
        return sum(
            count * cache.source_bytes(name, source_tokens)
            for cache, count in self.cache_groups
            if isinstance(cache, CrossAttention)
        )

    @property
    def attention_layers(self) -> int:
        """Layers whose cache grows without bound."""
        return sum(count for cache, count in self.cache_groups if isinstance(cache, FullAttention))


def _count(tokens: object, name: str) -> int:
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise InputError(f"must be a whole number of tokens, not {tokens!r:.64}", code="invalid-quantity", where=name)
    return tokens
