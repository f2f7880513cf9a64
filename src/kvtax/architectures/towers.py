"""Vision and audio towers that many multimodal models share, and how a text model is joined with them.

A tower is a function of its own Config and of the module that it hangs below, such as `vision_tower.`; its tensors are all of
component `vision` or `audio`. Linear layers are split over ranks as engines split them; embeddings and norms are replicated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config, describe
from kvtax.architectures.decoder import attention, gated_mlp, plain_mlp
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, linear, norm


def with_towers(config: Config, text: Architecture, tensors: Iterable[Tensor], **facts: Any) -> Architecture:
    """The text model and its towers as one Architecture that has the name and model type of `config`.

    Args:
        config: of the whole model.
        text: its text model, built with the prefix that the checkpoint has.
        tensors: of towers and projectors.
        facts: other fields of Architecture that differ from the text model's.

    Returns:
        The whole.
    """
    added = tuple(tensors)
    changes: dict[str, Any] = {
        "model_type": config.model_type,
        "name": config.architecture or config.model_type,
        "tensors": (*text.tensors, *added),
        "defaults_used": config.defaults_used,
    }
    if text.own_active_parameters is not None:
        changes["active_parameters"] = text.own_active_parameters + sum(
            tensor.elements for tensor in added if tensor.loaded and tensor.parameter
        )
    changes.update(facts)
    return text.replace(**changes)


def build_text(
    config: Config, key: str = "text_config", *, prefix: str = "language_model.", tied: bool | None = None
) -> Architecture:
    """The text model of a multimodal config, built by the family of its own model type.

    Args:
        config: of the whole model.
        key: of the nested config.
        prefix: that the checkpoint gives the text model's tensors.
        tied: whether lm_head is the embedding where the outer config decides it; None leaves it to the text config.

    Returns:
        The text model.
    """
    from kvtax.architectures.registry import build

    text = config.sub(key)
    if tied is not None:
        text.values = {**text.values, "tie_word_embeddings": tied}
    return build(text, prefix=prefix)


def in_language_model(text: Architecture) -> Architecture:
    """The text model whose checkpoint has `model.language_model.` where the text model alone has `model.`; lm_head stays outside."""
    return text.replace(
        tensors=[
            tensor._replace(name="model.language_model." + tensor.name.removeprefix("model."))
            if tensor.name.startswith("model.")
            else tensor
            for tensor in text.tensors
        ]
    )


def tied_embeddings(config: Config, key: str = "text_config", *, either: bool = False) -> bool:
    """Whether lm_head of a multimodal model is the embedding: as the outer config says, its class default included.

    `either`: the classes that take the text config's word, its class default included, where the outer one says false.
    """
    return config.boolean("tie_word_embeddings") or (either and config.sub(key).boolean("tie_word_embeddings"))


def hidden_and_heads(config: Config) -> tuple[int, int]:
    """hidden_size and num_attention_heads of a tower, the one divisible by the other.

    Raises:
        ConfigError: not divisible.
    """
    hidden_size = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    if hidden_size % heads:
        config.fail("num_attention_heads", f"{heads} does not divide hidden_size {hidden_size}")
    return hidden_size, heads


def patch_grid(config: Config, *, key: str = "image_size") -> tuple[int, int]:
    """patch_size and the number of patches along one side of an image of `image_size`.

    Raises:
        ConfigError: no patch fits.
    """
    patch_size = config.integer("patch_size")
    image_size = config.integer(key)
    if image_size < patch_size:
        config.fail("patch_size", f"{patch_size} is more than {key} {image_size}")
    return patch_size, image_size // patch_size


def convolution(
    name: str, out_channels: int, in_channels: int, *kernel: int, bias: bool = True, component: str = "vision"
) -> list[Tensor]:
    """`name.weight` [out_channels, in_channels, *kernel] and `name.bias`."""
    found = [Tensor(f"{name}.weight", (out_channels, in_channels, *kernel), component)]
    if bias:
        found.append(Tensor(f"{name}.bias", (out_channels,), component))
    return found


def encoder_layers(
    prefix: str,
    num_hidden_layers: int,
    hidden_size: int,
    num_attention_heads: int,
    intermediate_size: int,
    *,
    component: str = "vision",
    attention_name: str = "self_attn",
    names: Sequence[str] = ("q_proj", "k_proj", "v_proj", "out_proj"),
    mlp_names: Sequence[str] = ("mlp.fc1", "mlp.fc2"),
    norm_names: Sequence[str] = ("layer_norm1", "layer_norm2"),
    bias: bool = True,
    key_bias: bool = True,
) -> list[Tensor]:
    """Pre-norm encoder layers below `prefix`, such as `vision_model.encoder.layers`: attention, plain MLP, two LayerNorms.

    Three `mlp_names` make the MLP a gated one; norms have a bias where `bias` says so.
    """
    layers = tuple(range(num_hidden_layers))
    layer = f"{prefix}.*"
    head_dim = hidden_size // num_attention_heads
    found = attention(
        f"{layer}.{attention_name}", layers, hidden_size, num_attention_heads, num_attention_heads, head_dim,
        qkv_bias=bias, o_bias=bias, names=names, component=component,
    )  # fmt: skip
    if bias and not key_bias:
        found = [tensor for tensor in found if not tensor.name.endswith(f".{names[1]}.bias")]
    mlp = gated_mlp if len(mlp_names) == 3 else plain_mlp
    found += mlp(layer, layers, hidden_size, intermediate_size, bias=bias, component=component, names=mlp_names)
    for name in norm_names:
        found += norm(f"{layer}.{name}", hidden_size, layers, bias=bias, component=component)
    return found


def clip_vision(config: Config, prefix: str) -> list[Tensor]:
    """CLIP's vision transformer: class token, patches without bias, learned positions, a norm before and after.

    Source: transformers 5.24.0 models/clip/modeling_clip.py.
    """
    hidden_size, heads = hidden_and_heads(config)
    patch_size, side = patch_grid(config)
    model = f"{prefix}vision_model"
    return [
        Tensor(f"{model}.embeddings.class_embedding", (hidden_size,), "vision"),
        *convolution(
            f"{model}.embeddings.patch_embedding",
            hidden_size,
            config.integer("num_channels"),
            patch_size,
            patch_size,
            bias=False,
        ),
        Tensor(f"{model}.embeddings.position_embedding.weight", (side * side + 1, hidden_size), "vision"),
        *norm(f"{model}.pre_layrnorm", hidden_size, bias=True, component="vision"),
        *encoder_layers(
            f"{model}.encoder.layers",
            config.integer("num_hidden_layers"),
            hidden_size,
            heads,
            config.integer("intermediate_size"),
        ),
        *norm(f"{model}.post_layernorm", hidden_size, bias=True, component="vision"),
    ]


def siglip_vision(config: Config, prefix: str) -> list[Tensor]:
    """SigLIP's vision transformer: patches with bias, learned positions, a norm after; a pooling head with vision_use_head.

    Source: transformers 5.24.0 models/siglip/modeling_siglip.py.
    """
    hidden_size, heads = hidden_and_heads(config)
    intermediate_size = config.integer("intermediate_size")
    patch_size, side = patch_grid(config)
    model = f"{prefix}vision_model"
    found = [
        *convolution(
            f"{model}.embeddings.patch_embedding", hidden_size, config.integer("num_channels"), patch_size, patch_size
        ),
        Tensor(f"{model}.embeddings.position_embedding.weight", (side * side, hidden_size), "vision"),
        *encoder_layers(
            f"{model}.encoder.layers", config.integer("num_hidden_layers"), hidden_size, heads, intermediate_size
        ),
        *norm(f"{model}.post_layernorm", hidden_size, bias=True, component="vision"),
    ]
    if config.boolean("vision_use_head", default=True):
        head = f"{model}.head"
        found += [
            Tensor(f"{head}.probe", (1, 1, hidden_size), "vision"),
            Tensor(f"{head}.attention.in_proj_weight", (3 * hidden_size, hidden_size), "vision"),
            Tensor(f"{head}.attention.in_proj_bias", (3 * hidden_size,), "vision"),
            *linear(f"{head}.attention.out_proj", hidden_size, hidden_size, "vision", bias=True),
            *norm(f"{head}.layernorm", hidden_size, bias=True, component="vision"),
            *linear(f"{head}.mlp.fc1", intermediate_size, hidden_size, "vision", bias=True, shard=COLUMN),
            *linear(f"{head}.mlp.fc2", hidden_size, intermediate_size, "vision", bias=True, shard=ROW),
        ]
    return found


def pixtral_vision(config: Config, prefix: str) -> list[Tensor]:
    """Pixtral's vision transformer: patches and norms without bias, rotary positions, gated MLP.

    Source: transformers 5.24.0 models/pixtral/modeling_pixtral.py.
    """
    hidden_size, heads = hidden_and_heads(config)
    patch_size = config.integer("patch_size")
    return [
        *convolution(f"{prefix}patch_conv", hidden_size, config.integer("num_channels"), patch_size, patch_size, bias=False),
        *norm(f"{prefix}ln_pre", hidden_size, component="vision"),
        *encoder_layers(
            f"{prefix}transformer.layers", config.integer("num_hidden_layers"), hidden_size, heads,
            config.integer("intermediate_size"), bias=False, attention_name="attention",
            names=("q_proj", "k_proj", "v_proj", "o_proj"), norm_names=("attention_norm", "ffn_norm"),
            mlp_names=("feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"),
        ),
    ]  # fmt: skip


VISION_TOWERS = {
    "clip_vision_model": clip_vision,
    "siglip_vision_model": siglip_vision,
    "pixtral": pixtral_vision,
}


def vision_tower(config: Config, prefix: str = "vision_tower.") -> list[Tensor]:
    """The tower that the model type of a vision_config names.

    Raises:
        UnsupportedArchitectureError: another model type.
    """
    tower = VISION_TOWERS.get(config.model_type)
    if tower is None:
        config.unsupported("model_type", f"vision tower {describe(config.model_type)} is not understood")
    return tower(config, prefix)


def whisper_encoder(config: Config, prefix: str, *, positions: bool = True, component: str = "audio") -> list[Tensor]:
    """Whisper's encoder: two convolutions over mel bins, a table of positions, pre-norm layers whose keys have no bias, a norm after.

    Source: transformers 5.24.0 models/whisper/modeling_whisper.py.
    """
    width = config.integer("d_model", "hidden_size")
    heads = config.integer("encoder_attention_heads", "num_attention_heads")
    if width % heads:
        config.fail("encoder_attention_heads", f"{heads} does not divide d_model {width}")
    found = [
        *convolution(f"{prefix}conv1", width, config.integer("num_mel_bins"), 3, component=component),
        *convolution(f"{prefix}conv2", width, width, 3, component=component),
    ]
    if positions:
        found.append(
            Tensor(f"{prefix}embed_positions.weight", (config.integer("max_source_positions"), width), component)
        )
    found += encoder_layers(
        f"{prefix}layers", config.integer("encoder_layers", "num_hidden_layers"), width, heads,
        config.integer("encoder_ffn_dim", "intermediate_size"), component=component, mlp_names=("fc1", "fc2"),
        norm_names=("self_attn_layer_norm", "final_layer_norm"), key_bias=False,
    )  # fmt: skip
    return [*found, *norm(f"{prefix}layer_norm", width, bias=True, component=component)]


def projector(
    prefix: str,
    in_features: int,
    hidden_size: int,
    *,
    bias: bool = True,
    names: Sequence[str] = ("linear_1", "linear_2"),
) -> list[Tensor]:
    """Two linear layers from the tower to the text model, such as `multi_modal_projector`."""
    first, second = (f"{prefix}.{name}" for name in names)
    return [
        *linear(first, hidden_size, in_features, "vision", bias=bias),
        *linear(second, hidden_size, hidden_size, "vision", bias=bias),
    ]
