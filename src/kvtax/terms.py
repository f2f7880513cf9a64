"""A number that knows where it comes from."""

from __future__ import annotations

from typing import Any, NamedTuple


class Input(NamedTuple):
    """One quantity that went into a formula."""

    value: int | float | str
    unit: str
    origin: str
    """`config.json`, `flag`, `default of vllm 0.33`, `class default`, `measured`, `formula` ..."""


class Term(NamedTuple):
    """A number with its formula, what was put in, and the source of the rule.

    `formula` is written in the names of `inputs`, as one would type it in Python, so that it can be evaluated with them.
    """

    name: str
    bytes: int | float
    formula: str
    inputs: dict[str, Input]
    source: str
    unit: str = "B"
    """`B` for bytes; figures counted in something else (`tokens`, `blocks`, `requests`) use the same fields."""

    def numbers(self) -> str:
        """The formula with the numbers put in: the second line of `--explain`."""
        text = self.formula
        for name in sorted(self.inputs, key=len, reverse=True):
            text = _replace_name(text, name, str(self.inputs[name].value))
        return text

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "name": self.name,
            "bytes": self.bytes,
            "formula": self.formula,
            "inputs": {k: {"value": v.value, "unit": v.unit, "origin": v.origin} for k, v in self.inputs.items()},
            "source": self.source,
        }


class Notice(NamedTuple):
    """Something the reader should know: an assumption, a default that was used, a limit of the answer."""

    code: str
    message: str
    hint: str = ""

    def to_dict(self) -> dict[str, str]:
        """The JSON form."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


def _replace_name(text: str, name: str, value: str) -> str:
    import re

    return re.sub(rf"\b{re.escape(name)}\b", value, text)
