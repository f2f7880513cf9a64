"""A Shape from the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvtax.architectures.gguf import traits
from kvtax.architectures.gguf.shape import Layer, Shape
from kvtax.errors import InputError, UnsupportedArchitectureError

MOST_LAYERS = 4096


class _Keys:
    """The keys below `general.architecture`, each checked when it is read."""

    def __init__(self, arch: str, values: Mapping[str, Any]) -> None:
        self.values = {key.removeprefix(f"{arch}."): value for key, value in values.items()}

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def number(self, key: str, default: int | None = None) -> int:
        """A whole number, not negative.

        Raises:
            InputError: missing without a default, or no such number.
        """
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**48:
            raise InputError(f"must be a whole number, not {value!r:.64}", code="invalid-gguf", where=key)
        return value

    def per_layer(self, key: str, layers: int, default: Sequence[int]) -> list[int]:
        """One number for each layer, from an array or from one number for all."""
        value = self.values.get(key)
        if value is None:
            return list(default)
        if not isinstance(value, (list, tuple)):
            return [self.number(key)] * layers
        if len(value) < layers or any(
            isinstance(entry, bool) or not isinstance(entry, int) or not 0 <= entry < 2**32 for entry in value
        ):
            raise InputError(f"must be {layers} whole numbers", code="invalid-gguf", where=key)
        return list(value[:layers])

    def flags(self, key: str, layers: int) -> list[bool] | None:
        """One answer for each layer from an array, repeated where it is shorter; None without one."""
        value = self.values.get(key)
        if not isinstance(value, (list, tuple)):
            return None
        if not value:
            raise InputError("must not be empty", code="invalid-gguf", where=key)
        return [bool(value[index % len(value)]) for index in range(layers)]


class _Heads(NamedTuple):
    """What the attention of each layer has."""

    query: list[int]
    kv: list[int]
    key_length: int
    value_length: int
    key_length_swa: int
    value_length_swa: int


def read_shape(values: Mapping[str, Any], arch: str | None = None) -> Shape:
    """The Shape that GGUF keys describe.

    Args:
        values: keys with or without the architecture in front (`llama.block_count` or `block_count`).
        arch: `general.architecture`, where it is not among them.

    Returns:
        The shape.

    Raises:
        InputError: a key that is missing, or a value that cannot be.
        UnsupportedArchitectureError: no architecture is named.

    Source: ggml-org/llama.cpp b11434 src/llama-model.cpp load_hparams, src/llama-hparams.cpp, src/models/*.cpp.
    """
    name = arch or values.get("general.architecture")
    if not isinstance(name, str) or not name:
        raise UnsupportedArchitectureError("no architecture is named", where="general.architecture")
    keys = _Keys(name, values)
    next_layers = keys.number("nextn_predict_layers", 0)
    count = keys.number("block_count") - next_layers
    if not 0 < count <= MOST_LAYERS:
        raise InputError(f"must leave 1 to {MOST_LAYERS} layers, not {count}", code="invalid-gguf", where="block_count")
    feed_forward = keys.per_layer("feed_forward_length", count, [0] * count)
    heads = _heads(keys, count)
    recurrent, attends = _kinds(name, keys, count, heads.kv, feed_forward)
    windowed = _windows(name, keys, count)
    states = _state(name, keys, heads)
    ratios = keys.per_layer("attention.compress_ratios", count, [0] * count)
    layers = [
        _layer(name, keys, heads, index, attends[index], windowed[index], feed_forward[index], ratios[index])._replace(
            conv_elements=states[0] if recurrent[index] else 0, state_elements=states[1] if recurrent[index] else 0
        )
        for index in range(count)
    ]
    used = keys.number("expert_used_count", 0)
    plain_width = keys.number("expert_feed_forward_length", max(feed_forward) if used else 0)
    shared = keys.number("expert_shared_feed_forward_length", keys.number("expert_shared_count", 0) * plain_width)
    return Shape(
        arch=name,
        layers=tuple(layers),
        embedding_length=keys.number("embedding_length"),
        vocab_size=keys.number("vocab_size"),
        context_length=keys.number("context_length", 0),
        sliding_window=_window(name, keys) if any(windowed) else 0,
        expert_count=keys.number("expert_count", 0),
        expert_used_count=used,
        expert_feed_forward_length=plain_width,
        expert_shared_feed_forward_length=shared,
        leading_dense_block_count=keys.number("leading_dense_block_count", 0),
        key_length=heads.key_length,
        value_length=heads.value_length,
        gated=name not in traits.NOT_GATED,
        next_layers=next_layers,
        **{field: keys.number(key, 0) for field, key in _PLAIN.items()},
    )


_PLAIN = {
    "key_length_mla": "attention.key_length_mla", "value_length_mla": "attention.value_length_mla",
    "kv_lora_rank": "attention.kv_lora_rank", "q_lora_rank": "attention.q_lora_rank",
    "rope_dimension_count": "rope.dimension_count", "embedding_length_per_layer_input": "embedding_length_per_layer_input",
    "indexer_head_count": "attention.indexer.head_count", "ssm_conv_kernel": "ssm.conv_kernel",
    "ssm_inner_size": "ssm.inner_size", "ssm_state_size": "ssm.state_size", "ssm_time_step_rank": "ssm.time_step_rank",
    "ssm_group_count": "ssm.group_count", "kda_head_dim": "kda.head_dim", "shortconv_l_cache": "shortconv.l_cache",
}  # fmt: skip


def _heads(keys: _Keys, count: int) -> _Heads:
    """Heads of each layer and their widths: embedding_length / head_count where no width is stated."""
    query = keys.per_layer("attention.head_count", count, [0] * count)
    first = query[0]
    width = keys.number("embedding_length") // first if first else 0
    key_length = keys.number("attention.key_length", width)
    value_length = keys.number("attention.value_length", width)
    return _Heads(
        query,
        keys.per_layer("attention.head_count_kv", count, query),
        key_length,
        value_length,
        keys.number("attention.key_length_swa", key_length),
        keys.number("attention.value_length_swa", value_length),
    )


def _layer(
    name: str, keys: _Keys, heads: _Heads, index: int, attends: bool, windowed: bool, width: int, ratio: int
) -> Layer:
    """The attention of one layer."""
    latent = "attention.key_length_mla" in keys
    value_length = heads.value_length_swa if windowed else heads.value_length
    layer = Layer(
        attends=attends,
        windowed=windowed,
        head_count=heads.query[index],
        head_count_kv=heads.kv[index],
        key_length=heads.key_length_swa if windowed else heads.key_length,
        value_length=0 if latent or name in traits.KEYS_ONLY else value_length,
        feed_forward_length=width,
    )
    indexed = keys.number("attention.indexer.key_length", 0)
    if name in traits.COMPRESSED:
        return traits.compressed(layer, ratio, indexed)
    if indexed and attends:
        types = keys.values.get("attention.indexer.types")
        owns = not isinstance(types, (list, tuple)) or index >= len(types) or types[index] in (0, "full")
        if name in traits.DENSE_WITHOUT_INDEXER:
            owns = owns and index >= keys.number("leading_dense_block_count", 0)
        pools = ratio > 0 or "attention.indexer.kpool" in keys
        rows = traits.POOLED_INDEXER.get(name, 1) if pools else 1
        layer = layer._replace(indexer_length=rows * indexed if owns else 0)
    return layer


def _kinds(
    name: str, keys: _Keys, count: int, head_count_kv: list[int], feed_forward: list[int]
) -> tuple[list[bool], list[bool]]:
    """Which layers keep a recurrent state, and which keys and values of their own."""
    stated = keys.flags("attention.recurrent_layers", count)
    recurrent, attends = [False] * count, [True] * count
    if stated is not None:
        recurrent, attends = stated, [not state for state in stated]
    elif "full_attention_interval" in keys or name in traits.USUAL_INTERVAL:
        interval = max(keys.number("full_attention_interval", traits.USUAL_INTERVAL.get(name, 4)), 1)
        recurrent = [(index + 1) % interval != 0 for index in range(count)]
        attends = [not state for state in recurrent]
    elif name in traits.BLOCKS_OF_ONE_KIND:
        recurrent = [not heads and not width for heads, width in zip(head_count_kv, feed_forward, strict=True)]
        attends = [heads > 0 and not width for heads, width in zip(head_count_kv, feed_forward, strict=True)]
    elif name in traits.STATE_WITHOUT_HEADS:
        recurrent = [not heads for heads in head_count_kv]
        attends = [heads > 0 for heads in head_count_kv]
    elif name in traits.STATE_AND_HEADS:
        recurrent = [True] * count
    elif name in traits.ONLY_STATE:
        recurrent, attends = [True] * count, [False] * count
    for index in range(count - min(keys.number("attention.shared_kv_layers", 0), count), count):
        attends[index] = False
    return recurrent, [owns and head_count_kv[index] > 0 for index, owns in enumerate(attends)]


def _windows(name: str, keys: _Keys, count: int) -> list[bool]:
    """Which layers have a window: an array, a stated period, or the period that the architecture has built in."""
    if not _window(name, keys):
        return [False] * count
    pattern = keys.flags("attention.sliding_window_pattern", count)
    if pattern is not None:
        return pattern
    built_in = traits.period(name, count)
    if built_in is None:
        return [name in traits.ALL_WINDOWED] * count
    period, dense_first = built_in
    if "attention.sliding_window_pattern" in keys:
        period = max(keys.number("attention.sliding_window_pattern"), 1)
    return [index % period != 0 if dense_first else index % period < period - 1 for index in range(count)]


def _window(name: str, keys: _Keys) -> int:
    return keys.number("attention.sliding_window", traits.WINDOWS.get(name, 0))


def _state(name: str, keys: _Keys, attention: _Heads) -> tuple[int, int]:
    """Elements of the convolution state (R) and of the recurrent state (S) of one sequence in one layer."""
    head_count = attention.query
    if name == "minimax-01":  # lightning attention: a matrix a head, no convolution
        return 0, attention.key_length**2 * max(head_count)
    if "shortconv.l_cache" in keys:
        return keys.number("embedding_length") * (max(keys.number("shortconv.l_cache") - 1, 0)), 0
    if "kda.head_dim" in keys:
        width, heads = keys.number("kda.head_dim"), max(head_count)
        return 3 * max(keys.number("ssm.conv_kernel") - 1, 0) * heads * width, width * width * heads
    if "wkv.head_size" in keys:
        embedding = keys.number("embedding_length")
        return keys.number("token_shift_count", 2) * embedding, embedding * keys.number("wkv.head_size")
    if "ssm.state_size" in keys:
        inner, state = keys.number("ssm.inner_size"), keys.number("ssm.state_size")
        channels = inner + 2 * keys.number("ssm.group_count", 0) * state
        return max(keys.number("ssm.conv_kernel") - 1, 0) * channels, state * inner
    return 0, 0
