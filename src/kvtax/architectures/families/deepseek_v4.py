"""DeepSeek V4: one key-value vector per token, a window and compressed rows for a cache, hyper-connections."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CompressedLatent, LayerCache
from kvtax.architectures.config import MAXIMUM_HEADS, MAXIMUM_LAYERS, MAXIMUM_POSITIONS, MAXIMUM_WIDTH, Config, describe
from kvtax.architectures.decoder import Shape, assemble, gated_mlp, layers_where
from kvtax.architectures.latent import moe_shape, mtp_count
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, linear, norm, not_loaded

SLIDING, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
KIND_OF_RATIO = {0: SLIDING, 4: SPARSE, 128: HEAVY}
RATES = ((SPARSE, 4, "compress_rate_csa"), (HEAVY, 128, "compress_rate_hca"))
HASH_LAYERS = 3  # layers that route by token id where the config does not say
EXPERT_NAMES = ("w1", "w3", "w2")  # gate, up, down


class V4(Shape):
    """The numbers of DeepSeek V4; every query head has head_dim elements and all share one key-value head."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.num_hidden_layers = config.integer("num_hidden_layers")
        self.hidden_size = config.integer("hidden_size")
        self.num_attention_heads = config.integer("num_attention_heads")
        self.num_key_value_heads = 1
        self.head_dim = config.integer("head_dim")
        self.vocab_size = config.integer("vocab_size")
        self.layers = tuple(range(self.num_hidden_layers))
        self.tied = config.tie_word_embeddings()
        self.q_lora_rank = config.integer("q_lora_rank")
        self.o_groups = config.integer("o_groups", maximum=MAXIMUM_HEADS)
        self.o_lora_rank = config.integer("o_lora_rank")
        self.index_n_heads = config.integer("index_n_heads", maximum=MAXIMUM_HEADS)
        self.index_head_dim = config.integer("index_head_dim")
        self.hc_mult = config.integer("hc_mult", maximum=MAXIMUM_HEADS)
        self.window = config.integer("sliding_window")
        self.moe = moe_shape(config)
        self.mlp_bias = config.boolean("mlp_bias")
        self.kinds, extra = _kinds(config, self.num_hidden_layers)
        self.mtp = max(mtp_count(config), extra)
        self.rates = _rates(config)
        self.hashed = _hashed(config, self.num_hidden_layers)
        if self.num_attention_heads * self.head_dim % self.o_groups:
            config.fail("o_groups", f"{self.o_groups} does not divide num_attention_heads x head_dim")


class Block(NamedTuple):
    """Where a group of equal layers stands: the module and the indices."""

    name: str
    layers: tuple[int, ...]


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Attention over a window and compressed rows, experts in every layer, hyper-connections around both.

    Source: transformers 5.24.0 models/deepseek_v4 (modeling, configuration) and conversion_mapping.py, which maps the
    file's names; MTP block: deepseek-ai/DeepSeek-V4-Flash inference/model.py.
    """
    shape = V4(config)
    block = Block("layers.*", shape.layers)
    body = [*_attention(shape, block, shape.kinds), *_experts(shape, block, shape.hashed), *_around(shape, block)]
    body += _hc_head(shape, "")
    body += _mtp(config, shape)
    rotary_dim = config.optional_integer("qk_rope_head_dim", maximum=MAXIMUM_WIDTH)
    if rotary_dim is None:
        factor = config.get("partial_rotary_factor")
        rotary_dim = int(shape.head_dim * (config.number("partial_rotary_factor") if factor is not None else 64 / 512))
    facts: dict[str, Any] = {
        "intermediate_size": shape.moe.moe_intermediate_size,
        "num_experts": shape.moe.num_experts,
        "num_experts_per_tok": shape.moe.num_experts_per_tok,
        "moe_intermediate_size": shape.moe.moe_intermediate_size,
        "rotary_dim": rotary_dim,
    }
    return assemble(
        config, shape, body, _caches(shape), prefix=prefix, embed_name="embed", head_name="head",
        final_norm=norm("norm", shape.hidden_size), **facts,
    )  # fmt: skip


def _kinds(config: Config, num_hidden_layers: int) -> tuple[list[str], int]:
    """Kind of attention of each layer, and how many MTP layers compress_ratios lists behind them.

    `layer_types`, else `compress_ratios` (0, 4 or 128 for each layer), else two heavily compressed layers and then
    heavily compressed and sparse ones by turns.
    """
    extra = 0
    key, kinds = "layer_types", config.optional_list("layer_types")
    if kinds is None:
        key, ratios = "compress_ratios", config.optional_list("compress_ratios")
        if ratios is None:
            kinds = [SPARSE if index > 1 and index % 2 else HEAVY for index in range(num_hidden_layers)]
        else:
            extra = max(len(ratios) - num_hidden_layers, 0)
            for ratio in ratios:
                if isinstance(ratio, bool) or not isinstance(ratio, int) or ratio not in KIND_OF_RATIO:
                    config.unsupported(key, f"compression ratio {describe(ratio)} is not understood (0, 4 and 128 are)")
            kinds = [KIND_OF_RATIO[ratio] for ratio in ratios]
    if len(kinds) < num_hidden_layers:
        config.fail(key, f"has {len(kinds)} items, but the model has {num_hidden_layers} layers")
    for kind in kinds[:num_hidden_layers]:
        if not isinstance(kind, str) or kind not in (SLIDING, SPARSE, HEAVY):
            config.unsupported(key, f"layer type {describe(kind)} is not understood")
    return kinds[:num_hidden_layers], extra


def _rates(config: Config) -> dict[str, int]:
    """Tokens of one compressed row: compress_rates, overridden by compress_rate_csa and compress_rate_hca."""
    stated = config.get("compress_rates")
    if stated is not None and not isinstance(stated, dict):
        config.fail("compress_rates", f"must be an object, not {describe(stated)}")
    rates = {SLIDING: 0}
    for kind, usual, old_key in RATES:
        value = config.optional_integer(old_key, maximum=MAXIMUM_POSITIONS)
        if value is None:
            value = usual if stated is None else stated.get(kind)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAXIMUM_WIDTH:
                config.fail("compress_rates", f"{kind} must be a whole number from 1 on, not {describe(value)}")
        rates[kind] = value
    return rates


def _hashed(config: Config, num_hidden_layers: int) -> tuple[int, ...]:
    """Layers whose experts a token id selects: `mlp_layer_types` hash_moe, else the first `num_hash_layers`."""
    kinds = config.optional_list("mlp_layer_types")
    if kinds is None:
        first = config.integer("num_hash_layers", default=HASH_LAYERS, minimum=0, maximum=MAXIMUM_LAYERS)
        return tuple(range(min(first, num_hidden_layers)))
    if len(kinds) < num_hidden_layers:
        config.fail("mlp_layer_types", f"has {len(kinds)} items, but the model has {num_hidden_layers} layers")
    for kind in kinds[:num_hidden_layers]:
        if not isinstance(kind, str) or kind not in ("hash_moe", "moe"):
            config.unsupported("mlp_layer_types", f"MLP type {describe(kind)} is not understood")
    return layers_where(kinds[:num_hidden_layers], "hash_moe")


def _attention(shape: V4, block: Block, kinds: list[str]) -> list[Tensor]:
    """Queries through a latent, one key-value vector, a grouped low-rank output projection; a compressor by kind."""
    name, layers = f"{block.name}.attn", block.layers
    heads, width, hidden = shape.num_attention_heads, shape.head_dim, shape.hidden_size
    found = [
        *linear(f"{name}.wq_a", shape.q_lora_rank, hidden, "attention", layers),
        *norm(f"{name}.q_norm", shape.q_lora_rank, layers),
        *linear(f"{name}.wq_b", heads * width, shape.q_lora_rank, "attention", layers, shard=COLUMN),
        *linear(f"{name}.wkv", width, hidden, "attention", layers),
        *norm(f"{name}.kv_norm", width, layers),
        *linear(
            f"{name}.wo_a",
            shape.o_groups * shape.o_lora_rank,
            heads * width // shape.o_groups,
            "attention",
            layers,
            shard=COLUMN,
        ),
        *linear(f"{name}.wo_b", hidden, shape.o_groups * shape.o_lora_rank, "attention", layers, shard=ROW),
        Tensor(f"{name}.attn_sink", (heads,), "attention", layers, shard=COLUMN, dtype="float32"),
    ]
    for kind in (SPARSE, HEAVY):
        chosen = tuple(layer for layer, other in zip(layers, kinds, strict=True) if other == kind)
        if chosen:
            rows = 2 if kind == SPARSE else 1  # windows overlap in sparse layers: two series of rows
            found += _compressor(f"{name}.compressor", chosen, hidden, shape.rates[kind], width, rows)
            if kind == SPARSE:
                found += _indexer(shape, f"{name}.indexer", chosen)
    return found


def _compressor(name: str, layers: tuple[int, ...], hidden: int, rate: int, width: int, rows: int) -> list[Tensor]:
    """Key-value and gate projections of the rows, a position bias per token of a window, a norm; never quantised."""
    return [
        Tensor(f"{name}.ape", (rate, rows * width), "attention", layers, dtype="float32"),
        Tensor(f"{name}.wkv.weight", (rows * width, hidden), "attention", layers),
        Tensor(f"{name}.wgate.weight", (rows * width, hidden), "attention", layers),
        *norm(f"{name}.norm", width, layers),
    ]


def _indexer(shape: V4, name: str, layers: tuple[int, ...]) -> list[Tensor]:
    """The indexer's queries, its weights of the heads and a compressor of its own."""
    heads, width = shape.index_n_heads, shape.index_head_dim
    return [
        *linear(f"{name}.wq_b", heads * width, shape.q_lora_rank, "attention", layers),
        Tensor(f"{name}.weights_proj.weight", (heads, shape.hidden_size), "attention", layers),
        *_compressor(f"{name}.compressor", layers, shape.hidden_size, shape.rates[SPARSE], width, 2),
    ]


def _experts(shape: V4, block: Block, hashed: tuple[int, ...]) -> list[Tensor]:
    """Router, routed and one shared expert; hashed layers have a table by token id instead of a correction bias."""
    name, layers, moe = f"{block.name}.ffn", block.layers, shape.moe
    scored = tuple(layer for layer in layers if layer not in set(hashed))
    found = [Tensor(f"{name}.gate.weight", (moe.num_experts, shape.hidden_size), "router", layers)]
    if scored:
        found.append(
            Tensor(f"{name}.gate.bias", (moe.num_experts,), "router", scored, parameter=False, dtype="float32")
        )
    if hashed:
        table = (shape.vocab_size, moe.num_experts_per_tok)
        found.append(Tensor(f"{name}.gate.tid2eid", table, "router", hashed, parameter=False, dtype="int64"))
    found += gated_mlp(
        f"{name}.experts.*", layers, shape.hidden_size, moe.moe_intermediate_size, component="routed_experts",
        names=EXPERT_NAMES, per_layer=moe.num_experts,
    )  # fmt: skip
    # the shared expert is as wide as a routed one: the model code has one of them, whatever n_shared_experts says
    found += gated_mlp(
        f"{name}.shared_experts", layers, shape.hidden_size, moe.moe_intermediate_size, component="shared_experts",
        names=EXPERT_NAMES, bias=shape.mlp_bias,
    )  # fmt: skip
    return found


def _around(shape: V4, block: Block) -> list[Tensor]:
    """Norms before attention and experts; hyper-connections: (2 + hc_mult) x hc_mult weights from hc_mult streams."""
    mixes = (2 + shape.hc_mult) * shape.hc_mult
    found = [
        *norm(f"{block.name}.attn_norm", shape.hidden_size, block.layers),
        *norm(f"{block.name}.ffn_norm", shape.hidden_size, block.layers),
    ]
    for part in ("attn", "ffn"):
        name = f"{block.name}.hc_{part}"
        found.append(
            Tensor(f"{name}_fn", (mixes, shape.hc_mult * shape.hidden_size), "other", block.layers, dtype="float32")
        )
        found.append(Tensor(f"{name}_base", (mixes,), "other", block.layers, dtype="float32"))
        found.append(Tensor(f"{name}_scale", (3,), "other", block.layers, dtype="float32"))
    return found


def _hc_head(shape: V4, name: str, layers: tuple[int, ...] = ()) -> list[Tensor]:
    """What folds the streams into one before a head."""
    return [
        Tensor(
            f"{name}hc_head_fn", (shape.hc_mult, shape.hc_mult * shape.hidden_size), "other", layers, dtype="float32"
        ),
        Tensor(f"{name}hc_head_base", (shape.hc_mult,), "other", layers, dtype="float32"),
        Tensor(f"{name}hc_head_scale", (1,), "other", layers, dtype="float32"),
    ]


def _mtp(config: Config, shape: V4) -> list[Tensor]:
    """MTP blocks `mtp.*`: a layer with the window alone behind projections of embedding and stream.

    Embedding and head are the model's. In a file with DSpark heads (`dspark_*` keys) the first block takes the
    streams of some layers instead, and the last one has the heads.
    """
    if not shape.mtp:
        return []
    hidden = shape.hidden_size
    block = Block("mtp.*", tuple(range(shape.mtp)))
    found = [*_attention(shape, block, [SLIDING] * shape.mtp), *_experts(shape, block, ()), *_around(shape, block)]
    rank = config.optional_integer("dspark_markov_rank")
    if rank is None:
        found += _hc_head(shape, "mtp.*.", block.layers)
        for name in ("enorm", "hnorm", "norm"):
            found += norm(f"mtp.*.{name}", hidden, block.layers)
        for name in ("e_proj", "h_proj"):
            found += linear(f"mtp.*.{name}", hidden, hidden, "mtp", block.layers)
        return not_loaded(found)
    taps = len(config.optional_list("dspark_target_layer_ids") or ()) or shape.mtp
    first, last = block.layers[:1], block.layers[-1:]
    found += linear("mtp.*.main_proj", hidden, taps * hidden, "mtp", first)
    found += norm("mtp.*.main_norm", hidden, first)
    found += _hc_head(shape, "mtp.*.", last)
    found += norm("mtp.*.norm", hidden, last)
    found.append(Tensor("mtp.*.markov_head.markov_w1.weight", (shape.vocab_size, rank), "mtp", last))
    found.append(Tensor("mtp.*.markov_head.markov_w2.weight", (shape.vocab_size, rank), "mtp", last))
    found.append(Tensor("mtp.*.confidence_head.proj.weight", (1, hidden + rank), "mtp", last))
    return not_loaded(found)


def _caches(shape: V4) -> list[LayerCache]:
    """A window of whole rows in every layer, compressed rows by kind, index rows in sparse layers."""
    caches: dict[str, LayerCache] = {
        kind: CompressedLatent(
            shape.head_dim, shape.window, shape.rates[kind], shape.index_head_dim if kind == SPARSE else 0
        )
        for kind in (SLIDING, SPARSE, HEAVY)
    }
    return [caches[kind] for kind in shape.kinds]
