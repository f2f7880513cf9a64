"""Regular expressions of a config, matched in time that grows with the length of the name only.

A config may come from anywhere, so its patterns are not given to a backtracking matcher: they become an automaton whose states are
found as they are needed. What an automaton cannot do (back-references, look-around other than at the start) is refused.
"""

from __future__ import annotations

from collections.abc import Callable

MAXIMUM_LENGTH = 1024
MAXIMUM_STATES = 2048
_MAXIMUM_DEPTH = 40
_MAXIMUM_LOOKAHEADS = 8
_MAXIMUM_CACHE = 4096
_CLASSES: dict[str, Callable[[str], bool]] = {
    "d": str.isdigit,
    "w": lambda char: char.isalnum() or char == "_",
    "s": str.isspace,
}
_CONTROL = {"n": "\n", "t": "\t", "r": "\r"}


class PatternError(Exception):
    """A pattern that is not understood, or too large."""


class _Node:
    """A state: takes a character (`test`), or is left for `out` without one, at the start or end of the text where it says so."""

    __slots__ = ("number", "out", "test", "when")

    def __init__(self, number: int) -> None:
        self.number = number
        self.test: Callable[[str], bool] | None = None
        self.out: list[_Node] = []
        self.when = ""


class Pattern:
    """A regular expression that is looked for at the start of a text, as re.match does.

    Raises:
        PatternError: it is not understood, or too large.
    """

    def __init__(self, text: str, depth: int = 0) -> None:
        if depth > _MAXIMUM_LOOKAHEADS:
            raise PatternError("is nested too deeply")
        if len(text) > MAXIMUM_LENGTH:
            raise PatternError(f"is longer than {MAXIMUM_LENGTH} characters")
        self.text = text
        self.cost = 0  # steps that matching has taken so far
        self._at = 0
        self._nodes: list[_Node] = []
        self._fold = text.startswith("(?i)")
        if self._fold:
            self._at = 4
        self._wanted: list[tuple[bool, Pattern]] = []
        self._read_lookaheads(depth)
        start, end = self._alternatives(0)
        if self._at < len(text):
            raise PatternError("has an unbalanced parenthesis")
        self._goal = end.number
        self._start = start
        self._moves: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    # ---- reading ----

    def _peek(self) -> str:
        return self.text[self._at] if self._at < len(self.text) else ""

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise PatternError("ends too early")
        self._at += 1
        return char

    def _node(self) -> _Node:
        if len(self._nodes) >= MAXIMUM_STATES:
            raise PatternError("is too large")
        node = _Node(len(self._nodes))
        self._nodes.append(node)
        return node

    def _read_lookaheads(self, depth: int) -> None:
        while True:
            skip = 1 if self.text.startswith(("^(?!", "^(?="), self._at) else 0
            head = self.text[self._at + skip : self._at + skip + 3]
            if head not in ("(?!", "(?="):
                return
            start = at = self._at + skip + 3
            level = 1
            while level:
                if at >= len(self.text):
                    raise PatternError("has an unbalanced parenthesis")
                char = self.text[at]
                level += (char == "(") - (char == ")")
                at += 2 if char == "\\" else 1
            self._wanted.append((head == "(?=", Pattern(self.text[start : at - 1], depth + 1)))
            self._at = at

    def _alternatives(self, depth: int) -> tuple[_Node, _Node]:
        if depth > _MAXIMUM_DEPTH:
            raise PatternError("is nested too deeply")
        start, end = self._node(), self._node()
        while True:
            first, last = self._sequence(depth)
            start.out.append(first)
            last.out.append(end)
            if self._peek() != "|":
                return start, end
            self._at += 1

    def _sequence(self, depth: int) -> tuple[_Node, _Node]:
        start = end = self._node()
        while self._peek() not in ("", "|", ")"):
            begin = self._at
            piece = self._atom(depth)
            least, most = self._repeat()
            resume = self._at
            if (least, most) == (1, 1):
                end.out.append(piece[0])
                end = piece[1]
                continue
            for number in range(least if most is None else most):
                if number:
                    # another copy of the same piece, read again
                    self._at = begin
                    piece = self._atom(depth)
                end.out.append(piece[0])
                if number >= least:
                    skip = end
                    end = self._node()
                    skip.out.append(end)
                    piece[1].out.append(end)
                else:
                    end = piece[1]
            if most is None:
                if not least:
                    loop = self._node()
                    end.out.append(loop)
                    loop.out.append(piece[0])
                    piece[1].out.append(loop)
                    end = loop
                else:
                    end.out.append(piece[0])
            self._at = resume
        return start, end

    def _repeat(self) -> tuple[int, int | None]:
        char = self._peek()
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(char, (1, 1))
        if char in ("*", "+", "?") and char:
            self._at += 1
        elif char == "{":
            close = self.text.find("}", self._at)
            low, comma, high = self.text[self._at + 1 : max(close, self._at + 1)].partition(",")
            if close < 0 or not (low or comma) or not all(part.isdecimal() or not part for part in (low, high)):
                raise PatternError("has a brace that is no repetition")
            least = int(low or 0)
            most = (int(high) if high else None) if comma else least
            if least > 100 or (most or 0) > 100 or (most is not None and most < least):
                raise PatternError("has a repetition that is too large")
            self._at = close + 1
        else:
            return 1, 1
        if self._peek() and self._peek() in "?+":
            self._at += 1
        if self._peek() and self._peek() in "*{":
            raise PatternError("repeats a repetition")
        return least, most

    def _atom(self, depth: int) -> tuple[_Node, _Node]:
        char = self._next()
        if char == "(":
            if self._peek() == "?":
                self._at += 1
                if self.text.startswith("P<", self._at) and ">" in self.text[self._at :]:
                    self._at = self.text.index(">", self._at) + 1
                elif self._next() != ":":
                    raise PatternError("has a group that is not understood")
            piece = self._alternatives(depth + 1)
            if self._next() != ")":
                raise PatternError("has an unbalanced parenthesis")
            return piece
        start, end = self._node(), self._node()
        start.out.append(end)
        if char in "^$" or (char == "\\" and self._peek() in ("A", "Z")):
            start.when = "start" if char == "^" or (char == "\\" and self._next() == "A") else "end"
        elif char in "*+?{":
            raise PatternError("repeats nothing")
        else:
            start.test = self._test(char)
        return start, end

    def _test(self, char: str) -> Callable[[str], bool]:
        if char == ".":
            return lambda other: other != "\n"
        if char == "[":
            return self._char_class()
        if char == "\\":
            return self._escape()
        return self._same(char)

    def _same(self, char: str) -> Callable[[str], bool]:
        if self._fold:
            return lambda other: other.lower() == char.lower()
        return char.__eq__

    def _between(self, low: str, high: str) -> Callable[[str], bool]:
        if high == "\\" or high < low:
            raise PatternError(f"has the range {low}-{high}, which is not understood")
        if self._fold:
            return lambda other: low <= other.lower() <= high or low <= other.upper() <= high
        return lambda other: low <= other <= high

    def _escape(self) -> Callable[[str], bool]:
        char = self._next()
        if char.lower() in _CLASSES:
            known = _CLASSES[char.lower()]
            return known if char.islower() else (lambda other: not known(other))
        if char in _CONTROL:
            return self._same(_CONTROL[char])
        if char.isalnum():
            raise PatternError(f"has the escape \\{char}, which is not understood")
        return self._same(char)

    def _char_class(self) -> Callable[[str], bool]:
        negate = self._peek() == "^"
        self._at += negate
        tests: list[Callable[[str], bool]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            char = self._next()
            if char == "\\":
                tests.append(self._escape())
            elif self._peek() == "-" and self.text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                tests.append(self._between(char, self._next()))
            else:
                tests.append(self._same(char))
        self._at += 1
        return lambda other: any(test(other) for test in tests) != negate

    @property
    def size(self) -> int:
        """States."""
        return len(self._nodes) + sum(pattern.size for _, pattern in self._wanted)

    # ---- matching ----

    def _closure(self, numbers: frozenset[int], at_start: bool, at_end: bool) -> frozenset[int]:
        found = set(numbers)
        waiting = list(numbers)
        while waiting:
            node = self._nodes[waiting.pop()]
            if node.test is not None or (node.when == "start" and not at_start) or (node.when == "end" and not at_end):
                continue
            for other in node.out:
                if other.number not in found:
                    found.add(other.number)
                    waiting.append(other.number)
        return frozenset(found)

    def _move(self, states: frozenset[int], char: str) -> frozenset[int]:
        key = (states, char)
        reached = self._moves.get(key)
        if reached is None:
            taken = set()
            for number in states:
                node = self._nodes[number]
                if node.test is not None and node.test(char):
                    taken.add(node.out[0].number)
            reached = self._closure(frozenset(taken), False, False)
            self.cost += len(states) + len(reached)
            if len(self._moves) >= _MAXIMUM_CACHE:
                self._moves.clear()
            self._moves[key] = reached
        return reached

    def match(self, text: str) -> bool:
        """Whether the pattern matches at the start of the text."""
        for wanted, pattern in self._wanted:
            before = pattern.cost
            matched = pattern.match(text)
            self.cost += pattern.cost - before
            if matched is not wanted:
                return False
        states = self._closure(frozenset((self._start.number,)), True, not text)
        for char in text:
            if self._goal in states:
                return True
            if not states:
                return False
            states = self._move(states, char)
        return self._goal in states or self._goal in self._closure(states, not text, True)


def glob(text: str) -> Pattern:
    """A shell wildcard for a module or what lies below it, as a Pattern.

    Raises:
        PatternError: it is not understood, or too large.
    """
    found = []
    at = 0
    while at < len(text):
        char = text[at]
        close = text.find("]", at + 2) if char == "[" else -1
        if close > 0:
            inner = text[at + 1 : close].replace("\\", "\\\\")
            found.append("[" + ("^" + inner[1:] if inner.startswith("!") else inner) + "]")
            at = close
        else:
            found.append(
                ".*" if char == "*" else "." if char == "?" else char if char.isalnum() or char in "_" else "\\" + char
            )
        at += 1
    return Pattern("".join(found) + "(\\..*)?$")
