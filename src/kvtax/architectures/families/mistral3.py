"""Mistral 3: Pixtral's tower, a merger of patches and a Mistral (or Ministral 3, Mistral 4) text model."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config, describe
from kvtax.architectures.tensors import Tensor, linear, norm
from kvtax.architectures.towers import build_text, projector, vision_tower, with_towers


def _tied(config: Config) -> bool:
    """Whether lm_head is the embedding: as the outer config states, else as the text config has it.

    The outer class default (true) does not count: the files that leave the key out keep an lm_head of their own,
    and it is loaded where it stands beside the embedding.
    """
    level = config if config.states("tie_word_embeddings") else config.sub("text_config")
    return level.boolean("tie_word_embeddings")


def vision_feature_layers(config: Config) -> int:
    """How many layers of the tower feed the projector: 1, or as many as the list in vision_feature_layer has."""
    name, value = config.find("vision_feature_layer", default=-1)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return 1
    if not isinstance(value, list) or not value:
        config.fail(name, f"must be a whole number or a list of them, not {describe(value)}")
    return len(value)


def _projector(config: Config, prefix: str, vision_hidden_size: int, hidden_size: int) -> list[Tensor]:
    """A norm, a layer that merges spatial_merge_size^2 patches into one, and two linear layers."""
    merge = config.integer("spatial_merge_size", maximum=4096)
    width = vision_hidden_size * merge * merge
    return [
        *norm(f"{prefix}.norm", vision_hidden_size, component="vision"),
        *linear(f"{prefix}.patch_merger.merging_layer", vision_hidden_size, width, "vision"),
        *projector(
            prefix, vision_hidden_size * vision_feature_layers(config), hidden_size,
            bias=config.boolean("multimodal_projector_bias"),
        ),
    ]  # fmt: skip


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A Pixtral tower, a projector and a text model whose config has its own family.

    Source: transformers 5.24.0 models/mistral3/modeling_mistral3.py.
    """
    vision = config.sub("vision_config")
    text = build_text(config, prefix=f"{prefix}language_model.", tied=_tied(config))
    tower = vision_tower(vision, f"{prefix}vision_tower.")
    added = _projector(config, f"{prefix}multi_modal_projector", vision.integer("hidden_size"), text.hidden_size)
    return with_towers(config, text, [*tower, *added])
