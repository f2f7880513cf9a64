"""The docstring of a formula is data: every argument with its unit, what is returned, a source and an example."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import ModuleType

import pytest

from kvtax.formulas import activation, roofline, weights

FORMULAS = [
    function
    for module in (activation, roofline, weights)
    for _, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__ and not function.__name__.startswith("_")
]


@pytest.mark.parametrize("function", FORMULAS, ids=lambda function: function.__name__)
def test_docstring_is_whole(function: Callable[..., object]) -> None:
    text = inspect.getdoc(function) or ""
    first, _, rest = text.partition("\n\n")
    assert first.endswith((".", ":")) or "." in first
    assert rest.strip().splitlines()[0], "the second paragraph is the formula"
    assert "Returns:" in text
    assert re.search(r"^Source: \S", text, re.MULTILINE)
    described = dict(re.findall(r"^    (\w+): (.*)$", text[text.index("Args:") :], re.MULTILINE))
    parameters = [name for name in inspect.signature(function).parameters if name != "architecture"]
    assert [name for name in described if name in parameters] == parameters, "same arguments in the same order"
    for name in parameters:
        if name not in ("stage", "first", "last", "dtype", "expert_parallel"):
            assert re.search(r"\[[^\]]+\]\.?$", described[name]), f"{name} has no unit"


@pytest.mark.parametrize("module", [activation, roofline, weights], ids=lambda module: module.__name__)
def test_every_module_has_an_example(module: ModuleType) -> None:
    assert ">>>" in inspect.getsource(module)
