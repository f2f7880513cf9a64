"""The anatomy of a model: its layers by kind of cache, its weights by component, how its KV grows, what each rank holds.

Nothing here is new arithmetic: it is `Architecture`, `cache.per_rank` and `rank_weight_elements` asked in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import (
    ChunkedLocal,
    CompressedLatent,
    CrossAttention,
    LayerCache,
    MultiHeadLatent,
    NoCache,
    Recurrent,
    Shared,
    SlidingWindow,
)
from kvtax.architectures.image_tokens import image_tokens
from kvtax.architectures.tensors import COMPONENTS
from kvtax.dtypes import resolve_kv_dtype
from kvtax.formulas.weights import element_bytes, rank_weight_elements

TENSOR_PARALLEL_SIZES = (1, 2, 4, 8)
TOKENS_WITHOUT_LIMIT = 131_072
"""The request that is shown for a model whose config sets no limit."""
_FIRST_LENGTH = 1024
_LATENT_DTYPES = ("bfloat16", "fp8_e4m3")
_SPARSE_DTYPES = ("bfloat16", "fp8_ds_mla", "nvfp4_ds_mla")
_HEAD_DTYPES = ("bfloat16", "fp8_e4m3", "int8_per_token_head", "int4_per_token_head", "nvfp4")


class LayerGroup(NamedTuple):
    """Layers that keep the same cache.

    Args:
        cache: of one of them.
        layers: their indices, in order.
        early_bytes_per_token: what one more token adds before any window is full, all layers together [bytes].
        bytes_per_token: what one more token adds in a long request [bytes].
        request_bytes: what the request that is shown holds, fixed state included [bytes].
        state_bytes: the fixed part of that [bytes].
        source_bytes: keys and values of the longest source of cross-attention, counted apart [bytes].
    """

    cache: LayerCache
    layers: tuple[int, ...]
    early_bytes_per_token: int
    bytes_per_token: int
    request_bytes: int
    state_bytes: int
    source_bytes: int


class ComponentWeights(NamedTuple):
    """The weights of one component, as loaded for serving.

    Args:
        component: one of tensors.COMPONENTS; `buffers` for what is loaded beside the parameters.
        parameters: of it [elements].
        bytes: as stored, scales included [bytes].
        loaded: False for what the files hold and serving leaves out.
    """

    component: str
    parameters: int
    bytes: int
    loaded: bool


class Length(NamedTuple):
    """What one request of `tokens` tokens holds [bytes].

    Args:
        tokens: of the request.
        bytes: all layers, fixed state included.
        by_kind: the same by kind of cache.
        without_windows: if window and chunk layers kept every token, None where there are none.
    """

    tokens: int
    bytes: int
    by_kind: dict[str, int]
    without_windows: int | None


class KvFormat(NamedTuple):
    """KV in one dtype [bytes]; `calibrated`: the format that the checkpoint asks for."""

    dtype: str
    early_bytes_per_token: int
    bytes_per_token: int
    request_bytes: int
    calibrated: bool


class RankShare(NamedTuple):
    """What one tensor-parallel rank holds.

    Args:
        tensor_parallel_size: ranks.
        weights_bytes: on the fullest rank [bytes].
        bytes_per_token: what one more token adds there in a long request [bytes].
        request_bytes: what the request that is shown holds there [bytes].
        source_bytes: cross-attention of that request there [bytes].
        kv_copies: all ranks together over the whole: 1 where nothing is kept twice, None without KV.
        refused: whether the attention heads do not divide.
        uneven_heads: counts of key/value heads that neither divide by the ranks nor the ranks by them.
        replicated_heads: counts of key/value heads that are fewer than the ranks.
        replicated_latent: whether a latent is kept whole on each rank.
    """

    tensor_parallel_size: int
    weights_bytes: int
    bytes_per_token: int
    request_bytes: int
    source_bytes: int
    kv_copies: float | None
    refused: bool
    uneven_heads: tuple[int, ...]
    replicated_heads: tuple[int, ...]
    replicated_latent: bool


class Image(NamedTuple):
    """What one image takes in the decoder; `tokens` and `bytes` are None where the family's rule is not known.

    Args:
        width: [pixels].
        height: [pixels].
        tokens: in the decoder [tokens].
        bytes: keys and values of these tokens, before any window is full [bytes].
    """

    width: int
    height: int
    tokens: int | None
    bytes: int | None


IMAGE_SIDE = 1024
"""Side of the image that is shown unless another is asked for [pixels]."""


class Anatomy(NamedTuple):
    """Everything that `kvtax inspect` says about an architecture; `tokens` is the length of the request shown."""

    architecture: Architecture
    kv_dtype: str
    tokens: int
    groups: tuple[LayerGroup, ...]
    layers_without_cache: int
    components: tuple[ComponentWeights, ...]
    lengths: tuple[Length, ...]
    formats: tuple[KvFormat, ...]
    ranks: tuple[RankShare, ...]
    image: Image | None = None

    @property
    def source_bytes(self) -> int:
        """Keys and values of the longest source of cross-attention [bytes]."""
        return sum(group.source_bytes for group in self.groups)


def dissect(
    architecture: Architecture,
    kv_dtype: str | None = None,
    tokens: int | None = None,
    image: tuple[int, int] = (IMAGE_SIDE, IMAGE_SIDE),
) -> Anatomy:
    """The anatomy of a model.

    Args:
        architecture: of the model.
        kv_dtype: of keys and values; None: the 16-bit dtype of the model.
        tokens: length of the request that is shown; None: the model's limit [tokens].
        image: width and height of the image that is shown [pixels].

    Raises:
        UnknownNameError: no such KV dtype.
        InputError: an image that no processor takes.
    """
    usual = architecture.dtype if architecture.dtype in ("bfloat16", "float16") else "bfloat16"
    dtype = resolve_kv_dtype(usual if kv_dtype in (None, "auto") else str(kv_dtype))
    length = tokens or architecture.max_position_embeddings or TOKENS_WITHOUT_LIMIT
    return Anatomy(
        architecture=architecture,
        kv_dtype=dtype,
        tokens=length,
        groups=tuple(_groups(architecture, dtype, length)),
        layers_without_cache=max(0, architecture.num_hidden_layers - len(set(architecture.cache_layers))),
        components=tuple(_components(architecture)),
        lengths=tuple(_length(architecture, each, dtype) for each in lengths_up_to(length)),
        formats=tuple(_formats(architecture, dtype, length)),
        ranks=tuple(_rank(architecture, tp, dtype, length) for tp in TENSOR_PARALLEL_SIZES),
        image=_image(architecture, dtype, *image),
    )


def _image(architecture: Architecture, dtype: str, width: int, height: int) -> Image | None:
    """What one image takes; None for a model without a vision tower, or one that looks at images by cross-attention."""
    if any(cache.kind == "cross_attention" for cache in architecture.caches) or not any(
        tensor.component == "vision" for tensor in architecture.tensors
    ):
        return None
    tokens = image_tokens(architecture, width, height)
    held = None if tokens is None else architecture.kv_bytes(tokens, dtype) - architecture.state_bytes()
    return Image(width, height, tokens, held)


def lengths_up_to(limit: int) -> list[int]:
    """Lengths from 1k to the limit, each twice the one before; shorter ones where the limit itself is short [tokens].

    >>> lengths_up_to(6000)
    [1024, 2048, 4096, 6000]
    >>> lengths_up_to(448)
    [64, 128, 256, 448]
    """
    first = _FIRST_LENGTH
    while first > 1 and first * 4 > limit:
        first //= 2
    found = []
    while first < limit:
        found.append(first)
        first *= 2
    return [*found, limit]


# ---- layers ----


def _groups(architecture: Architecture, dtype: str, tokens: int) -> Iterable[LayerGroup]:
    """Equal caches together, in the order of their first layer; all layers that read another's cache are one group."""
    found: dict[LayerCache, list[int]] = {}
    for cache, layer in zip(architecture.caches, architecture.cache_layers, strict=True):
        known = (
            next((each for each in found if isinstance(each, Shared)), cache) if isinstance(cache, Shared) else cache
        )
        found.setdefault(known, []).append(layer)
    for cache, layers in found.items():
        count = len(layers)
        yield LayerGroup(
            cache,
            tuple(layers),
            count * cache.growth(dtype, 1),
            count * cache.growth(dtype),
            count * cache.bytes(tokens, dtype),
            count * cache.state_bytes() if isinstance(cache, Recurrent) else 0,
            count * cache.source_bytes(dtype) if isinstance(cache, CrossAttention) else 0,
        )


def _length(architecture: Architecture, tokens: int, dtype: str) -> Length:
    by_kind: dict[str, int] = {}
    for cache, count in architecture.cache_groups:
        size = count * cache.bytes(tokens, dtype)
        if size:
            by_kind[cache.kind] = by_kind.get(cache.kind, 0) + size
    total, saved, windows = architecture.kv_bytes(tokens, dtype), 0, False
    for cache, count in architecture.cache_groups:
        if isinstance(cache, (SlidingWindow, ChunkedLocal)):
            windows = True
            saved += count * (tokens - cache.tokens_held(tokens)) * cache.token_bytes(dtype)
    return Length(tokens, total, by_kind, total + saved if windows else None)


def _formats(architecture: Architecture, dtype: str, tokens: int) -> Iterable[KvFormat]:
    if not any(cache.growth(dtype, 1) for cache in architecture.caches):
        return
    declared = getattr(architecture.quantization, "kv_cache_dtype", None)
    declared = resolve_kv_dtype(declared) if declared else None
    names = [dtype] + [name for name in _usual_formats(architecture.caches) if name not in (dtype, *_twins(dtype))]
    if declared is not None and declared not in names:
        names.append(declared)
    for name in names:
        yield KvFormat(
            name,
            architecture.kv_bytes_per_token(name, 1),
            architecture.kv_bytes_per_token(name),
            architecture.kv_bytes(tokens, name),
            name == declared,
        )


def _twins(dtype: str) -> tuple[str, ...]:
    return ("bfloat16", "float16") if dtype in ("bfloat16", "float16") else ()


def _usual_formats(caches: Sequence[LayerCache]) -> tuple[str, ...]:
    if any(isinstance(cache, CompressedLatent) for cache in caches):
        return _LATENT_DTYPES
    latents = [cache for cache in caches if isinstance(cache, MultiHeadLatent)]
    if not latents:
        return _HEAD_DTYPES
    return _SPARSE_DTYPES if any(cache.index_bytes for cache in latents) else _LATENT_DTYPES


# ---- weights ----


def _components(architecture: Architecture) -> Iterable[ComponentWeights]:
    """Components in the order of tensors.COMPONENTS, then what is loaded or stored beside the parameters."""
    parameters = architecture.component_parameters()
    sizes: dict[str, int] = {}
    buffers = left_out = left_out_parameters = 0
    for stored in architecture.stored_tensors():
        tensor = stored.source
        if not tensor.loaded:
            left_out += stored.bytes if tensor.stored else 0
        elif tensor.parameter:
            sizes[tensor.component] = sizes.get(tensor.component, 0) + stored.bytes
        else:
            buffers += stored.bytes
    for tensor in architecture.tensors:
        if not tensor.loaded and tensor.stored and tensor.parameter:
            left_out_parameters += tensor.elements
    for component in COMPONENTS:
        if component in sizes:
            yield ComponentWeights(component, parameters.get(component, 0), sizes[component], True)
    if buffers:
        yield ComponentWeights("buffers", 0, buffers, True)
    if left_out:
        yield ComponentWeights("not_loaded", left_out_parameters, left_out, False)


# ---- ranks ----


def _rank(architecture: Architecture, tp: int, dtype: str, tokens: int) -> RankShare:
    growth = held = source = whole = 0
    heads: set[int] = set()
    latent = False
    for cache, count in architecture.cache_groups:
        on_rank = cache.per_rank(tp)
        growth += count * on_rank.growth(dtype)
        held += count * on_rank.bytes(tokens, dtype)
        whole += count * cache.bytes(tokens, dtype)
        if isinstance(cache, CrossAttention) and isinstance(on_rank, CrossAttention):
            source += count * on_rank.source_bytes(dtype)
        if isinstance(cache, (MultiHeadLatent, CompressedLatent)):
            latent = True
        elif not isinstance(cache, (Recurrent, Shared, NoCache)) and cache.num_key_value_heads:
            heads.add(cache.num_key_value_heads)
    elements = rank_weight_elements(architecture, tp)
    return RankShare(
        tensor_parallel_size=tp,
        weights_bytes=sum(element_bytes(count, name) for (_, name), count in elements.items()),
        bytes_per_token=growth,
        request_bytes=held,
        source_bytes=source,
        kv_copies=held * tp / whole if whole else None,
        refused=bool(architecture.num_attention_heads % tp),
        uneven_heads=tuple(sorted(number for number in heads if number % tp and tp % number)),
        replicated_heads=tuple(sorted(number for number in heads if number < tp and tp % number == 0)),
        replicated_latent=latent and tp > 1,
    )
