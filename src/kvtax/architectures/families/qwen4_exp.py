"""The text model of Qwen4-Exp: Gated DeltaNet, indexed attention, experts, hyper-connections, n-gram embeddings."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache, Recurrent, State
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble, layers_where
from kvtax.architectures.families.qwen3_next import delta_net, gated_attention, separate_projections, shared_experts
from kvtax.architectures.recurrent import COMPONENT, convolution, kernel_size, layer_kinds, state_dtypes
from kvtax.architectures.tensors import COLUMN, VOCAB, Tensor, linear, norm

_LAYER = "model.layers.*"
_FULL = "full_attention"
_INDEXED = "indexed_attention"
_MAXIMUM_NGRAM_HEADS = 4096
# together they tell every prime below 3.3e24 from a composite number
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)


class _Embedding:
    """The n-gram embeddings (PLE): the layers that have one, counted from 1 in the file, and their widths."""

    def __init__(self, config: Config, shape: Shape, kinds: list[str]) -> None:
        stated = config.integers("ple_layer_ids", minimum=1, maximum=shape.num_hidden_layers) or []
        self.layers = tuple(sorted({index - 1 for index in stated}))
        for index in self.layers:
            if kinds[index] != "linear_attention":
                config.unsupported(
                    "ple_layer_ids", f"layer {index + 1} has no linear attention, which an n-gram embedding needs"
                )
        self.width = config.optional_integer("ple_embed_dim") or shape.hidden_size
        self.ngram_size = config.integer("ngram_size", minimum=2, maximum=64)
        self.heads = (self.ngram_size - 1) * config.integer("heads_per_ngram", maximum=_MAXIMUM_NGRAM_HEADS)
        if self.heads * max(1, len(self.layers)) > _MAXIMUM_NGRAM_HEADS:
            config.fail("heads_per_ngram", f"gives more than {_MAXIMUM_NGRAM_HEADS} n-gram tables")
        if self.layers and self.width % self.heads:
            config.fail("ple_embed_dim", f"{self.width} is not divisible by {self.heads} n-gram heads")
        self.kernel = kernel_size(config, "ple_conv_kernel_size")
        self.base = config.integer("ngram_vocab_size_base", minimum=2, maximum=2**31)
        self.multiple = config.integer("make_ngram_vocab_size_divisible_by")
        self.parts = config.integer("split_ngram_parts", maximum=2**16)

    def rows(self) -> list[int]:
        """Rows of each layer's table: a prime for each head, larger than the last; the sum padded to a multiple."""
        found: list[int] = []
        prime = self.base - 1
        for _ in self.layers:
            total = 0
            for _ in range(self.heads):
                prime += 1
                while not _is_prime(prime):
                    prime += 1
                total += prime
            found.append(-(-total // self.multiple) * self.multiple)
        return found


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Gated DeltaNet, or gated attention over the tokens that an indexer picks; experts; hc_count streams mixed.

    Source: transformers 5.24.0 models/qwen4_exp/modeling_qwen4_exp.py (checkpoint names: conversion_mapping.py).
    """
    shape = Shape(config)
    hidden, streams = shape.hidden_size, config.integer("hc_count", minimum=2, maximum=1024)
    kinds = _kinds(config, shape.num_hidden_layers)
    recurring, attending = layers_where(kinds, "linear_attention"), layers_where(kinds, _INDEXED)
    delta, extra = delta_net(config, hidden), _Embedding(config, shape, kinds)
    body = shared_experts(config, hidden, f"{_LAYER}.mlp", shape.layers)
    if recurring:
        body += delta.tensors(f"{_LAYER}.linear_attn", recurring, separate_projections(delta))
    index_bytes = 0
    if attending:
        body += gated_attention(config, shape, f"{_LAYER}.self_attn", attending)
        body += _indexer(config, hidden, attending)
        # the raw 16-bit key of every token; blocks of indexer_compress_ratio tokens are averaged from these
        index_bytes = 2 * config.integer("indexer_head_dim")
    body += _ngram_layers(extra, hidden, streams)
    for name in (f"{_LAYER}.attn_hyper_connection", f"{_LAYER}.mlp_hyper_connection"):
        body += _hyper_connection(config, name, hidden, streams, shape.layers)
    mixer = _hyper_connection(config, "model.hyper_connection_mixer", hidden, streams, ())
    num_experts = config.integer("num_experts", maximum=MAXIMUM_EXPERTS)
    full = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim, index_bytes)
    caches = _caches(kinds, full, delta.cache(state_dtypes(config)), extra, streams * hidden)
    return assemble(
        config, shape, body, caches, prefix=prefix, final_norm=mixer, num_experts=num_experts,
        num_experts_per_tok=config.integer("num_experts_per_tok", maximum=num_experts),
        moe_intermediate_size=config.integer("moe_intermediate_size"),
    )  # fmt: skip


def _kinds(config: Config, num_hidden_layers: int) -> list[str]:
    """layer_types, in which full attention means indexed; else indexed on every full_attention_interval-th layer."""
    sparse = "qwen_sparse_attention"
    kinds = layer_kinds(config, num_hidden_layers, ("linear_attention", _FULL, _INDEXED, sparse))
    if kinds is not None:
        return [_INDEXED if kind in (_FULL, sparse) else kind for kind in kinds]
    interval = config.integer("full_attention_interval", default=4, maximum=MAXIMUM_LAYERS)
    return ["linear_attention" if (index + 1) % interval else _INDEXED for index in range(num_hidden_layers)]


def _indexer(config: Config, hidden: int, layers: tuple[int, ...]) -> list[Tensor]:
    """One projection to query heads and one key, and a norm for each."""
    width = config.integer("indexer_head_dim")
    heads = config.integer("indexer_n_heads") + config.integer("indexer_kv_heads", maximum=1)
    prefix = f"{_LAYER}.self_attn.indexer"
    return [
        *linear(f"{prefix}.index_qk_proj", heads * width, hidden, "attention", layers),
        *norm(f"{prefix}.q_layernorm", width, layers),
        *norm(f"{prefix}.k_layernorm", width, layers),
    ]


def _hyper_connection(config: Config, prefix: str, hidden: int, streams: int, layers: tuple[int, ...]) -> list[Tensor]:
    """A norm over all streams and a low-rank gate over them; in layers also the weights that put the output back."""
    wide, rank = streams * hidden, config.integer("hc_lowrank")
    found = [
        *norm(f"{prefix}.hc_norm", wide, layers),
        *linear(f"{prefix}.input_mix_weight_down", rank, wide, "other", layers),
        *linear(f"{prefix}.input_mix_weight_up", wide, rank, "other", layers),
    ]
    return [*found, *linear(f"{prefix}.block_inject_weight", streams, wide, "other", layers)] if layers else found


def _ngram_layers(extra: _Embedding, hidden: int, streams: int) -> list[Tensor]:
    """Tables of hashed n-grams, projections into the streams, norms, and a dilated convolution."""
    found: list[Tensor] = []
    wide, layers, prefix = streams * hidden, extra.layers, f"{_LAYER}.ple"
    for index, rows in zip(layers, extra.rows(), strict=True):
        name, width = f"{prefix}.ple_embedding.ngram_embedding", extra.width // extra.heads
        if rows % extra.parts == 0 and extra.parts > 1:
            shard = (rows // extra.parts, width)
            found.append(Tensor(f"{name}.shard_*.weight", shard, "embedding", (index,), extra.parts, VOCAB))
        else:
            found.append(Tensor(f"{name}.weight", (rows, width), "embedding", (index,), shard=VOCAB))
    if not layers:
        return found
    for name, size in (
        ("layer_multipliers", extra.ngram_size),
        ("ngram_heads_vocab_sizes", extra.heads),
        ("ngram_heads_offsets", extra.heads),
    ):
        table = f"{prefix}.ple_embedding.{name}"
        found.append(Tensor(table, (size,), "embedding", layers, parameter=False, dtype="int64"))
    found += linear(f"{prefix}.key_proj", wide, extra.width, COMPONENT, layers, shard=COLUMN)
    found += linear(f"{prefix}.value_proj", hidden, extra.width, COMPONENT, layers, shard=COLUMN)
    for name in ("norm_key", "norm_query", "norm_conv"):
        found += norm(f"{prefix}.{name}", wide, layers)
    return [*found, *convolution(f"{prefix}.conv1d", wide, extra.kernel, layers)]


def _caches(
    kinds: list[str], full: FullAttention, recurrent: LayerCache, extra: _Embedding, wide: int
) -> list[LayerCache]:
    """A layer with an n-gram embedding also keeps the inputs of its dilated convolution and the last tokens' ids."""
    kept = recurrent
    if isinstance(recurrent, Recurrent):
        columns = (extra.kernel - 1) * extra.ngram_size
        ids = State("conv", (extra.ngram_size - 1,), axis=-1, dtype="int64")
        kept = recurrent._replace(states=(*recurrent.states, State("conv", (wide, columns)), ids))
    with_ngrams = set(extra.layers)
    return [
        full if kind == _INDEXED else kept if index in with_ngrams else recurrent for index, kind in enumerate(kinds)
    ]


def _is_prime(number: int) -> bool:
    """Miller-Rabin with witnesses that leave no doubt for numbers of this size."""
    for prime in _WITNESSES:
        if number % prime == 0:
            return number == prime
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for witness in _WITNESSES:
        value = pow(witness, odd, number)
        if value in (1, number - 1):
            continue
        for _ in range(twos - 1):
            value = value * value % number
            if value == number - 1:
                break
        else:
            return False
    return number > 1
