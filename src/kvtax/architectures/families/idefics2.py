"""Idefics 2: SigLIP's layers, a gated projection and a perceiver that gives a fixed number of latents, a Mistral text model."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import attention, gated_mlp
from kvtax.architectures.multimodal import text_model
from kvtax.architectures.tensors import Tensor, linear, norm, prefixed
from kvtax.architectures.towers import siglip_vision, with_towers

_TOWER = "model."
_JOIN = "model.connector"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A tower without a pooling head, the connector, and the text model.

    Source: transformers 5.24.0 models/idefics2/modeling_idefics2.py.
    """
    text = text_model(config, module=f"{prefix}model.text_model.")
    vision = config.sub("vision_config").retyped("idefics2_vision")
    width, hidden = vision.integer("hidden_size"), text.hidden_size
    gated = config.sub("text_config").integer("intermediate_size")
    added = [
        *siglip_vision(vision.retyped(vision_use_head=False), _TOWER),
        *linear(f"{_JOIN}.modality_projection.gate_proj", gated, width, "vision"),
        *linear(f"{_JOIN}.modality_projection.up_proj", gated, width, "vision"),
        *linear(f"{_JOIN}.modality_projection.down_proj", hidden, gated, "vision"),
        *_perceiver(config.sub("perceiver_config").retyped("idefics2_perceiver"), hidden),
    ]
    return with_towers(config, text, prefixed(added, prefix))


def _perceiver(config: Config, hidden: int) -> list[Tensor]:
    """Latents, and layers in which they attend to the image; as wide as the text model whatever its own config says."""
    layers = tuple(range(config.integer("resampler_depth", maximum=4096)))
    heads = config.integer("resampler_n_heads", maximum=65_536)
    kv_heads = config.integer("num_key_value_heads", maximum=65_536)
    if heads % kv_heads:
        config.fail("num_key_value_heads", f"{kv_heads} does not divide resampler_n_heads {heads}")
    name = f"{_JOIN}.perceiver_resampler"
    layer = f"{name}.layers.*"
    found = [
        Tensor(f"{name}.latents", (config.integer("resampler_n_latents"), hidden), "vision"),
        *attention(
            f"{layer}.self_attn", layers, hidden, heads, kv_heads, config.integer("resampler_head_dim"),
            component="vision",
        ),
        *gated_mlp(f"{layer}.mlp", layers, hidden, 4 * hidden, component="vision"),
        *norm(f"{name}.norm", hidden, component="vision"),
    ]  # fmt: skip
    for part in ("input_latents_norm", "input_context_norm", "post_attention_layernorm"):
        found += norm(f"{layer}.{part}", hidden, layers, component="vision")
    return found
