"""Granite 4 Vision: a tower, small query transformers that shrink windows of patches for several layers, a Granite text model."""

from __future__ import annotations

import re

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config, describe
from kvtax.architectures.families.llama_like import LAYOUTS
from kvtax.architectures.layout import build_layout
from kvtax.architectures.multimodal import NESTED, nested
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, linear, norm, prefixed
from kvtax.architectures.towers import with_towers
from kvtax.architectures.towers_vit import any_vision_tower

_SPATIAL = 4  # corners that patches are taken from


def build(config: Config, *, prefix: str = "") -> Architecture:
    """One query transformer for each layer that gets image features, and four that take corners of the grid.

    Source: transformers 5.24.0 models/granite4_vision/modeling_granite4_vision.py, models/blip_2/modeling_blip_2.py.
    """
    text = config.sub("text_config").retyped("granite4_vision_text")
    text = text.retyped(tie_word_embeddings=config.boolean("tie_word_embeddings"))
    architecture = nested(build_layout(text, LAYOUTS["granite"]), prefix + NESTED)
    vision, hidden = config.sub("vision_config"), architecture.hidden_size
    fed = config.optional_list("deepstack_layer_map")
    if fed is None or len(fed) > 256:
        config.fail("deepstack_layer_map", "must be a list of at most 256 pairs of layers")
    width, sides = vision.integer("hidden_size"), _sides(config)
    former = config.sub("qformer_config").retyped(
        hidden_size=width, encoder_hidden_size=width, num_attention_heads=max(width // 64, 1)
    )
    added = [
        *any_vision_tower(vision, "model.vision_tower."),
        Tensor("model.image_newline", (hidden,), "vision"),
    ]
    for module, count in (("layerwise_projectors", len(fed)), ("spatial_projectors", _SPATIAL)):
        for index in range(count):
            added += _projector(former, f"model.{module}.{index}", width, hidden, sides)
    return with_towers(config, architecture, prefixed(added, prefix))


def _sides(config: Config) -> tuple[int, int]:
    """Sides of the square of queries and of the window of patches that it stands for: `4/8`."""
    rate = config.string("downsample_rate")
    found = re.fullmatch(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})", rate)
    if found is None:
        config.fail("downsample_rate", f"must be two numbers such as 4/8, not {describe(rate)}")
    return int(found.group(1)), int(found.group(2))


def _projector(config: Config, name: str, width: int, hidden: int, sides: tuple[int, int]) -> list[Tensor]:
    """A norm, queries, positions of a window, the query transformer, and a way into the text model."""
    layers = tuple(range(config.integer("num_hidden_layers")))
    inner, step = config.integer("intermediate_size"), config.integer("cross_attention_frequency", maximum=4096)
    if config.boolean("use_qformer_text_input"):
        config.unsupported("use_qformer_text_input", "text in the query transformer is not understood")
    if width % config.integer("num_attention_heads"):
        config.fail("hidden_size", f"the heads of the query transformer do not divide the tower's width {width}")
    layer = f"{name}.qformer.encoder.layer.*"
    return [
        Tensor(f"{name}.query", (1, sides[0] ** 2, width), "vision"),
        Tensor(f"{name}.image_positions", (1, sides[1] ** 2, width), "vision"),
        *norm(f"{name}.norm", width, bias=True, component="vision"),
        *linear(f"{name}.out_linear", hidden, width, "vision", bias=True),
        *norm(f"{name}.qformer.layernorm", width, bias=True, component="vision"),
        *linear(f"{layer}.intermediate_query.dense", inner, width, "vision", layers, bias=True, shard=COLUMN),
        *linear(f"{layer}.output_query.dense", width, inner, "vision", layers, bias=True, shard=ROW),
        *norm(f"{layer}.output_query.LayerNorm", width, layers, bias=True, component="vision"),
        *_attention(f"{layer}.attention", width, layers),
        *_attention(f"{layer}.crossattention", width, layers[::step]),
    ]


def _attention(name: str, width: int, layers: tuple[int, ...]) -> list[Tensor]:
    """Query, key and value, an output projection and a norm."""
    found: list[Tensor] = []
    for part in ("query", "key", "value"):
        found += linear(f"{name}.attention.{part}", width, width, "vision", layers, bias=True, shard=COLUMN)
    found += linear(f"{name}.output.dense", width, width, "vision", layers, bias=True, shard=ROW)
    return [*found, *norm(f"{name}.output.LayerNorm", width, layers, bias=True, component="vision")]
