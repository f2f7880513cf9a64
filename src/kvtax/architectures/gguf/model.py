"""An Architecture from a GGUF file: hyper-parameters from its keys, weights from its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import (
    CompressedLatent,
    FullAttention,
    LayerCache,
    MultiHeadLatent,
    NoCache,
    Recurrent,
    SlidingWindow,
)
from kvtax.architectures.gguf import traits
from kvtax.architectures.gguf.file import FILE_TYPES, Gguf, GgufMix, bits, commonest
from kvtax.architectures.gguf.keys import read_shape
from kvtax.architectures.gguf.shape import Layer, Shape
from kvtax.architectures.gguf.tensor import GgufTensor
from kvtax.architectures.quantization.stored import StoredTensor
from kvtax.architectures.state import State
from kvtax.architectures.tensors import COLUMN, EXPERT, REPLICATED, ROW, VOCAB, Tensor
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.safe_text import safe
from kvtax.units import format_bytes

TOKENS_KEY = "tokenizer.ggml.tokens"
_COLUMNS = (
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_qkv",
    "attn_q_b",
    "attn_kv_b",
    "attn_gate",
    "ffn_gate",
    "ffn_up",
    "ssm_in",
    "ssm_out",
)
_ROWS = ("attn_output", "ffn_down")


class TensorInGguf(Protocol):
    """One tensor that a GGUF header names."""

    @property
    def name(self) -> str:
        """In the file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Columns first [elements]."""

    @property
    def dtype(self) -> str:
        """A name of `dtypes`."""


class _Group(NamedTuple):
    """Equal tensors of all blocks."""

    kind: str
    shape: tuple[int, ...]
    dtype: str


def read_model(
    keys: Mapping[str, Any], lengths: Mapping[str, int], tensors: Sequence[TensorInGguf], label: str = ""
) -> Architecture:
    """The model of a GGUF file.

    Args:
        keys: its metadata.
        lengths: of its arrays, kept or not.
        tensors: of all its parts together.
        label: how its mix of formats is called where the file's own name says so.

    Returns:
        The architecture, with the file as `gguf`.

    Raises:
        ConfigError: a projector, a file without tensors, or one that contradicts itself.
        InputError: a key is missing or impossible.
        UnsupportedArchitectureError: llama.cpp's name of the architecture is not known here.

    Source: ggml-org/llama.cpp b11434 src/llama-model.cpp, docs of the GGUF format in ggml-org/ggml.
    """
    arch = keys.get("general.architecture")
    if arch == "clip":
        raise ConfigError(
            "this is a projector (mmproj) for a vision model, not the model itself",
            code="gguf-projector",
            hint="give the model's own file; the projector's size goes into --mmproj-bytes",
        )
    held = [_as_held(tensor.name, tensor.shape) for tensor in tensors]
    types = [tensor.dtype for tensor in tensors]
    size = sum(tensor.bytes(dtype) for tensor, dtype in zip(held, types, strict=True))
    if not held:
        raise ConfigError("holds no tensors: it is a vocabulary or a part of a split file", code="gguf-no-tensors")
    if isinstance(arch, str) and arch not in traits.KNOWN:
        raise UnsupportedArchitectureError(
            f"GGUF architecture {safe(arch, 64)!r} is not known",
            where="general.architecture",
            hint=f"weights alone: {size} bytes = {format_bytes(size)} (headers); no KV, so no budget",
        )
    shape = read_shape(_with_vocabulary(keys, lengths, held, arch))
    _check_blocks(shape, held)
    _check_widths(shape, held)
    if shape.arch in traits.ENCODERS:
        shape = shape._replace(layers=tuple(layer._replace(attends=False) for layer in shape.layers))
    loaded = [index for index, tensor in enumerate(held) if tensor.layer < len(shape.layers)]
    name = label or FILE_TYPES.get(_file_type(keys), "") or commonest(held, types).upper()
    gguf = Gguf(
        shape, tuple(held[index] for index in loaded), tuple(types[index] for index in loaded), safe(name, 64), size
    )
    stored = tuple(_stored(held, types, len(shape.layers)))
    return _architecture(gguf, stored)


def _file_type(keys: Mapping[str, Any]) -> int:
    value = keys.get("general.file_type")
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _with_vocabulary(
    keys: Mapping[str, Any], lengths: Mapping[str, int], tensors: Iterable[GgufTensor], arch: object
) -> dict[str, Any]:
    """The keys with vocab_size: stated, else as many tokens as the tokenizer has, else rows of the embedding."""
    found = dict(keys)
    name = f"{arch}.vocab_size"
    if name not in found:
        rows = next((tensor.shape[1] for tensor in tensors if tensor.kind == "token_embd" and len(tensor.shape) > 1), 0)
        found[name] = rows or lengths.get(TOKENS_KEY, 0)
    return found


def _as_held(name: str, shape: tuple[int, ...]) -> GgufTensor:
    """`blk.3.attn_q.weight` -> attn_q of block 3."""
    layer, kind = -1, name
    if name.startswith("blk."):
        number, dot, rest = name[4:].partition(".")
        if dot and number.isascii() and number.isdecimal() and len(number) <= 6:
            layer, kind = int(number), rest
    return GgufTensor(kind.removesuffix(".weight"), shape or (1,), layer)


def _check_blocks(shape: Shape, tensors: Iterable[GgufTensor]) -> None:
    """Refuse a file whose blocks are not those that its keys count."""
    found = {tensor.layer for tensor in tensors if tensor.layer >= 0}
    stated = len(shape.layers) + shape.next_layers
    drafted = {tensor.layer for tensor in tensors if "nextn" in tensor.kind}
    if shape.next_layers and not drafted:
        raise _contradiction(f"{shape.next_layers} blocks are said to draft tokens, and none has such tensors")
    if (not found and len(shape.layers)) or (
        len(found) > stated or max(found) >= stated or not set(range(len(shape.layers))) <= found
    ):
        raise ConfigError(
            f"block_count says {stated} blocks, the tensors are of {len(found)}, up to number {max(found, default=0)}",
            code="gguf-inconsistent",
            hint="where the file is split, give its first part with the others beside it",
        )


def _contradiction(problem: str) -> ConfigError:
    return ConfigError(problem, code="gguf-inconsistent", hint="is the file whole, and of this model?")


def _check_widths(shape: Shape, tensors: Iterable[GgufTensor]) -> None:
    """Refuse a file whose keys give other widths than its tensors have: what it keeps of a token would be made up.

    Raises:
        ConfigError: code `gguf-inconsistent`.
    """
    for tensor in tensors:
        rows = tensor.shape[1] if len(tensor.shape) > 1 else 0
        if tensor.kind == "token_embd" and tensor.shape[0] != shape.embedding_length:
            raise _contradiction(
                f"embedding_length is {shape.embedding_length}, the embedding has {tensor.shape[0]} columns"
            )
        if not rows or tensor.kind not in ("attn_k", "attn_v") or not 0 <= tensor.layer < len(shape.layers):
            continue
        layer = shape.layers[tensor.layer]
        borrows = shape.arch.startswith(
            "gemma"
        )  # layers that read those of earlier ones have their own matrices all the same
        if shape.latent or layer.recurrent or (borrows and not layer.attends) or shape.arch in traits.ENCODERS:
            continue
        width = layer.key_width if tensor.kind == "attn_k" else layer.value_width
        if not layer.attends or width != rows:
            stated = f"{width if layer.attends else 0} by its keys"
            raise _contradiction(f"{tensor.kind} of block {tensor.layer} has {rows} rows, {stated}")


# ---- tensors ----


def _stored(tensors: Sequence[GgufTensor], types: Sequence[str], blocks: int) -> Iterable[StoredTensor]:
    """The tensors of the file, equal ones of several blocks together; shapes rows first, as elsewhere."""
    groups: dict[_Group, list[int]] = {}
    for tensor, dtype in zip(tensors, types, strict=True):
        groups.setdefault(_Group(tensor.kind, tensor.shape[::-1], dtype), []).append(tensor.layer)
    for group, layers in groups.items():
        for loaded in (True, False):
            chosen = tuple(layer for layer in layers if (layer < blocks) == loaded)
            if not chosen:
                continue
            single = chosen == (-1,)
            source = Tensor(
                group.kind if single else f"blk.*.{group.kind}",
                group.shape,
                _component(group.kind) if loaded else "mtp",
                () if single else chosen,
                shard=_shard(group.kind, group.shape),
                linear=len(group.shape) > 1 and loaded,
                loaded=loaded,
                dtype=group.dtype,
            )
            yield StoredTensor(source.name, group.shape, group.dtype, len(chosen), source)


def _component(kind: str) -> str:
    if kind.startswith(("v.", "mm.", "a.")):  # Ollama's files have the towers inside
        return "audio" if kind.startswith("a.") else "vision"
    if kind.startswith(("token_embd", "per_layer_token_embd", "position_embd", "token_types")):
        return "embedding"
    if kind in ("output", "output.bias", "cls", "cls.output"):
        return "lm_head"
    if "norm" in kind:
        return "norms"
    if "_exps" in kind or "_chexps" in kind:
        return "routed_experts"
    if "_shexp" in kind:
        return "shared_experts"
    if kind.startswith(("ffn_gate_inp", "exp_probs_b")):
        return "router"
    if kind.startswith(("attn_", "indexer")):
        return "attention"
    if kind.startswith("ffn_"):
        return "mlp"
    return "linear_or_ssm" if kind.startswith(("ssm_", "shortconv", "time_mix", "channel_mix")) else "other"


def _shard(kind: str, shape: tuple[int, ...]) -> str:
    if "_exps" in kind:
        return EXPERT if len(shape) > 2 else REPLICATED
    if kind in ("token_embd", "output"):
        return VOCAB
    if kind.removesuffix(".bias") in _COLUMNS:
        return COLUMN
    return ROW if kind in _ROWS else REPLICATED


# ---- the model ----


def _architecture(gguf: Gguf, stored: tuple[StoredTensor, ...]) -> Architecture:
    shape = gguf.shape
    caches: list[LayerCache] = []
    owners: list[int] = []
    for index, layer in enumerate(shape.layers):
        for cache in _caches(shape, layer):
            caches.append(cache)
            owners.append(index)
    attending = [layer for layer in shape.layers if layer.attends] or [Layer()]
    width = max(layer.head_count for layer in shape.layers)
    return Architecture(
        model_type=shape.arch,
        name=f"{shape.arch} (GGUF)",
        tensors=tuple(tensor.source for tensor in stored),
        caches=caches,
        cache_layers=owners,
        num_hidden_layers=len(shape.layers),
        hidden_size=shape.embedding_length,
        vocab_size=shape.vocab_size,
        num_attention_heads=width,
        head_dim=shape.key_length_mla or shape.key_length,
        num_key_value_heads=max(layer.head_count_kv for layer in attending),
        intermediate_size=shape.feed_forward_length,
        max_position_embeddings=shape.context_length or None,
        num_experts=shape.expert_count,
        num_experts_per_tok=shape.expert_used_count,
        moe_intermediate_size=shape.expert_feed_forward_length if shape.expert_count else 0,
        dtype="float16",
        quantization=GgufMix(gguf.label.lower(), bits(commonest(gguf.tensors, gguf.types))),
        kind="encoder" if shape.arch in traits.ENCODERS else "decoder",
        rotary_dim=shape.rope_dimension_count,
        stored=stored,
        gguf=gguf,
    )


def _caches(shape: Shape, layer: Layer) -> Iterable[LayerCache]:
    """What one block keeps."""
    if shape.arch in traits.ENCODERS:
        yield NoCache()
        return
    attends = layer.attends and layer.key_width + layer.value_width > 0
    if attends:
        yield _attention(shape, layer)
    if layer.recurrent:
        states = [State("conv", (layer.conv_elements,), dtype="float32")] if layer.conv_elements else []
        states += [State("recurrent", (layer.state_elements,))] if layer.state_elements else []
        yield Recurrent(_variant(shape), tuple(states), "float16", "float32")
    elif not attends:
        yield NoCache()


def _attention(shape: Shape, layer: Layer) -> LayerCache:
    if layer.compress_ratio or shape.arch in traits.COMPRESSED:
        return CompressedLatent(layer.key_length, shape.sliding_window, layer.compress_ratio, layer.indexer_length)
    if shape.latent and not layer.value_length:
        rope = layer.key_length - shape.kv_lora_rank
        return MultiHeadLatent(shape.kv_lora_rank, rope, layer.indexer_length // 128 * 132)
    heads, key, value = layer.head_count_kv, layer.key_length, layer.value_length
    if layer.windowed and shape.windowed:
        return SlidingWindow(heads, key, value, shape.sliding_window)
    return FullAttention(heads, key, value, 2 * layer.indexer_length)


def _variant(shape: Shape) -> str:
    if shape.shortconv_l_cache:
        return "short_conv"
    if shape.kda_head_dim:
        return "kimi_delta"
    if shape.arch.startswith(("rwkv", "arwkv")):
        return "rwkv"
    if shape.arch.startswith("qwen"):
        return "gated_delta_net"
    return "mamba2" if shape.ssm_group_count else "mamba1"
