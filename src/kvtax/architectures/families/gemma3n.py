"""Gemma 3n: several residual streams, embeddings per layer, and caches that the last layers share."""

from __future__ import annotations

from collections.abc import Sequence

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import LayerCache, Shared
from kvtax.architectures.config import MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.decoder import Shape, assemble, attention, attention_caches, every_nth_full, gated_mlp
from kvtax.architectures.tensors import COLUMN, ROW, VOCAB, Tensor, linear, norm
from kvtax.architectures.towers import build_text, in_language_model, tied_embeddings, with_towers
from kvtax.architectures.towers_mobilenet import mobilenet_v5_300m

_KEY_VALUE = (".k_proj.weight", ".v_proj.weight", ".k_norm.weight", ".k_proj.bias", ".v_proj.bias")


def shared_from(config: Config, kinds: Sequence[str]) -> tuple[int, dict[str, int]]:
    """The first layer that reads another's cache, and for each layer type the layer that it is read from.

    Raises:
        ConfigError: a layer would share with none.
    """
    shared = config.integer("num_kv_shared_layers", default=0, minimum=0, maximum=MAXIMUM_LAYERS)
    first = len(kinds) - shared
    if first < 1 and shared:
        config.fail("num_kv_shared_layers", f"{shared} leaves none of {len(kinds)} layers with a cache of its own")
    sources = {kind: index for index, kind in enumerate(kinds[:first])}
    for kind in kinds[first:]:
        if kind not in sources:
            config.fail("num_kv_shared_layers", f"no layer before layer {first} is of type {describe(kind)}")
    return first, sources


def with_sharing(
    caches: list[LayerCache], kinds: Sequence[str], first: int, sources: dict[str, int]
) -> list[LayerCache]:
    """The caches, those from layer `first` on replaced by a reference to the layer that they are read from."""
    return [*caches[:first], *(Shared(sources[kind]) for kind in kinds[first:])]


def unused_key_values(tensors: list[Tensor], first: int) -> list[Tensor]:
    """Keys and values of the layers that share are in the file, but are not loaded."""
    found: list[Tensor] = []
    for tensor in tensors:
        if not tensor.name.endswith(_KEY_VALUE):
            found.append(tensor)
            continue
        own = tuple(index for index in tensor.layers if index < first)
        rest = tuple(index for index in tensor.layers if index >= first)
        if own:
            found.append(tensor._replace(layers=own))
        if rest:
            found.append(tensor._replace(layers=rest, loaded=False))
    return found


def per_layer_embeddings(config: Config, layers: tuple[int, ...], hidden_size: int, width: int) -> list[Tensor]:
    """A second embedding with a vector of `width` for each layer, and what brings it into the residual stream."""
    vocab_size = config.integer("vocab_size_per_layer_input")
    layer = "model.layers.*"
    return [
        Tensor("model.embed_tokens_per_layer.weight", (vocab_size, len(layers) * width), "embedding", shard=VOCAB),
        *linear("model.per_layer_model_projection", len(layers) * width, hidden_size, "other"),
        *norm("model.per_layer_projection_norm", width),
        *linear(f"{layer}.per_layer_input_gate", width, hidden_size, "other", layers),
        *linear(f"{layer}.per_layer_projection", hidden_size, width, "other", layers),
        *norm(f"{layer}.post_per_layer_input_norm", hidden_size, layers),
    ]


def _streams(config: Config, layers: tuple[int, ...], hidden_size: int) -> list[Tensor]:
    """AltUp: projections into and out of the other streams, and in each layer a router between streams; and LAuReL."""
    streams = config.integer("altup_num_inputs", maximum=1024)
    rank = config.integer("laurel_rank")
    altup, laurel = "model.layers.*.altup", "model.layers.*.laurel"
    found = [
        Tensor(f"{altup}.correct_output_scale", (hidden_size,), "other", layers),
        *linear(f"{altup}.correction_coefs", streams, streams, "other", layers),
        *linear(f"{altup}.prediction_coefs", streams * streams, streams, "other", layers),
        *linear(f"{altup}.modality_router", streams, hidden_size, "other", layers),
        *norm(f"{altup}.router_norm", hidden_size, layers),
        *linear(f"{laurel}.linear_left", rank, hidden_size, "other", layers, shard=COLUMN),
        *linear(f"{laurel}.linear_right", hidden_size, rank, "other", layers, shard=ROW),
        *norm(f"{laurel}.post_laurel_norm", hidden_size, layers),
    ]
    others = tuple(range(streams - 1))
    if others:
        for name in ("altup_projections", "altup_unembed_projections"):
            found += linear(f"model.{name}.*", hidden_size, hidden_size, "other", others, shard=COLUMN)
    return found


def _widths(config: Config, num_hidden_layers: int) -> list[int]:
    """intermediate_size of each layer: one number, or a list."""
    if isinstance(config.get("intermediate_size"), list):
        return config.integers("intermediate_size", length=num_hidden_layers, minimum=1) or []
    return [config.integer("intermediate_size")] * num_hidden_layers


def _text(config: Config, prefix: str) -> Architecture:
    """The decoder."""
    shape = Shape(config)
    layers, hidden_size = shape.layers, shape.hidden_size
    kinds = config.layer_types(len(layers)) or every_nth_full(len(layers), 5)
    config.optional_list("activation_sparsity_pattern", length=len(layers))
    first, sources = shared_from(config, kinds)
    bias = config.boolean("attention_bias")
    layer = "model.layers.*"
    body = unused_key_values(
        attention(
            f"{layer}.self_attn", layers, hidden_size, shape.num_attention_heads, shape.num_key_value_heads,
            shape.head_dim, qkv_bias=bias, o_bias=bias, qk_norm="head",
        ),
        first,
    )  # fmt: skip
    widths = _widths(config, len(layers))
    for width in sorted(set(widths)):
        these = tuple(index for index in layers if widths[index] == width)
        body += gated_mlp(f"{layer}.mlp", these, hidden_size, width)
    for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
        body += norm(f"{layer}.{name}_layernorm", hidden_size, layers)
    body += _streams(config, layers, hidden_size)
    body += per_layer_embeddings(config, layers, hidden_size, config.integer("hidden_size_per_layer_input"))
    window = config.optional_integer("sliding_window")
    caches = attention_caches(config, kinds, shape.num_key_value_heads, shape.head_dim, sliding_window=window)
    return assemble(
        config, shape, body, with_sharing(caches, kinds, first, sources), prefix=prefix, intermediate_size=max(widths)
    )


def _pair(config: Config, key: str) -> list[tuple[int, int]]:
    """Two pairs of numbers, such as kernel sizes of the two convolutions."""
    values = config.get(key)
    found = [
        (value[0], value[1])
        for value in (values if isinstance(values, list) else [])
        if isinstance(value, list)
        and len(value) == 2
        and all(type(size) is int and 1 <= size <= 4096 for size in value)
    ]
    if len(found) != 2 or len(values) != 2:
        config.fail(key, f"must be two pairs of whole numbers, not {describe(values)}")
    return found


def _subsampling(config: Config, prefix: str, hidden_size: int) -> list[Tensor]:
    """Two convolutions over time and frequency, and a projection of what is left of the frequencies."""
    channels = config.integers("sscp_conv_channel_size", length=2, minimum=1) or []
    kernels, strides = _pair(config, "sscp_conv_kernel_size"), _pair(config, "sscp_conv_stride_size")
    if len(channels) != 2:
        config.fail("sscp_conv_channel_size", "must be two whole numbers")
    frequencies = config.integer("input_feat_size")
    found: list[Tensor] = []
    inner = 1
    for index, (outer, kernel, stride) in enumerate(zip(channels, kernels, strides, strict=True)):
        found.append(Tensor(f"{prefix}.conv_{index}.conv.weight", (outer, inner, *kernel), "audio"))
        found.append(Tensor(f"{prefix}.conv_{index}.norm.weight", (outer,), "audio"))
        # one column of padding on either side
        frequencies = (frequencies + 2 - kernel[1]) // stride[1] + 1
        inner = outer
        if frequencies < 1:
            config.fail("input_feat_size", "is too small for the convolutions")
    return [*found, *linear(f"{prefix}.input_proj_linear", hidden_size, inner * frequencies, "audio")]


def _audio(config: Config, prefix: str) -> list[Tensor]:
    """A conformer: in each block two half feed-forwards around attention and a depthwise convolution."""
    hidden_size, heads = config.integer("hidden_size"), config.integer("conf_num_attention_heads")
    head_dim = hidden_size // heads
    if head_dim < 1:
        config.fail("conf_num_attention_heads", f"{heads} heads do not fit in hidden_size {hidden_size}")
    blocks = tuple(range(config.integer("conf_num_hidden_layers", maximum=MAXIMUM_LAYERS)))
    block = f"{prefix}conformer.*"
    found = _subsampling(config, f"{prefix}subsample_conv_projection", hidden_size)
    for name in ("ffw_layer_start", "ffw_layer_end"):
        found += linear(f"{block}.{name}.ffw_layer_1", 4 * hidden_size, hidden_size, "audio", blocks)
        found += linear(f"{block}.{name}.ffw_layer_2", hidden_size, 4 * hidden_size, "audio", blocks)
        found += norm(f"{block}.{name}.pre_layer_norm", hidden_size, blocks, component="audio")
        found += norm(f"{block}.{name}.post_layer_norm", hidden_size, blocks, component="audio")
    inner = f"{block}.attention.attn"
    for name in ("q_proj", "k_proj", "v_proj", "relative_position_embedding.pos_proj"):
        found += linear(f"{inner}.{name}", heads * head_dim, hidden_size, "audio", blocks)
    found.append(Tensor(f"{inner}.per_dim_scale", (head_dim,), "audio", blocks))
    found += linear(f"{block}.attention.post", hidden_size, hidden_size, "audio", blocks)
    found += linear(f"{block}.lconv1d.linear_start", 2 * hidden_size, hidden_size, "audio", blocks)
    found += linear(f"{block}.lconv1d.linear_end", hidden_size, hidden_size, "audio", blocks)
    kernel = config.integer("conf_conv_kernel_size", maximum=4096)
    found.append(Tensor(f"{block}.lconv1d.depthwise_conv1d.weight", (hidden_size, 1, kernel), "audio", blocks))
    for name in (
        "attention.pre_attn_norm",
        "attention.post_norm",
        "lconv1d.pre_layer_norm",
        "lconv1d.conv_norm",
        "norm",
    ):
        found += norm(f"{block}.{name}", hidden_size, blocks, component="audio")
    return found


def _embedder(config: Config, prefix: str, text_hidden_size: int, component: str) -> list[Tensor]:
    """Special tokens of a modality, two norms and the projection to the text model."""
    hidden_size = config.integer("hidden_size")
    return [
        Tensor(f"{prefix}.embedding.weight", (config.integer("vocab_size"), hidden_size), component),
        *norm(f"{prefix}.hard_embedding_norm", hidden_size, component=component),
        *norm(f"{prefix}.soft_embedding_norm", hidden_size, component=component),
        *linear(f"{prefix}.embedding_projection", text_hidden_size, hidden_size, component),
    ]


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Sliding layers with a full one after every fourth; the last ones read the cache of an earlier layer.

    Source: transformers 5.24.0 models/gemma3n/modeling_gemma3n.py.
    """
    if config.model_type == "gemma3n_text":
        return _text(config, prefix)
    text = in_language_model(build_text(config, prefix="", tied=tied_embeddings(config)))
    vision, audio = config.sub("vision_config"), config.sub("audio_config")
    architecture = vision.string("architecture")
    if architecture != "mobilenetv5_300m_enc" or vision.get("model_args"):
        vision.unsupported("architecture", f"vision tower {describe(architecture)} is not understood")
    tensors = [
        *mobilenet_v5_300m("model.vision_tower.timm_model."),
        *_embedder(vision, "model.embed_vision", text.hidden_size, "vision"),
        *_audio(audio, "model.audio_tower."),
        *_embedder(audio, "model.embed_audio", text.hidden_size, "audio"),
    ]
    return with_towers(config, text, tensors)
