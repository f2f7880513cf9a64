"""Molmo 2: SigLIP's layers without a norm behind them, pooling by attention, a decoder whose embedding has more rows than its head."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention
from kvtax.architectures.config import MAXIMUM_HEADS, MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble, attention, gated_mlp, plain_mlp
from kvtax.architectures.multimodal import NESTED, nested
from kvtax.architectures.tensors import Tensor, linear, norm, prefixed
from kvtax.architectures.towers import with_towers
from kvtax.architectures.towers_vit import pair

_LAYER = "model.layers.*"
_JOIN = "model.multi_modal_projector"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """The decoder by itself, or with a tower of as many layers as are read and an adapter.

    Source: transformers 5.24.0 models/molmo2/modeling_molmo2.py, configuration_molmo2.py.
    """
    if config.model_type == "molmo2_text":
        return build_text(config, prefix=prefix)
    text = nested(build_text(config.sub("text_config").retyped("molmo2_text")), prefix + NESTED)
    older = config.values.get("vision_config") is None and config.values.get("vit_config") is not None
    vision = config.sub("vit_config" if older else "vision_config").retyped("molmo2_vision")
    adapter = config.sub("adapter_config").retyped("molmo2_adapter")
    read = adapter.integers("vision_feature_layer", "vit_layers", minimum=-MAXIMUM_LAYERS, maximum=MAXIMUM_LAYERS)
    layers = vision.integer("num_hidden_layers")
    read = [24, 18] if read is None else read
    if not 1 <= len(read) <= 64 or not (older or all(-layers <= layer < layers for layer in read)):
        adapter.fail("vision_feature_layer", f"must name 1 to 64 of the tower's {layers} layers")
    if older:
        # such a file counts layers that are never read
        layers = max(layer % layers for layer in read) + 1
    added = [*_tower(vision, layers), *_adapter(adapter, adapter.integer("hidden_size") * len(read))]
    return with_towers(config, text, prefixed(added, prefix))


def build_text(config: Config, *, prefix: str = "") -> Architecture:
    """Attention with norms of query and key and no bias behind it; lm_head without the rows of additional_vocab_size.

    Source: transformers 5.24.0 models/molmo2/modeling_molmo2.py.
    """
    shape = Shape(config)
    shape.head_dim, shape.tied = config.integer("head_dim"), False
    hidden, layers = shape.hidden_size, shape.layers
    full = config.string("qk_norm_type", default="qwen3") != "qwen3"
    inner = config.integer("intermediate_size")
    body = [
        *attention(
            f"{_LAYER}.self_attn", layers, hidden, shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim,
            qkv_bias=config.boolean("attention_bias"), qk_norm="full" if full else "head",
        ),
        *gated_mlp(f"{_LAYER}.mlp", layers, hidden, inner),
        *norm(f"{_LAYER}.input_layernorm", hidden, layers),
        *norm(f"{_LAYER}.post_attention_layernorm", hidden, layers),
    ]  # fmt: skip
    cache = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)
    found = assemble(config, shape, body, [cache] * shape.num_hidden_layers, prefix=prefix, intermediate_size=inner)
    rows = shape.vocab_size + config.integer("additional_vocab_size", minimum=0)
    name = f"{prefix}model.embed_tokens.weight"
    return found.replace(
        tensors=[tensor._replace(shape=(rows, hidden)) if tensor.name == name else tensor for tensor in found.tensors]
    )


def _heads(config: Config) -> tuple[int, int, int]:
    """Query heads, key/value heads and the width of one."""
    heads, kv_heads = (
        config.integer(key, maximum=MAXIMUM_HEADS) for key in ("num_attention_heads", "num_key_value_heads")
    )
    if heads % kv_heads:
        config.fail("num_key_value_heads", f"{kv_heads} does not divide num_attention_heads {heads}")
    return heads, kv_heads, config.integer("head_dim")


def _tower(config: Config, count: int) -> list[Tensor]:
    """Linear patches, learned positions, pre-norm layers."""
    width, patch = config.integer("hidden_size"), config.integer("image_patch_size", "patch_size", maximum=65_536)
    channels, name = config.integer("num_channels", default=3, maximum=1024), "model.vision_tower"
    positions = config.optional_integer("image_num_pos", "num_position_embeddings")
    if positions is None:
        key = "image_default_input_size" if config.states("image_default_input_size") else "image_size"
        height, across = pair(config, key) if config.states(key) else (378, 378)
        positions = (height // patch) * (across // patch)
    bias, layers, layer = config.boolean("attention_bias"), tuple(range(count)), f"{name}.layers.*"
    return [
        Tensor(f"{name}.positional_embedding", (positions, width), "vision"),
        *linear(f"{name}.patch_embedding", width, patch * patch * channels, "vision", bias=True),
        *attention(
            f"{layer}.self_attn", layers, width, *_heads(config), qkv_bias=bias, o_bias=bias, component="vision"
        ),
        *plain_mlp(f"{layer}.mlp", layers, width, config.integer("intermediate_size"), bias=True, component="vision"),
        *norm(f"{layer}.layer_norm1", width, layers, bias=True, component="vision"),
        *norm(f"{layer}.layer_norm2", width, layers, bias=True, component="vision"),
    ]


def _adapter(config: Config, in_width: int) -> list[Tensor]:
    """Attention that pools patches of the layers side by side, and a gated MLP into the text model."""
    heads, kv_heads, head_dim = _heads(config)
    width, inner, out_width = (config.integer(key) for key in ("hidden_size", "intermediate_size", "text_hidden_size"))
    bias, mlp_bias, pool = config.boolean("attention_bias"), config.boolean("mlp_bias"), f"{_JOIN}.image_pooling_2d"
    name = f"{_JOIN}.image_projector"
    found = []
    for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
        found += linear(f"{pool}.{part}_proj", count * head_dim, in_width, "vision", bias=bias)
    return [
        *found,
        *linear(f"{pool}.o_proj", width, heads * head_dim, "vision", bias=bias),
        *linear(f"{name}.gate_proj", inner, width, "vision", bias=mlp_bias),
        *linear(f"{name}.up_proj", inner, width, "vision", bias=mlp_bias),
        *linear(f"{name}.down_proj", out_width, inner, "vision"),
    ]
