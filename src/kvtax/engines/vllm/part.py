"""A part of the memory: bytes, and the sum of products that they are."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.terms import Input, Term


class Part(NamedTuple):
    """A size, and the sum of products that it is."""

    name: str
    bytes: int
    formula: str
    inputs: dict[str, Input]
    source: str

    def term(self, name: str) -> Term:
        """The term of this part."""
        return Term(name, self.bytes, self.formula, self.inputs, self.source)
