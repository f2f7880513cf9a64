"""The colours of charts, told apart by people who see red and green alike, on light and on dark ground.

Source: the hues of Okabe and Ito (2008, Color Universal Design), darkened on light ground and lightened on dark ground so that a
line keeps a contrast of 3 to 1 (WCAG 2.2, 1.4.11); the tints of a heat map follow the order of lightness of viridis.
"""

from __future__ import annotations

from typing import NamedTuple


class Ground(NamedTuple):
    """One set of colours: background, text, lines of the axes, curves in order, and the parts of a bar."""

    background: str
    text: str
    faint: str
    grid: str
    curves: tuple[str, ...]
    segments: dict[str, str]


LIGHT = Ground(
    "#ffffff",
    "#1f2328",
    "#59636e",
    "#d9dee3",
    ("#0072b2", "#c04f00", "#00805c", "#a0337f", "#8a6a00", "#5b6570"),
    {
        "weights": "#0072b2",
        "activation": "#a0337f",
        "cuda_graph": "#d277b0",
        "runtime": "#8a6a00",
        "kv_pool": "#00966c",
        "unallocated": "#d0d7de",
    },
)
DARK = Ground(
    "#0d1117",
    "#e6edf3",
    "#9198a1",
    "#30363d",
    ("#56b4e9", "#ff9a4d", "#3fc79a", "#e58fc6", "#e3c04a", "#b3bbc4"),
    {
        "weights": "#56b4e9",
        "activation": "#e58fc6",
        "cuda_graph": "#f6d0e8",
        "runtime": "#e3c04a",
        "kv_pool": "#2fb083",
        "unallocated": "#3d444d",
    },
)
MARKERS = ("circle", "square", "triangle", "diamond", "cross", "ring")
"""Points of a curve, so that curves differ without colour; in the order of the curves."""
_TINTS = ((68, 1, 84), (59, 82, 139), (33, 144, 140), (93, 201, 99), (253, 231, 37))
TINT_NUMBERS = (54, 25, 30, 36, 113, 227)
"""The same tints among the 256 colours of a terminal."""
TINTS_UNDER_LIGHT_TEXT = 3
"""How many of them, from the first on, take light text."""


def tint(share: float) -> tuple[str, str]:
    """The colour of a cell of a heat map and that of the text on it.

    Args:
        share: from 0 (least) to 1 (greatest).

    >>> tint(0.0), tint(1.0)
    (('#440154', '#ffffff'), ('#fde725', '#000000'))
    """
    place = min(max(share, 0.0), 1.0) * (len(_TINTS) - 1)
    number = min(int(place), len(_TINTS) - 2)
    part = place - number
    rgb = [round(low + (high - low) * part) for low, high in zip(_TINTS[number], _TINTS[number + 1], strict=True)]
    return "#" + "".join(f"{each:02x}" for each in rgb), "#ffffff" if _lightness(rgb) < 0.179 else "#000000"


def _lightness(rgb: list[int]) -> float:
    """Relative luminance: 0.179 is where black and white text have the same contrast (WCAG 2.2)."""
    parts = [each / 255 for each in rgb]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
