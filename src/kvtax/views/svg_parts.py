"""The parts of a drawing in SVG: texts, lines, points; each text is escaped here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvtax.views.safe import html

_SENTENCE = 0.66
"""Width of a letter in a bold sentence: above the mean of common sans-serif fonts [share of the font size]."""
_WIDTHS = {**dict.fromkeys("ijlI.,:;|!' ()[]-/", 0.4), **dict.fromkeys("mwMW@%", 1.0)}
_LETTER, _CAPITAL, _SQUARE = 0.65, 0.76, 1.0
_GAP = 8


def text_width(text: str, size: int = 13) -> float:
    """An upper estimate of the width of a text [CSS pixels].

    Args:
        text: one line.
        size: of the font [CSS pixels].
    """
    return sum(_WIDTHS.get(letter) or _other_width(letter) for letter in text) * size


def _other_width(letter: str) -> float:
    if letter >= "\u2e80":  # East Asian scripts: as wide as high
        return _SQUARE
    return _CAPITAL if letter.isupper() else _LETTER


def cut(text: str, width: float, size: int = 13) -> str:
    """A text that is no wider than it may be, its end left out.

    >>> cut("a long name", 40, 10)
    'a l...'
    """
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "...", size) > width:
        text = text[:-1]
    return text.rstrip() + "..."


def number(value: float) -> str:
    """A coordinate: two digits are finer than a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


class Svg:
    """A drawing that grows downwards.

    Args:
        width: of the whole [CSS pixels].
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.y = 0.0
        self._parts: list[str] = []

    @property
    def height(self) -> int:
        """Of the whole [CSS pixels]."""
        return int(self.y) + _GAP

    @property
    def text(self) -> str:
        """All elements."""
        return "".join(self._parts)

    def put(self, text: str, x: float, y: float, classes: str = "") -> None:
        """One line of text."""
        named = f' class="{classes}"' if classes else ""
        self._parts.append(f'<text x="{number(x)}" y="{number(y)}"{named}>{html(text)}</text>')

    def put_on(self, text: str, x: float, y: float, colour: str) -> None:
        """One line of text in the middle of a box, in a colour of its own."""
        place = f'x="{number(x)}" y="{number(y)}"'
        self._parts.append(f'<text {place} class="m" style="fill:{colour}">{html(text)}</text>')

    def slanted(self, text: str, x: float, y: float, classes: str) -> None:
        """One line of text that rises to the right from a place."""
        place = f"translate({number(x)},{number(y)}) rotate(-40)"
        self._parts.append(f'<text transform="{place}" class="{classes}">{html(text)}</text>')

    def words(self, text: str, classes: str, size: int) -> None:
        """Lines of text over the whole width, below all that is there."""
        from kvtax.views.page_text import fold

        if text:
            for line in fold(text, int(self.width / (_SENTENCE * size))):
                self.y += size * 1.45
                self.put(line, 0, self.y, classes)

    def line(self, x1: float, y1: float, x2: float, y2: float, classes: str) -> None:
        """A straight line."""
        places = zip(("x1", "y1", "x2", "y2"), (x1, y1, x2, y2), strict=True)
        said = " ".join(f'{name}="{number(value)}"' for name, value in places)
        self._parts.append(f'<line {said} class="{classes}"/>')

    def path(self, points: Iterable[tuple[float, float]], colour: str, classes: str) -> None:
        """A line through points."""
        said = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self._parts.append(f'<polyline points="{said}" class="{classes}" style="stroke:{colour}"/>')

    def box(self, x: float, y: float, width: float, height: float, colour: str, said: str = "") -> None:
        """A filled box, with what it says when it is pointed at."""
        title = f"<title>{html(said)}</title>" if said else ""
        place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        self._parts.append(f'<rect {place} style="fill:{colour}">{title}</rect>')

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """A box that is not filled."""
        place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        self._parts.append(f'<rect {place} class="a"/>')

    def mark(self, kind: str, x: float, y: float, colour: str, said: str = "") -> None:
        """A point of a curve, with what it says when it is pointed at."""
        title = f"<title>{html(said)}</title>" if said else ""
        if kind in ("circle", "ring"):
            fill = "fill:none;stroke-width:2;stroke" if kind == "ring" else "fill"
            self._parts.append(
                f'<circle cx="{number(x)}" cy="{number(y)}" r="4" style="{fill}:{colour}">{title}</circle>'
            )
            return
        corners = " ".join(f"{number(x + across)},{number(y + down)}" for across, down in _CORNERS[kind])
        self._parts.append(f'<polygon points="{corners}" style="fill:{colour}">{title}</polygon>')


_CORNERS: dict[str, Sequence[tuple[float, float]]] = {
    "square": ((-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)),
    "triangle": ((0, -4.6), (4.6, 3.8), (-4.6, 3.8)),
    "diamond": ((0, -5), (5, 0), (0, 5), (-5, 0)),
    "cross": (
        (-1.5, -5), (1.5, -5), (1.5, -1.5), (5, -1.5), (5, 1.5), (1.5, 1.5),
        (1.5, 5), (-1.5, 5), (-1.5, 1.5), (-5, 1.5), (-5, -1.5), (-1.5, -1.5),
    ),
}  # fmt: skip
