"""How many tokens one image takes in the decoder: what each family's processor writes in its place.

A tower's patches and how they are merged are read from the inventory of tensors. The least and most pixels of an image stand in a
preprocessor_config.json, which is no part of a config.json: those of the families' published processors are taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.tensors import Tensor
from kvtax.errors import InputError

MOST_PIXELS = 65_536
"""The longest side that is answered for [pixels]."""
GEMMA3_TOKENS = 256
"""mm_tokens_per_image of every published Gemma 3."""
GEMMA4_TOKENS, GEMMA4_SIDE = 280, 48
"""Most tokens of an image, and the side of one: 3 x 3 patches of 16 pixels."""
LLAMA4_TILES = 16
INTERNVL_TILES = 12
GRID_PINPOINTS = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))
"""Heights and widths that LLaVA-NeXT's published processors resize to."""
IDEFICS3_TILES = 4
"""Tiles along the longest side of an image."""

Rule = Callable[[list[Tensor], int, int], int | None]


def image_tokens(architecture: Architecture, width: int, height: int) -> int | None:
    """Tokens that one image takes in the decoder; None where the family's rule is not known, or it has no vision tower.

    Args:
        architecture: of the model.
        width: of the image [pixels].
        height: of the image [pixels].

    Returns:
        Tokens.

    Raises:
        InputError: an image without pixels, or one that processors refuse (a side 200 times the other).

    Source: transformers 5.24.0 models/<family>/image_processing_<family>.py and processing_<family>.py (`_get_num_multimodal_tokens`);
    the processors' published preprocessor_config.json.
    """
    if not (1 <= width <= MOST_PIXELS and 1 <= height <= MOST_PIXELS):
        raise InputError(
            f"must have sides of 1 to {MOST_PIXELS} pixels, not {width} x {height}",
            code="invalid-quantity",
            where="image",
        )
    vision = [tensor for tensor in architecture.tensors if tensor.component == "vision" and tensor.loaded]
    rule = RULES.get(architecture.model_type)
    return rule(vision, width, height) if rule is not None and vision else None


def _find(vision: list[Tensor], *endings: str) -> Tensor | None:
    """The first tensor whose name ends so, with or without `.weight`."""
    for ending in endings:
        for tensor in vision:
            if tensor.name.removesuffix(".weight").endswith(ending):
                return tensor
    return None


# ---- Qwen: a grid of merged patches between two numbers of pixels ----


def _grid(least: int, most: int) -> Rule:
    """Sides rounded to whole merged patches, scaled where there are too few or too many pixels.

    Source: transformers 5.24.0 models/qwen2_vl/image_processing_qwen2_vl.py smart_resize; published: Qwen2-VL and Qwen2.5-VL 3,136 to
    12,845,056 pixels, Qwen3-VL 65,536 to 16,777,216.
    """

    def rule(vision: list[Tensor], width: int, height: int) -> int | None:
        patch = _find(vision, "patch_embed.proj")
        side = _merged_side(vision, patch)
        if patch is None or side is None:
            return None
        _check_ratio(width, height)
        rows, columns = round(height / side), round(width / side)
        if rows * columns * side * side > most:
            shrink = math.sqrt(height * width / most)
            rows, columns = (max(1, math.floor(length / shrink / side)) for length in (height, width))
        elif rows * columns * side * side < least:
            grow = math.sqrt(least / (height * width))
            rows, columns = (math.ceil(length * grow / side) for length in (height, width))
        return rows * columns

    return rule


def _merged_side(vision: list[Tensor], patch: Tensor | None) -> int | None:
    """Side of the square of patches that becomes one token: patch x merge [pixels]."""
    merger = _find(vision, "merger.mlp.0", "merger.linear_fc1")
    if patch is None or len(patch.shape) != 5 or merger is None:
        return None
    merge = math.isqrt(merger.shape[1] // patch.shape[0])
    return patch.shape[-1] * merge if merge else None


def _check_ratio(width: int, height: int) -> None:
    if max(width, height) > 200 * min(width, height):
        raise InputError(
            f"one side of {width} x {height} pixels is more than 200 times the other: the processor refuses it",
            code="invalid-quantity", where="image",
        )  # fmt: skip


def _glm4v(vision: list[Tensor], width: int, height: int) -> int | None:
    """As Qwen's, counted as two frames; an image smaller than a token grows first.

    Source: transformers 5.24.0 models/glm4v/image_processing_glm4v.py smart_resize: 12,544 to 9,633,792 pixels.
    """
    patch, down = _find(vision, "patch_embed.proj"), _find(vision, "downsample")
    if patch is None or down is None or len(patch.shape) != 5:
        return None
    frames, side = patch.shape[2], patch.shape[-1] * down.shape[-1]
    least, most = 112 * 112, 14 * 14 * 2 * 2 * 2 * 6144
    if min(width, height) < side:
        scale = max(side / height, side / width)
        width, height = int(width * scale), int(height * scale)
    _check_ratio(width, height)
    rows, columns = round(height / side), round(width / side)
    pixels = frames * rows * columns * side * side
    if pixels > most:
        shrink = math.sqrt(frames * height * width / most)
        rows, columns = (max(1, math.floor(length / shrink / side)) for length in (height, width))
    elif pixels < least:
        grow = math.sqrt(least / (frames * height * width))
        rows, columns = (math.ceil(length * grow / side) for length in (height, width))
    return rows * columns


# ---- one size whatever the image ----


def _gemma3(_vision: list[Tensor], _width: int, _height: int) -> int:
    return GEMMA3_TOKENS


def _patches(vision: list[Tensor]) -> int | None:
    """Patches of a tower of one size: rows of its table of positions, that of the class apart."""
    table = _find(vision, "position_embedding", "position_embeddings")
    if table is None or len(table.shape) < 2:
        return None
    rows = table.shape[-2]
    return rows - 1 if math.isqrt(rows) ** 2 != rows and math.isqrt(rows - 1) ** 2 == rows - 1 else rows


def _llava(vision: list[Tensor], width: int, height: int) -> int | None:
    """Every patch (576 for CLIP at 336 pixels); Pixtral's tower takes images as they are."""
    return _pixtral(vision, width, height) if _find(vision, "patch_conv") is not None else _patches(vision)


def _paligemma(vision: list[Tensor], _width: int, _height: int) -> int | None:
    return _patches(vision)


# ---- as large as the image is ----


def _pixtral(vision: list[Tensor], width: int, height: int) -> int | None:
    """Rows of merged patches and a break after each, the longest side at most 1,540 pixels (1,024 with patches of 16).

    Source: transformers 5.24.0 models/pixtral/image_processing_pixtral.py get_resize_output_image_size, processing_pixtral.py.
    """
    patch, merger = _find(vision, "patch_conv"), _find(vision, "patch_merger.merging_layer")
    if patch is None:
        return None
    longest = 1540 if patch.shape[-1] == 14 else 1024
    side = patch.shape[-1] * (math.isqrt(merger.shape[1] // patch.shape[0]) if merger is not None else 1)
    ratio = max(height / longest, width / longest)
    if ratio > 1:
        width, height = (max(1, math.floor(length / ratio)) for length in (width, height))
    rows, columns = ((length - 1) // side + 1 for length in (height, width))
    return rows * (columns + 1)


def _gemma4(_vision: list[Tensor], width: int, height: int) -> int:
    """As many tokens of 48 x 48 pixels as fit in 280, at the image's own ratio.

    Source: transformers 5.24.0 models/gemma4/image_processing_gemma4.py get_aspect_ratio_preserving_size, max_soft_tokens 280.
    """
    factor = math.sqrt(GEMMA4_TOKENS * GEMMA4_SIDE * GEMMA4_SIDE / (height * width))
    rows, columns = (math.floor(factor * length / GEMMA4_SIDE) for length in (height, width))
    if rows == 0:
        rows, columns = 1, min(width // height, GEMMA4_TOKENS)
    elif columns == 0:
        rows, columns = min(height // width, GEMMA4_TOKENS), 1
    return rows * columns


# ---- tiles ----


def _internvl(vision: list[Tensor], width: int, height: int) -> int | None:
    """Tiles in the grid of the nearest ratio, and the whole image beside them where there is more than one.

    Among grids of one ratio the larger wins while the image has more than half its pixels.

    Source: transformers 5.24.0 models/got_ocr2/image_processing_got_ocr2.py get_optimal_tiled_canvas; max_patches 12.
    """
    patches, patch = _patches(vision), _find(vision, "patch_embeddings.projection", "patch_embedding")
    if patches is None or patch is None:
        return None
    tile = math.isqrt(patches) * patch.shape[-1]
    sides = range(1, INTERNVL_TILES + 1)
    grids = [(columns, rows) for columns in sides for rows in sides if columns * rows <= INTERNVL_TILES]
    best, difference = (1, 1), math.inf
    for columns, rows in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        other = abs(width / height - columns / rows)
        larger = other == difference and width * height > 0.5 * tile * tile * columns * rows
        if other < difference or larger:
            best, difference = (columns, rows), other
    tiles = best[0] * best[1]
    # four patches become one token
    return (tiles + 1 if tiles > 1 else 1) * (patches // 4)


def _idefics3(vision: list[Tensor], width: int, height: int) -> int | None:
    """Tiles of the tower's size, the longest side four of them, each with two tokens about it and a break a row, and the whole image.

    Source: transformers 5.24.0 models/idefics3/image_processing_idefics3.py get_number_of_image_patches, processing_idefics3.py.
    """
    patches, patch = _patches(vision), _find(vision, "patch_embedding")
    projection = _find(vision, "modality_projection.proj")
    if patches is None or patch is None or projection is None:
        return None
    tokens = patches * patch.shape[0] // projection.shape[1]
    tile = math.isqrt(patches) * patch.shape[-1]
    longest, ratio = IDEFICS3_TILES * tile, width / height
    if width >= height:
        wide, high = longest, int(longest / ratio)
        high += high % 2
    else:
        wide, high = int(longest * ratio), longest
        wide += wide % 2
    rows, columns = -(-max(high, 1) // tile), -(-max(wide, 1) // tile)
    return tokens + 3 + rows * (columns * (tokens + 2) + 1)


def _llama4(vision: list[Tensor], width: int, height: int) -> int | None:
    """Tiles of 144 tokens with separators in the grid that shrinks the image least, and the whole image where there is more than one.

    Source: transformers 5.24.0 models/llama4/image_processing_llama4.py find_supported_resolutions, get_best_fit; processing_llama4.py.
    """
    table = _find(vision, "positional_embedding_vlm")
    patch = _find(vision, "patch_embedding.linear")
    if table is None or patch is None:
        return None
    patches = table.shape[0] - 1
    tokens, tile = patches // 4, math.isqrt(patches) * math.isqrt(patch.shape[1] // 3)
    sides = range(1, LLAMA4_TILES + 1)
    scales = {
        (rows, columns): min(columns * tile / width, rows * tile / height)
        for rows in sides for columns in sides if rows * columns <= LLAMA4_TILES
    }  # fmt: skip
    enlarging = [scale for scale in scales.values() if scale >= 1]
    chosen = min(enlarging) if enlarging else max(scales.values())
    rows, columns = min((grid for grid, scale in scales.items() if scale == chosen), key=lambda grid: grid[0] * grid[1])
    separated = rows * columns * (tokens + 1) if rows * columns > 1 else 0
    # image_start, the whole image, its mark, image_end
    return 1 + separated + 1 + tokens + 1


def _llava_next(vision: list[Tensor], width: int, height: int) -> int | None:
    """The whole image, and its patches in the best of five resolutions without padding, with a newline a row.

    Source: transformers 5.24.0 models/llava_next/processing_llava_next.py, image_processing_llava_next.py; image_processing_utils.py
    select_best_resolution.
    """
    patches, patch = _patches(vision), _find(vision, "patch_embedding")
    if patches is None or patch is None:
        return None
    side = math.isqrt(patches)
    tile = side * patch.shape[-1]
    best_height, best_width = _best_resolution(width, height)
    rows, columns = side * (best_height // tile), side * (best_width // tile)
    if width / height > columns / rows:
        rows -= (rows - int(round(height * (columns / width), 7))) // 2 * 2
    else:
        columns -= (columns - int(round(width * (rows / height), 7))) // 2 * 2
    return patches + rows * columns + rows


def _best_resolution(width: int, height: int) -> tuple[int, int]:
    """The resolution that keeps most of the image, then the one that wastes least."""

    def worth(resolution: tuple[int, int]) -> tuple[int, int]:
        high, wide = resolution
        scale = min(wide / width, high / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return kept, kept - wide * high

    return max(GRID_PINPOINTS, key=worth)


_QWEN2, _QWEN3 = _grid(56 * 56, 12_845_056), _grid(256 * 256, 16_777_216)
RULES: dict[str, Rule] = {
    "qwen2_vl": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), _QWEN3),
    **dict.fromkeys(("glm4v", "glm4v_moe"), _glm4v),
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "paligemma": _paligemma,
    "llava": _llava,
    "llava_next": _llava_next,
    "mistral3": _pixtral,
    "internvl": _internvl,
    "internvl_chat": _internvl,
    **dict.fromkeys(("idefics3", "smolvlm"), _idefics3),
    "llama4": _llama4,
}
"""Rules by model type; a family that is not here has one that is not known."""
