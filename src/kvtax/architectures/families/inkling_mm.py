"""Inkling and Inkling 2 with their towers: a pyramid of linear layers or a vision transformer, and a table of mel bins."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import attention, plain_mlp
from kvtax.architectures.registry import build as build_any
from kvtax.architectures.tensors import Tensor, linear, norm, prefixed
from kvtax.architectures.towers import hidden_and_heads, with_towers

_VISION = "model.visual"
_MAXIMUM_PATCH = 4096
# time, height, width and channels of a grid of features
Scale = tuple[int, int, int, int]


def build(config: Config, *, prefix: str = "") -> Architecture:
    """The text model of its own type, and the towers of its generation.

    Source: transformers 5.24.0 models/inkling/modeling_inkling.py, models/inkling2/modeling_inkling2.py (checkpoint
    names: conversion_mapping.py).
    """
    second = config.model_type == "inkling2"
    text = config.sub("text_config").retyped("inkling2_text" if second else "inkling_text")
    architecture = build_any(text, prefix=prefix)
    hidden = architecture.hidden_size
    vision = config.sub("vision_config")
    if second:
        if vision.integer("text_hidden_size") != hidden:
            vision.fail("text_hidden_size", f"is not the hidden_size {hidden} of the text model")
        added = _transformer(vision, hidden)
    else:
        added = [*_pyramid(vision, hidden), *_mel_table(config.sub("audio_config"), hidden)]
    return with_towers(config, architecture, prefixed(added, prefix))


def _mel_table(config: Config, hidden: int) -> list[Tensor]:
    """A row for each value of each mel bin, and a norm."""
    rows = config.integer("n_mel_bins", "num_codebooks") * config.integer("mel_vocab_size", "codebook_size")
    return [
        Tensor("model.audio.encoder.weight", (rows, hidden), "audio"),
        *norm("model.audio.final_norm", hidden, component="audio"),
    ]


def _pyramid(config: Config, hidden: int) -> list[Tensor]:
    """Linear layers that fold a patch into ever fewer and wider features, each but the last with a norm behind it."""
    count = config.integer("num_hidden_layers", "n_layers", maximum=MAXIMUM_LAYERS)
    found: list[Tensor] = []
    scales = _planned_scales(config, count)
    for index, (start, end) in enumerate(pairwise(scales)):
        last = index == count - 1
        folded = start[3] * math.prod(high // low for low, high in zip(start[:3], end[:3], strict=True))
        width, module = (hidden if last else end[3]), f"{_VISION}.layers"
        if folded < 1:
            config.unsupported("n_layers", f"{count} layers do not fold a patch of this size step by step")
        found += linear(f"{module}.linear_*", width, folded, "vision", (index,))
        if not last:
            found += norm(f"{module}.norm_*", width, (index,), component="vision")
    return [*found, *norm(f"{_VISION}.final_norm", hidden, component="vision")]


def _prime_factors(number: int) -> list[int]:
    """Prime factors, the smallest first."""
    found, factor = [], 2
    while factor * factor <= number:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return [*found, number] if number > 1 else found


def _planned_scales(config: Config, count: int) -> list[Scale]:
    """The grids that `count` layers lead through: those whose sizes come closest to equal ratios, each used once if possible."""
    frames = config.integer("temporal_patch_size", maximum=64)
    patch = config.integer("patch_size", minimum=2, maximum=_MAXIMUM_PATCH)
    channels = config.integer("num_channels", maximum=64)
    if frames < 2:
        config.unsupported("temporal_patch_size", "patches of one frame are not understood")
    scales: list[Scale] = [(1, 1, 1, channels)]
    side = time = 1
    for factor in reversed(_prime_factors(patch)):
        side *= factor
        scales.append((1, side, side, -(-side * side * channels // 64) * 64))
    for factor in reversed(_prime_factors(frames)):
        time *= factor
        scales.append((time, side, side, side * side * channels * time * 64))
    sizes = [math.log(time * height * width) for time, height, width, _ in scales]
    step = math.log(patch * patch * frames * channels) / count
    wanted = [index * step for index in range(count + 1)]
    chosen = [_nearest(aim, sizes) for aim in wanted] if count >= len(scales) else _assigned(wanted, sizes)
    chosen[0], chosen[-1] = 0, len(scales) - 1
    return [scales[index] for index in chosen]


def _nearest(aim: float, sizes: list[float]) -> int:
    """The smaller of two that are equally near, whatever the last digit says."""
    return min(range(len(sizes)), key=lambda index: round(abs(sizes[index] - aim), 5))


def _assigned(wanted: list[float], sizes: list[float]) -> list[int]:
    """One size for each wanted value, none twice, in order, with the least sum of distances."""
    free = len(sizes) - len(wanted)
    best: list[tuple[float, list[int]]] = [(0.0, [])] * (free + 1)
    for index, aim in enumerate(wanted):
        row: list[tuple[float, list[int]]] = []
        for skipped in range(free + 1):
            cost, path = best[skipped]
            here = (cost + abs(sizes[index + skipped] - aim), [*path, index + skipped])
            row.append(here if not row or here[0] < row[-1][0] else row[-1])
        best = row
    return best[free][1]


def _transformer(config: Config, hidden: int) -> list[Tensor]:
    """Linear patches, a grid of positions, pre-norm layers with layer scales, and two linear layers to the text model."""
    width, heads = hidden_and_heads(config)
    inner = config.optional_integer("intermediate_size")
    if inner is None:
        inner = int(width * _ratio(config))
    channels, patch = (config.integer(key, maximum=_MAXIMUM_PATCH) for key in ("num_channels", "patch_size"))
    grid = config.integer("posemb_grid_size", maximum=_MAXIMUM_PATCH)
    merge = config.integer("spatial_merge_size", maximum=1024)
    middle, bias = config.integer("projection_hidden_dim"), config.boolean("projector_bias")
    layers = tuple(range(config.integer("num_hidden_layers")))
    model = f"{_VISION}.backbone"
    layer = f"{model}.layers.*"
    facts: dict[str, Any] = {"component": "vision"}
    return [
        Tensor(f"{model}.embeddings.class_embedding", (width,), "vision"),
        Tensor(f"{model}.embeddings.cls_position_embedding", (width,), "vision"),
        *linear(f"{model}.embeddings.patch_embedding", width, channels * patch * patch, "vision"),
        Tensor(f"{model}.embeddings.position_embedding", (grid * grid, width), "vision"),
        *norm(f"{model}.ln_pre", width, bias=True, **facts),
        *attention(
            f"{layer}.self_attn", layers, width, heads, heads, width // heads, qkv_bias=True, o_bias=True,
            names=("q_proj", "k_proj", "v_proj", "out_proj"), **facts,
        ),
        *plain_mlp(f"{layer}.mlp", layers, width, inner, bias=True, names=("c_fc", "c_proj"), **facts),
        *norm(f"{layer}.ln_1", width, layers, bias=True, **facts),
        *norm(f"{layer}.ln_2", width, layers, bias=True, **facts),
        Tensor(f"{layer}.ls_1.gamma", (width,), "vision", layers),
        Tensor(f"{layer}.ls_2.gamma", (width,), "vision", layers),
        *linear(f"{_VISION}.proj_in", middle, merge * merge * width, "vision", bias=bias),
        *linear(f"{_VISION}.proj_out", hidden, middle, "vision", bias=bias),
    ]  # fmt: skip


def _ratio(config: Config) -> float:
    ratio = config.number("mlp_ratio")
    if not 0 < ratio <= 1024:
        config.fail("mlp_ratio", f"must be between 0 and 1024, not {ratio}")
    return ratio
