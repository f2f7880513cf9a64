"""GLM-5.3 Flash: Kimi Delta Attention, sparse latent attention in every fourth layer, experts and a vision tower."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import LayerCache
from kvtax.architectures.config import MAXIMUM_HEADS, MAXIMUM_LAYERS, MAXIMUM_WIDTH, Config, describe
from kvtax.architectures.decoder import assemble, gated_mlp, layers_where
from kvtax.architectures.latent import (
    IndexShape,
    LatentDecoder,
    MoeShape,
    dense_block,
    index_owners,
    index_shape,
    indexer,
    latent_attention,
    moe_block,
    moe_shape,
    mtp_count,
    mtp_indices,
    mtp_layers,
    sparse_layers,
)
from kvtax.architectures.multimodal import nested, outer_tied, text_model
from kvtax.architectures.recurrent import COMPONENT, KimiDelta, convolution, kernel_size, state_dtypes
from kvtax.architectures.tensors import COLUMN, HEADS, ROW, Tensor, linear, norm
from kvtax.architectures.towers import with_towers

LAYER = "model.layers.*"
LINEAR, INDEXED = "linear_attention", "indexed_attention"
KINDS = {
    LINEAR: LINEAR, "mamba": LINEAR, INDEXED: INDEXED, "full_attention": INDEXED, "attention": INDEXED,
    "deepseek_sparse_attention": INDEXED, "qwen_sparse_attention": INDEXED,
}  # fmt: skip
MAXIMUM_PATCH = 1024


class Glm5Next(LatentDecoder):
    """The numbers of the text model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if self.latent.q_lora_rank is None:
            config.fail("q_lora_rank", "is null, but the indexer makes its queries from that latent")
        self.query_width = self.latent.q_lora_rank
        self.kinds = _kinds(config, self.num_hidden_layers)
        self.indexed = layers_where(self.kinds, INDEXED)
        self.linear = layers_where(self.kinds, LINEAR)
        self.owners = index_owners(config, self.num_hidden_layers, self.indexed)
        self.index: IndexShape = index_shape(config)
        self.index_pool = config.integer("index_kpool", maximum=MAXIMUM_WIDTH)
        self.delta = _delta(config, self.hidden_size)
        self.moe: MoeShape = moe_shape(config)
        self.sparse = sparse_layers(config, self.num_hidden_layers, dense=3)
        self.intermediate_size = config.integer("intermediate_size")
        self.hc_mult = config.integer("hc_mult", maximum=MAXIMUM_HEADS)
        self.attention_bias = config.boolean("attention_bias")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """The text model by itself, or with its vision tower; a file without text_config has the text keys at the top.

    Source: transformers 5.24.0 models/glm5_next (modeling, configuration) and conversion_mapping.py, which maps the
    file's names; MTP layer: the model repository's model.safetensors.index.json.
    """
    if config.model_type == "glm5_next_text":
        return _text(config, prefix)
    if config.values.get("text_config") is None:
        flat = config.retyped("glm5_next_text", tie_word_embeddings=outer_tied(config, config))
        text = nested(_text(flat, ""))
    else:
        text = text_model(config, model_type="glm5_next_text")
    whole = with_towers(config, text, _vision(config.sub("vision_config").retyped("glm5_next_vision")))
    return (
        whole.replace(tensors=[tensor._replace(name=prefix + tensor.name) for tensor in whole.tensors])
        if prefix
        else whole
    )


def _text(config: Config, prefix: str) -> Architecture:
    """Delta attention and indexed latent attention, a gated MLP or experts, hyper-connections around both."""
    shape = Glm5Next(config)
    hidden = shape.hidden_size
    dense = tuple(layer for layer in shape.layers if layer not in set(shape.sparse))
    body = [
        *_delta_attention(shape.delta, f"{LAYER}.self_attn", shape.linear),
        *_indexed_attention(shape, shape.indexed, shape.owners),
        *dense_block(f"{LAYER}.mlp", dense, hidden, shape.intermediate_size),
        *_rest(shape, shape.layers, shape.sparse),
        *_hyper_connections(shape),
    ]
    extra = mtp_indices(shape.num_hidden_layers, mtp_count(config))
    block = [*_indexed_attention(shape, extra, extra), *_rest(shape, extra, extra)] if extra else []
    facts: dict[str, Any] = {"intermediate_size": shape.intermediate_size, "rotary_dim": shape.latent.qk_rope_head_dim}
    if shape.sparse:
        facts["num_experts"] = shape.moe.num_experts
        facts["num_experts_per_tok"] = shape.moe.num_experts_per_tok
        facts["moe_intermediate_size"] = shape.moe.moe_intermediate_size
    architecture = assemble(config, shape, body, _caches(config, shape), prefix=prefix, **facts)
    mtp = mtp_layers(extra, hidden, shape.vocab_size, block, own_embedding=False)
    return architecture.replace(
        tensors=[*architecture.tensors, *(tensor._replace(name=prefix + tensor.name) for tensor in mtp)]
    )


def _kinds(config: Config, num_hidden_layers: int) -> list[str]:
    """Kind of attention of each layer: `layer_types`, else three of four linear."""
    stated = config.layer_types(num_hidden_layers)
    if stated is None:
        return [INDEXED if index % 4 == 3 else LINEAR for index in range(num_hidden_layers)]
    for index, kind in enumerate(stated):
        if kind not in KINDS:
            config.unsupported(f"layer_types[{index}]", f"layer type {describe(kind)} is not understood")
    return [KINDS[kind] for kind in stated]


def _delta(config: Config, hidden_size: int) -> KimiDelta:
    """Heads, width and kernel of the delta attention; an older `linear_attn_config` has its own words and wins."""
    older = config.sub("linear_attn_config", model_type="linear_attn_config")
    return KimiDelta(
        hidden_size,
        older.optional_integer("num_heads", maximum=MAXIMUM_HEADS)
        or config.integer("linear_num_heads", maximum=MAXIMUM_HEADS),
        older.optional_integer("head_dim") or config.integer("linear_head_dim"),
        kernel_size(older, "short_conv_kernel_size")
        if older.states("short_conv_kernel_size")
        else kernel_size(config, "linear_conv_kernel_dim"),
    )


def _delta_attention(delta: KimiDelta, name: str, layers: tuple[int, ...]) -> list[Tensor]:
    """q, k, v and o, a convolution of each input, beta, and two gates through head_dim dimensions."""
    if not layers:
        return []
    width, hidden, rank = delta.width, delta.hidden_size, delta.head_dim
    found: list[Tensor] = []
    for part in ("q", "k", "v"):
        found += linear(f"{name}.{part}_proj", width, hidden, COMPONENT, layers, shard=COLUMN)
        found += convolution(f"{name}.{part}_conv1d", width, delta.conv_kernel, layers)
    for gate in ("f", "g"):
        found += linear(f"{name}.{gate}_a_proj", rank, hidden, COMPONENT, layers)
        found += linear(f"{name}.{gate}_b_proj", width, rank, COMPONENT, layers, shard=COLUMN)
    return [
        *found,
        *linear(f"{name}.b_proj", delta.num_heads, hidden, COMPONENT, layers, shard=COLUMN),
        Tensor(f"{name}.A_log", (delta.num_heads,), COMPONENT, layers, shard=COLUMN, dtype="float32"),
        Tensor(f"{name}.dt_bias", (width,), COMPONENT, layers, shard=COLUMN, dtype="float32"),
        *norm(f"{name}.o_norm", delta.head_dim, layers),
        *linear(f"{name}.o_proj", hidden, width, COMPONENT, layers, shard=ROW),
    ]


def _indexed_attention(shape: Glm5Next, layers: tuple[int, ...], owners: tuple[int, ...]) -> list[Tensor]:
    """Latent attention; its indexer scores pools of index_kpool tokens, made with a gate and a bias for each place."""
    name, width = f"{LAYER}.self_attn", shape.index.index_head_dim
    found = latent_attention(name, layers, shape.latent, bias=shape.attention_bias)
    if owners:
        found += indexer(f"{name}.indexer", owners, shape.hidden_size, shape.query_width, shape.index)
        ape = (shape.index_pool, width)
        found.append(Tensor(f"{name}.indexer.index_kpool_compress_ape", ape, "attention", owners, dtype="float32"))
        found.append(
            Tensor(f"{name}.indexer.index_kpool_compress_gate", (width, shape.hidden_size), "attention", owners)
        )
    return found


def _rest(shape: Glm5Next, layers: tuple[int, ...], sparse: tuple[int, ...]) -> list[Tensor]:
    """Experts and the two norms of a layer."""
    return [
        *moe_block(f"{LAYER}.mlp", sparse, shape.hidden_size, shape.moe),
        *norm(f"{LAYER}.input_layernorm", shape.hidden_size, layers),
        *norm(f"{LAYER}.post_attention_layernorm", shape.hidden_size, layers),
    ]


def _hyper_connections(shape: Glm5Next) -> list[Tensor]:
    """(2 + hc_mult) x hc_mult mixing weights from hc_mult streams, before attention and MLP; a plain mean ends them."""
    mixes = (2 + shape.hc_mult) * shape.hc_mult
    found = []
    for part in ("attn", "ffn"):
        name = f"{LAYER}.hc_{part}"
        found.append(
            Tensor(f"{name}_fn", (mixes, shape.hc_mult * shape.hidden_size), "other", shape.layers, dtype="float32")
        )
        found.append(Tensor(f"{name}_base", (mixes,), "other", shape.layers, dtype="float32"))
        found.append(Tensor(f"{name}_scale", (3,), "other", shape.layers, dtype="float32"))
    return found


def _caches(config: Config, shape: Glm5Next) -> list[LayerCache]:
    """A state in linear layers; in the others the latent, with one index row a pool where the layer owns an indexer."""
    owning = set(shape.owners)
    state = shape.delta.cache(state_dtypes(config))
    plain, owner = shape.latent.cache(), shape.latent.cache(shape.index.bytes_per_token, shape.index_pool)
    return [state if kind == LINEAR else owner if index in owning else plain for index, kind in enumerate(shape.kinds)]


def _vision(config: Config) -> list[Tensor]:
    """ViT with RMS norms of query and key and gated MLPs, a convolution that merges patches, and a gated merger."""
    prefix, width = "model.visual", config.integer("hidden_size")
    layers = tuple(range(config.integer("depth", "num_hidden_layers", maximum=MAXIMUM_LAYERS)))
    heads = config.integer("num_heads", "num_attention_heads")
    if width % heads:
        config.fail("num_heads", f"{heads} heads do not divide the width {width}")
    bias, out = config.boolean("attention_bias"), config.integer("out_hidden_size")
    frames = config.integer("temporal_patch_size", maximum=MAXIMUM_PATCH)
    merge = config.integer("spatial_merge_size", maximum=MAXIMUM_PATCH)
    channels, inner = (
        config.integer("in_channels", maximum=MAXIMUM_PATCH),
        config.integer("projection_intermediate_size"),
    )
    side = config.integer("patch_size", maximum=MAXIMUM_PATCH)
    block = f"{prefix}.blocks.*"
    return [
        Tensor(f"{prefix}.patch_embed.proj.weight", (width, channels, frames, side, side), "vision"),
        Tensor(f"{prefix}.patch_embed.proj.bias", (width,), "vision"),
        *norm(f"{block}.norm1", width, layers, component="vision"),
        *norm(f"{block}.norm2", width, layers, component="vision"),
        *linear(f"{block}.attn.qkv", 3 * width, width, "vision", layers, bias=bias, shard=HEADS, heads=(heads, heads)),
        *linear(f"{block}.attn.proj", width, width, "vision", layers, bias=bias, shard=ROW),
        *norm(f"{block}.attn.q_norm", width // heads, layers, component="vision"),
        *norm(f"{block}.attn.k_norm", width // heads, layers, component="vision"),
        *gated_mlp(f"{block}.mlp", layers, width, config.integer("intermediate_size"), bias=bias, component="vision"),
        *norm(f"{prefix}.post_layernorm", width, component="vision"),
        Tensor(f"{prefix}.downsample.weight", (out, width, merge, merge), "vision"),
        Tensor(f"{prefix}.downsample.bias", (out,), "vision"),
        *linear(f"{prefix}.merger.proj", out, out, "vision"),
        *norm(f"{prefix}.merger.post_projection_norm", out, bias=True, component="vision"),
        *gated_mlp(f"{prefix}.merger", (), out, inner, component="vision"),
    ]
