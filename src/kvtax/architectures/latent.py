"""Multi-head latent attention, the indexer of sparse attention, and layers that predict further tokens (MTP)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvtax.architectures.cache import LayerCache, MultiHeadLatent
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.decoder import Shape, experts, gated_mlp, layers_where
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, embedding, linear, lm_head, norm, not_loaded

INDEX_SCALE_BLOCK = 128  # elements of an index row that share one scale
INDEX_SCALE_BYTES = 4


class LatentDecoder(Shape):
    """The common numbers of a decoder with latent attention.

    num_key_value_heads and head_dim of such a config shape nothing (every query head has a key of its own, made
    from the latent), so they are not held against the number of heads. With `value_from_hidden` a v_head_dim that is
    null is hidden_size // num_attention_heads.
    """

    def __init__(self, config: Config, *, value_from_hidden: bool = False) -> None:
        self.config = config
        self.num_hidden_layers = config.integer("num_hidden_layers")
        self.hidden_size = config.integer("hidden_size")
        self.num_attention_heads = config.integer("num_attention_heads")
        self.vocab_size = config.integer("vocab_size")
        self.layers = tuple(range(self.num_hidden_layers))
        self.tied = config.tie_word_embeddings()
        self.latent = latent_shape(
            config, self.hidden_size, self.num_attention_heads, value_from_hidden=value_from_hidden
        )
        self.num_key_value_heads = config.optional_integer("num_key_value_heads") or self.num_attention_heads
        self.head_dim = self.latent.qk_head_dim


class LatentShape(NamedTuple):
    """The numbers of multi-head latent attention (`q_lora_rank` None: queries are projected at once)."""

    hidden_size: int
    num_attention_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    @property
    def qk_head_dim(self) -> int:
        """Width of a query or key head: qk_nope_head_dim + qk_rope_head_dim [elements]."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    def cache(self, index_bytes: int = 0, index_pool: int = 1) -> MultiHeadLatent:
        """What a layer keeps; a row of `index_bytes` for every `index_pool` tokens where it owns an indexer."""
        return MultiHeadLatent(self.kv_lora_rank, self.qk_rope_head_dim, index_bytes, index_pool)


def latent_shape(
    config: Config, hidden_size: int, num_attention_heads: int, *, value_from_hidden: bool = False
) -> LatentShape:
    """The latent-attention keys of a config, checked (see LatentDecoder for `value_from_hidden`).

    Raises:
        ConfigError: a width is missing or impossible.
    """
    v_head_dim = config.optional_integer("v_head_dim")
    if v_head_dim is None and value_from_hidden:
        v_head_dim = hidden_size // num_attention_heads
    if not v_head_dim:
        config.fail("v_head_dim", "is missing or null, and hidden_size gives no width for it")
    return LatentShape(
        hidden_size,
        num_attention_heads,
        config.optional_integer("q_lora_rank"),
        config.integer("kv_lora_rank"),
        config.integer("qk_nope_head_dim", minimum=0),
        config.integer("qk_rope_head_dim", minimum=0),
        v_head_dim,
    )


def latent_attention(
    prefix: str, layers: tuple[int, ...], shape: LatentShape, *, bias: bool = False, o_bias: bool | None = None
) -> list[Tensor]:
    """Tensors of multi-head latent attention below `prefix`, such as `model.layers.*.self_attn`.

    q_a [q_lora_rank, hidden_size] and q_b [heads x qk_head_dim, q_lora_rank] with a norm between, or
    q [heads x qk_head_dim, hidden_size]; kv_a [kv_lora_rank + qk_rope_head_dim, hidden_size], a norm,
    kv_b [heads x (qk_nope_head_dim + v_head_dim), kv_lora_rank],
    o [hidden_size, heads x v_head_dim]. The projections into a latent are replicated on every tensor-parallel rank.

    Args:
        prefix: module of the attention.
        layers: indices of the layers.
        shape: the widths.
        bias: whether the projections into the latents have a bias.
        o_bias: whether o has one; None: as `bias`.

    Returns:
        The tensors.
    """
    heads, hidden = shape.num_attention_heads, shape.hidden_size
    latent, rope = shape.kv_lora_rank, shape.qk_rope_head_dim
    found: list[Tensor] = []
    if not layers:
        return found
    if shape.q_lora_rank is None:
        found += linear(f"{prefix}.q_proj", heads * shape.qk_head_dim, hidden, "attention", layers, shard=COLUMN)
    else:
        rank = shape.q_lora_rank
        found += linear(f"{prefix}.q_a_proj", rank, hidden, "attention", layers, bias=bias)
        found += norm(f"{prefix}.q_a_layernorm", rank, layers)
        found += linear(f"{prefix}.q_b_proj", heads * shape.qk_head_dim, rank, "attention", layers, shard=COLUMN)
    widened = heads * (shape.qk_nope_head_dim + shape.v_head_dim)
    found += linear(f"{prefix}.kv_a_proj_with_mqa", latent + rope, hidden, "attention", layers, bias=bias)
    found += norm(f"{prefix}.kv_a_layernorm", latent, layers)
    found += linear(f"{prefix}.kv_b_proj", widened, latent, "attention", layers, shard=COLUMN)
    o_bias = bias if o_bias is None else o_bias
    found += linear(f"{prefix}.o_proj", hidden, heads * shape.v_head_dim, "attention", layers, bias=o_bias, shard=ROW)
    return found


class IndexShape(NamedTuple):
    """The numbers of a sparse-attention indexer: its own heads score every cached token with one key each."""

    index_n_heads: int
    index_head_dim: int

    @property
    def bytes_per_token(self) -> int:
        """What engines keep per token: index_head_dim fp8 + 4 x ceil(index_head_dim / 128) of scales [bytes].

        Source: vllm 0.33.0 model_executor/models/deepseek_v2.py (DeepseekV32IndexerCache).
        """
        return self.index_head_dim + INDEX_SCALE_BYTES * -(-self.index_head_dim // INDEX_SCALE_BLOCK)


def index_shape(config: Config) -> IndexShape:
    """index_n_heads and index_head_dim of a config, checked.

    Raises:
        ConfigError: one is missing or impossible.
    """
    return IndexShape(config.integer("index_n_heads"), config.integer("index_head_dim"))


def indexer(
    prefix: str, layers: tuple[int, ...], hidden_size: int, query_width: int, shape: IndexShape
) -> list[Tensor]:
    """Tensors of an indexer below `prefix`, such as `model.layers.*.self_attn.indexer`; replicated on every rank.

    wq_b [index_n_heads x index_head_dim, query_width], wk [index_head_dim, hidden_size], k_norm with a bias,
    weights_proj [index_n_heads, hidden_size], which stays in the model's dtype when a checkpoint is quantised.
    Nothing without layers.

    Args:
        prefix: module of the indexer.
        layers: indices of the layers that own one.
        hidden_size: width of the residual stream [elements].
        query_width: width of what queries are made from, q_lora_rank as a rule [elements].
        shape: heads and width.

    Returns:
        The tensors.
    """
    width = shape.index_head_dim
    if not layers:
        return []
    return [
        *linear(f"{prefix}.wq_b", shape.index_n_heads * width, query_width, "attention", layers),
        *linear(f"{prefix}.wk", width, hidden_size, "attention", layers),
        *norm(f"{prefix}.k_norm", width, layers, bias=True),
        Tensor(f"{prefix}.weights_proj.weight", (shape.index_n_heads, hidden_size), "attention", layers),
    ]


def index_owners(config: Config, num_hidden_layers: int, sparse: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Layers that own an indexer, of all or of those in `sparse`; the others use what the owner before them selected.

    `indexer_types` says full or shared for each layer; else `index_topk_pattern` in words or letters (F, S); else
    layer i owns one where max(i - index_skip_topk_offset + 1, 0) % index_topk_freq == 0: every layer by default.

    Raises:
        ConfigError: not one entry per layer, or a first layer without an owner before it.
        UnsupportedArchitectureError: another word.

    Source: transformers 5.24.0 models/glm_moe_dsa/configuration_glm_moe_dsa.py.
    """
    key, kinds = "indexer_types", config.layer_types(num_hidden_layers, "indexer_types")
    if kinds is None and config.states("index_topk_pattern"):
        key, pattern = config.find("index_topk_pattern")
        if not isinstance(pattern, (str, list)):
            config.fail(key, f"must be a string or a list, not {describe(pattern)}")
        if len(pattern) != num_hidden_layers:
            config.fail(key, f"has {len(pattern)} items, but the model has {num_hidden_layers} layers")
        kinds = [
            {"F": "full", "S": "shared"}.get(kind, kind) if isinstance(kind, str) else describe(kind)
            for kind in pattern
        ]
    if kinds is None:
        frequency = max(config.optional_integer("index_topk_freq", minimum=-MAXIMUM_LAYERS) or 1, 1)
        offset = config.integer("index_skip_topk_offset", default=2, minimum=-MAXIMUM_LAYERS)
        kinds = ["shared" if max(index - offset + 1, 0) % frequency else "full" for index in range(num_hidden_layers)]
    for kind in kinds:
        if kind not in ("full", "shared"):
            config.unsupported(key, f"indexer type {describe(kind)} is not understood")
    layers = tuple(range(num_hidden_layers)) if sparse is None else sparse
    if layers and kinds[layers[0]] != "full":
        config.fail(key, f"layer {layers[0]} shares an indexer, but no layer before it has one")
    return tuple(layer for layer in layers if kinds[layer] == "full")


def latent_caches(
    shape: LatentShape, num_hidden_layers: int, owners: Iterable[int] = (), index_bytes: int = 0
) -> list[LayerCache]:
    """One cache per layer, with `index_bytes` in the layers of `owners`."""
    owning = set(owners)
    plain, indexed = shape.cache(), shape.cache(index_bytes)
    return [indexed if index in owning else plain for index in range(num_hidden_layers)]


# ---- mixture of experts behind dense first layers ----


class MoeShape(NamedTuple):
    """The numbers of a mixture of experts with shared experts beside it."""

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    shared_intermediate_size: int


def moe_shape(config: Config, *keys: str) -> MoeShape:
    """n_routed_experts (or `keys`), num_experts_per_tok, moe_intermediate_size and n_shared_experts times it.

    Raises:
        ConfigError: one is missing or impossible, or a token uses more experts than there are.
    """
    num_experts = config.integer(
        *(keys or ("n_routed_experts", "num_local_experts", "num_experts")), maximum=MAXIMUM_EXPERTS
    )
    # some classes have no default for it; parameters and KV do not need it, and every expert counts as active then
    used = config.optional_integer("num_experts_per_tok", maximum=MAXIMUM_EXPERTS) or num_experts
    if used > num_experts:
        config.fail("num_experts_per_tok", f"{used} is more than the {num_experts} experts that there are")
    width = config.integer("moe_intermediate_size")
    shared = config.optional_integer("n_shared_experts", minimum=0, maximum=MAXIMUM_EXPERTS) or 0
    return MoeShape(num_experts, used, width, shared * width)


def sparse_layers(config: Config, num_hidden_layers: int, *, dense: int = 0) -> tuple[int, ...]:
    """Layers with experts: by `mlp_layer_types` (dense, sparse), else by `first_k_dense_replace` and `moe_layer_freq`.

    Layer i has experts where i >= first_k_dense_replace and i % moe_layer_freq == 0. moe_layer_freq is a key of the
    model repositories' own code and of engines; transformers has none, and every published config says 1.

    Args:
        config: of the text model.
        num_hidden_layers: [layers].
        dense: first_k_dense_replace of a model type whose class has no default for it [layers].

    Raises:
        ConfigError: not one entry per layer.
        UnsupportedArchitectureError: another word than dense and sparse.
    """
    kinds = config.layer_types(num_hidden_layers, "mlp_layer_types")
    if kinds is not None:
        for kind in kinds:
            if kind not in ("dense", "sparse"):
                config.unsupported("mlp_layer_types", f"MLP type {describe(kind)} is not understood")
        return layers_where(kinds, "sparse")
    first = config.optional_integer("first_k_dense_replace", default=dense, minimum=0, maximum=MAXIMUM_LAYERS) or 0
    step = config.optional_integer("moe_layer_freq", maximum=MAXIMUM_LAYERS) or 1
    return tuple(index for index in range(num_hidden_layers) if index >= first and index % step == 0)


def moe_block(
    prefix: str,
    layers: tuple[int, ...],
    hidden_size: int,
    shape: MoeShape,
    *,
    correction_bias: str = "gate.e_score_correction_bias",
    shared_bias: bool = False,
) -> list[Tensor]:
    """A router, routed experts and, where there are any, a gated MLP of all shared experts; nothing without layers."""
    if not layers:
        return []
    found = experts(
        prefix, layers, shape.num_experts, hidden_size, shape.moe_intermediate_size, correction_bias=correction_bias
    )
    if shape.shared_intermediate_size:
        found += gated_mlp(
            f"{prefix}.shared_experts", layers, hidden_size, shape.shared_intermediate_size,
            component="shared_experts", bias=shared_bias,
        )  # fmt: skip
    return found


def dense_block(
    prefix: str, layers: tuple[int, ...], hidden_size: int, intermediate_size: int, *, bias: bool = False
) -> list[Tensor]:
    """A gated MLP in `layers`; nothing without layers."""
    return gated_mlp(prefix, layers, hidden_size, intermediate_size, bias=bias) if layers else []


# ---- multi-token prediction ----


def mtp_count(config: Config, *keys: str) -> int:
    """MTP layers that the checkpoint holds behind the decoder's: num_nextn_predict_layers (or `keys`), 0 for none.

    Raises:
        ConfigError: not a number of layers.
    """
    names = keys or ("num_nextn_predict_layers", "num_mtp_layers")
    return config.optional_integer(*names, minimum=0, maximum=MAXIMUM_LAYERS) or 0


def mtp_layers(
    layers: tuple[int, ...],
    hidden_size: int,
    vocab_size: int,
    body: Sequence[Tensor] = (),
    *,
    layer: str = "model.layers.*",
    own_embedding: bool = True,
) -> list[Tensor]:
    """Tensors of MTP layers as DeepSeek has them: a decoder layer (`body`) behind norms and a projection of streams.

    enorm, hnorm, eh_proj [hidden_size, 2 x hidden_size], shared_head.norm and, with `own_embedding`, copies of
    the embedding and of the head. All are in the file and none is loaded for serving.

    Args:
        layers: indices, from num_hidden_layers on.
        hidden_size: width of the residual stream [elements].
        vocab_size: rows of the embedding [tokens].
        body: the tensors of the decoder layers with these indices.
        layer: module of a layer.
        own_embedding: whether the file repeats embedding and head in each of them.

    Returns:
        The tensors, not loaded.
    """
    if not layers:
        return []
    # not `linear`: checkpoints keep this projection and the copy of the head in the model's dtype when they are quantised
    found = [
        *body,
        *norm(f"{layer}.enorm", hidden_size, layers),
        *norm(f"{layer}.hnorm", hidden_size, layers),
        Tensor(f"{layer}.eh_proj.weight", (hidden_size, 2 * hidden_size), "mtp", layers),
        *norm(f"{layer}.shared_head.norm", hidden_size, layers),
    ]
    if own_embedding:
        copies = [
            *embedding(vocab_size, hidden_size, name=f"{layer}.embed_tokens"),
            *lm_head(vocab_size, hidden_size, False, name=f"{layer}.shared_head.head"),
        ]
        found += [tensor._replace(layers=layers, linear=False) for tensor in copies]
    return not_loaded(found)


def mtp_indices(num_hidden_layers: int, count: int) -> tuple[int, ...]:
    """Indices of MTP layers: they follow the decoder's."""
    return tuple(range(num_hidden_layers, num_hidden_layers + count))
