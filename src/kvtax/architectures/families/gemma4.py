"""Gemma 4: sliding and full layers of different geometry, shared caches, embeddings per layer, experts, towers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache, SlidingWindow
from kvtax.architectures.config import (
    MAXIMUM_EXPERTS,
    MAXIMUM_HEADS,
    MAXIMUM_LAYERS,
    MAXIMUM_POSITIONS,
    MAXIMUM_WIDTH,
    Config,
    describe,
)
from kvtax.architectures.decoder import Shape, assemble, every_nth_full, gated_mlp
from kvtax.architectures.families.gemma3n import (
    per_layer_embeddings,
    shared_from,
    unused_key_values,
    with_sharing,
)
from kvtax.architectures.tensors import COLUMN, EXPERT, HEADS, ROW, Tensor, linear, norm
from kvtax.architectures.towers import build_text, in_language_model, tied_embeddings, with_towers

DEFAULT_GLOBAL_HEAD_DIM = 512


class Geometry(NamedTuple):
    """What a layer's attention is made of."""

    num_key_value_heads: int
    head_dim: int
    value_projection: bool


def _overrides(config: Config, num_hidden_layers: int) -> dict[int, dict[str, int]] | None:
    """per_layer_config: numbers that replace the common ones in single layers; None where the file has none.

    Raises:
        UnsupportedArchitectureError: another number than head_dim and num_key_value_heads.
    """
    value = config.values.get("per_layer_config")
    if value is None:
        return None
    if not isinstance(value, dict):
        config.fail("per_layer_config", f"must be an object, not {describe(value)}")
    limits = {"head_dim": MAXIMUM_WIDTH, "num_key_value_heads": MAXIMUM_HEADS}
    found: dict[int, dict[str, int]] = {}
    for key, changes in value.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 8 and int(key) < num_hidden_layers):
            config.fail("per_layer_config", f"{describe(key)} is not the index of one of {num_hidden_layers} layers")
        if not isinstance(changes, dict):
            config.fail(f"per_layer_config.{key}", f"must be an object, not {describe(changes)}")
        for name, size in changes.items():
            if name not in limits:
                config.unsupported(f"per_layer_config.{key}", f"{describe(name)} of a single layer is not understood")
            if type(size) is not int or not 1 <= size <= limits[name]:
                config.fail(f"per_layer_config.{key}", f"{name} must be a whole number, not {describe(size)}")
        found[int(key)] = changes
    return found


def _geometry(config: Config, shape: Shape, kinds: Sequence[str]) -> list[Geometry]:
    """Heads and widths of each layer."""
    equal = config.boolean("attention_k_eq_v")
    overrides = _overrides(config, shape.num_hidden_layers)
    if overrides is None:
        whole = {"head_dim": config.integer("global_head_dim", default=DEFAULT_GLOBAL_HEAD_DIM)}
        heads = config.optional_integer("num_global_key_value_heads", maximum=MAXIMUM_HEADS)
        if equal and heads is not None:
            whole["num_key_value_heads"] = heads
        overrides = {index: whole for index, kind in enumerate(kinds) if kind == "full_attention"}
    found: list[Geometry] = []
    for index, kind in enumerate(kinds):
        own = overrides.get(index, {})
        heads = own.get("num_key_value_heads", shape.num_key_value_heads)
        if shape.num_attention_heads % heads:
            config.fail(
                "num_global_key_value_heads", f"{heads} does not divide {shape.num_attention_heads} query heads"
            )
        found.append(Geometry(heads, own.get("head_dim", shape.head_dim), not equal or kind == "sliding_attention"))
    return found


def _layer_kinds(config: Config, num_hidden_layers: int) -> list[str]:
    """Layer types; the last layer is a full one, whatever the file says.

    Raises:
        UnsupportedArchitectureError: another layer type.
    """
    kinds = [*(config.layer_types(num_hidden_layers) or every_nth_full(num_hidden_layers, 6))]
    kinds[-1] = "full_attention"
    for index, kind in enumerate(kinds):
        if kind not in ("full_attention", "sliding_attention"):
            config.unsupported(f"layer_types[{index}]", f"layer type {describe(kind)} is not understood")
    return kinds


def _window(config: Config) -> int | None:
    """sliding_window; where all tokens see each other it counts both sides."""
    window = config.optional_integer("sliding_window", maximum=MAXIMUM_POSITIONS)
    if window is not None and config.get("use_bidirectional_attention") == "all":
        return window // 2 + 1
    return window


def _caches(config: Config, kinds: Sequence[str], geometry: Sequence[Geometry]) -> list[LayerCache]:
    """One cache a layer, as if none were shared."""
    window = _window(config)
    found: list[LayerCache] = []
    for kind, layer in zip(kinds, geometry, strict=True):
        sizes = (layer.num_key_value_heads, layer.head_dim, layer.head_dim)
        if kind == "full_attention":
            found.append(FullAttention(*sizes))
        elif window is None:
            config.fail("sliding_window", "is missing or null, but there are sliding_attention layers")
        else:
            found.append(SlidingWindow(*sizes, window))
    return found


def _attention(config: Config, shape: Shape, geometry: Sequence[Geometry]) -> list[Tensor]:
    """Projections and query and key norms, for each geometry the layers that have it."""
    bias = config.boolean("attention_bias")
    name = "model.layers.*.self_attn"
    found: list[Tensor] = []
    for layer in sorted(set(geometry)):
        layers = tuple(index for index in shape.layers if geometry[index] == layer)
        queries, keys = shape.num_attention_heads * layer.head_dim, layer.num_key_value_heads * layer.head_dim
        heads = (0, layer.num_key_value_heads)
        found += linear(f"{name}.q_proj", queries, shape.hidden_size, "attention", layers, bias=bias, shard=COLUMN)
        for key in ("k_proj", "v_proj") if layer.value_projection else ("k_proj",):
            found += linear(
                f"{name}.{key}", keys, shape.hidden_size, "attention", layers, bias=bias, shard=HEADS, heads=heads
            )
        found += linear(f"{name}.o_proj", shape.hidden_size, queries, "attention", layers, bias=bias, shard=ROW)
        found += norm(f"{name}.q_norm", layer.head_dim, layers)
        found += norm(f"{name}.k_norm", layer.head_dim, layers)
    return found


def _moe(config: Config, layers: tuple[int, ...], hidden_size: int) -> tuple[list[Tensor], dict[str, Any]]:
    """Routed experts beside the dense MLP of every layer, in two stacks [experts, out, in]."""
    num_experts = config.integer("num_experts", maximum=MAXIMUM_EXPERTS)
    width = config.integer("moe_intermediate_size")
    layer = "model.layers.*"
    found = [
        *linear(f"{layer}.router.proj", num_experts, hidden_size, "router", layers),
        Tensor(f"{layer}.router.scale", (hidden_size,), "router", layers),
        Tensor(f"{layer}.router.per_expert_scale", (num_experts,), "router", layers),
    ]
    for name in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"):
        found += norm(f"{layer}.{name}", hidden_size, layers)
    for name, sizes in (("gate_up_proj", (2 * width, hidden_size)), ("down_proj", (hidden_size, width))):
        found.append(
            Tensor(
                f"{layer}.experts.{name}", (num_experts, *sizes), "routed_experts", layers, shard=EXPERT, linear=True
            )
        )
    per_token = config.integer("top_k_experts", "num_experts_per_tok", maximum=num_experts)
    return found, {"num_experts": num_experts, "num_experts_per_tok": per_token, "moe_intermediate_size": width}


def _text(config: Config, prefix: str) -> Architecture:
    """The decoder."""
    shape = Shape(config)
    layers, hidden_size = shape.layers, shape.hidden_size
    kinds = _layer_kinds(config, len(layers))
    geometry = _geometry(config, shape, kinds)
    first, sources = shared_from(config, kinds)
    body = unused_key_values(_attention(config, shape, geometry), first)
    width = config.integer("intermediate_size")
    # layers without keys and values of their own may have an MLP twice as wide instead
    double = config.boolean("use_double_wide_mlp")
    narrow = layers[:first] if double else layers
    for these, size in ((narrow, width), (layers[len(narrow) :], 2 * width)):
        if these:
            body += gated_mlp("model.layers.*.mlp", these, hidden_size, size)
    facts: dict[str, Any] = {"intermediate_size": 2 * width if len(narrow) < len(layers) else width}
    for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
        body += norm(f"model.layers.*.{name}_layernorm", hidden_size, layers)
    body.append(Tensor("model.layers.*.layer_scalar", (1,), "other", layers, parameter=False))
    if not config.model_type.startswith("gemma4_unified"):
        per_layer = config.optional_integer("hidden_size_per_layer_input", minimum=0)
        if per_layer:
            body += per_layer_embeddings(config, layers, hidden_size, per_layer)
        if config.boolean("enable_moe_block"):
            found, numbers = _moe(config, layers, hidden_size)
            body += found
            facts.update(numbers)
    caches = with_sharing(_caches(config, kinds, geometry), kinds, first, sources)
    facts["num_key_value_heads"] = max(layer.num_key_value_heads for layer in geometry)
    return assemble(config, shape, body, caches, prefix=prefix, **facts)


def clippable(
    name: str, out_features: int, in_features: int, component: str, layers: tuple[int, ...], clipped: bool
) -> list[Tensor]:
    """A linear layer inside a module that may also keep the range of its inputs and outputs."""
    found = linear(f"{name}.linear", out_features, in_features, component, layers)
    if clipped:
        for key in ("input_min", "input_max", "output_min", "output_max"):
            found.append(Tensor(f"{name}.{key}", (), component, layers, parameter=False))
    return found


def _vision(config: Config, prefix: str) -> list[Tensor]:
    """Patches as one matrix, two tables of positions, encoder layers with the four norms of the text model."""
    hidden_size, width = config.integer("hidden_size"), config.integer("intermediate_size")
    heads = config.integer("num_attention_heads")
    keys = config.num_key_value_heads(heads)
    head_dim = config.head_dim(hidden_size, heads)
    clipped = config.boolean("use_clipped_linears")
    layers = tuple(range(config.integer("num_hidden_layers")))
    patches = 3 * config.integer("patch_size") ** 2
    layer = f"{prefix}encoder.layers.*"
    found = [
        *linear(f"{prefix}patch_embedder.input_proj", hidden_size, patches, "vision"),
        Tensor(
            f"{prefix}patch_embedder.position_embedding_table",
            (2, config.integer("position_embedding_size"), hidden_size),
            "vision",
        ),
    ]
    for name, out_features, in_features in (
        ("self_attn.q_proj", heads * head_dim, hidden_size),
        ("self_attn.k_proj", keys * head_dim, hidden_size),
        ("self_attn.v_proj", keys * head_dim, hidden_size),
        ("self_attn.o_proj", hidden_size, heads * head_dim),
        ("mlp.gate_proj", width, hidden_size),
        ("mlp.up_proj", width, hidden_size),
        ("mlp.down_proj", hidden_size, width),
    ):
        found += clippable(f"{layer}.{name}", out_features, in_features, "vision", layers, clipped)
    for name in ("self_attn.q_norm", "self_attn.k_norm"):
        found += norm(f"{layer}.{name}", head_dim, layers, component="vision")
    for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
        found += norm(f"{layer}.{name}_layernorm", hidden_size, layers, component="vision")
    if config.boolean("standardize"):
        for name in ("std_bias", "std_scale"):
            found.append(Tensor(f"{prefix}{name}", (hidden_size,), "vision", parameter=False))
    return found


def _audio(config: Config, prefix: str) -> list[Tensor]:
    """Two convolutions and a conformer."""
    hidden_size, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = hidden_size // heads
    if head_dim < 1:
        config.fail("num_attention_heads", f"{heads} heads do not fit in hidden_size {hidden_size}")
    channels = config.integers("subsampling_conv_channels", length=2, minimum=1)
    if channels is None:
        config.fail("subsampling_conv_channels", "must be two whole numbers")
    clipped = config.boolean("use_clipped_linears")
    layers = tuple(range(config.integer("num_hidden_layers", maximum=MAXIMUM_LAYERS)))
    start, layer = f"{prefix}subsample_conv_projection", f"{prefix}layers.*"
    found: list[Tensor] = []
    for index, inner in enumerate((1, channels[0])):
        found.append(Tensor(f"{start}.layer{index}.conv.weight", (channels[index], inner, 3, 3), "audio"))
        found.append(Tensor(f"{start}.layer{index}.norm.weight", (channels[index],), "audio"))
    found += linear(f"{start}.input_proj_linear", hidden_size, channels[0] // 4 * channels[1], "audio")
    attention = heads * head_dim
    parts = [(f"self_attn.{name}", attention, hidden_size) for name in ("q_proj", "k_proj", "v_proj")]
    parts += [("self_attn.post", hidden_size, hidden_size)]
    for name in ("feed_forward1", "feed_forward2"):
        parts += [
            (f"{name}.ffw_layer_1", 4 * hidden_size, hidden_size),
            (f"{name}.ffw_layer_2", hidden_size, 4 * hidden_size),
        ]
        for side in ("pre", "post"):
            found += norm(f"{layer}.{name}.{side}_layer_norm", hidden_size, layers, component="audio")
    parts += [("lconv1d.linear_start", 2 * hidden_size, hidden_size), ("lconv1d.linear_end", hidden_size, hidden_size)]
    for name, out_features, in_features in parts:
        found += clippable(f"{layer}.{name}", out_features, in_features, "audio", layers, clipped)
    found += linear(f"{layer}.self_attn.relative_k_proj", attention, hidden_size, "audio", layers)
    found.append(Tensor(f"{layer}.self_attn.per_dim_scale", (head_dim,), "audio", layers))
    kernel = config.integer("conv_kernel_size", maximum=4096)
    found.append(Tensor(f"{layer}.lconv1d.depthwise_conv1d.weight", (hidden_size, 1, kernel), "audio", layers))
    for name in ("lconv1d.pre_layer_norm", "lconv1d.conv_norm", "norm_pre_attn", "norm_post_attn", "norm_out"):
        found += norm(f"{layer}.{name}", hidden_size, layers, component="audio")
    return [
        *found,
        *linear(f"{prefix}output_proj", config.integer("output_proj_dims"), hidden_size, "audio", bias=True),
    ]


def _unified_vision(config: Config, text_hidden_size: int) -> list[Tensor]:
    """No tower: merged patches through a norm, a matrix and a norm, positions, a norm and the projection."""
    patches = 3 * (config.integer("patch_size") * config.integer("pooling_kernel_size", maximum=4096)) ** 2
    width = config.integer("mm_embed_dim")
    name = "model.vision_embedder"
    return [
        *norm(f"{name}.patch_ln1", patches, bias=True, component="vision"),
        *linear(f"{name}.patch_dense", width, patches, "vision", bias=True),
        *norm(f"{name}.patch_ln2", width, bias=True, component="vision"),
        Tensor(f"{name}.pos_embedding", (config.integer("mm_posemb_size"), 2, width), "vision"),
        *norm(f"{name}.pos_norm", width, bias=True, component="vision"),
        *linear(
            "model.embed_vision.embedding_projection", text_hidden_size, config.integer("output_proj_dims"), "vision"
        ),
    ]


def _multimodal(config: Config, text_hidden_size: int) -> list[Tensor]:
    """The towers that the config has; a tower that it leaves out, or has as null, does not exist."""
    unified = config.model_type == "gemma4_unified"
    found: list[Tensor] = []
    if config.values.get("vision_config") is not None:
        vision = config.sub("vision_config")
        if unified:
            found += _unified_vision(vision, text_hidden_size)
        else:
            found += _vision(vision, "model.vision_tower.")
            width = vision.optional_integer("output_proj_dims") or vision.integer("hidden_size")
            found += linear("model.embed_vision.embedding_projection", text_hidden_size, width, "vision")
    if config.values.get("audio_config") is not None:
        audio = config.sub("audio_config")
        if not unified:
            found += _audio(audio, "model.audio_tower.")
        # three other names of audio_embed_dim, which win over it
        names = ("output_proj_dims", "hidden_size", "audio_samples_per_token", "audio_embed_dim")
        width = audio.integer(*(names if unified else names[:1]))
        found += linear("model.embed_audio.embedding_projection", text_hidden_size, width, "audio")
    return found


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Sliding layers with a full one after every fifth, which has heads of its own width; towers where the file has them.

    Source: transformers 5.24.0 models/gemma4/modeling_gemma4.py, models/gemma4_unified/modeling_gemma4_unified.py.
    """
    if config.model_type.endswith("_text"):
        return _text(config, prefix)
    text = in_language_model(build_text(config, prefix="", tied=tied_embeddings(config)))
    return with_towers(config, text, _multimodal(config, text.hidden_size))
