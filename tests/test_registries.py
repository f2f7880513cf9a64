"""Each registry has one place to add a thing, and no entry without a source."""

from __future__ import annotations

import ast
import json
from importlib import import_module
from pathlib import Path

import pytest

import kvtax
from kvtax.architectures import registry
from kvtax.sources.class_defaults import class_defaults
from kvtax.sources.data_files import configs_dir

SOURCE = Path(kvtax.__file__).parent
FAMILY_FILES = sorted(
    path.stem for path in (SOURCE / "architectures" / "families").glob("*.py") if path.stem != "__init__"
)


def test_every_family_file_is_registered() -> None:
    assert sorted(registry.FAMILIES) == FAMILY_FILES


def test_a_model_type_has_one_family() -> None:
    types = [model_type for types in registry.FAMILIES.values() for model_type in types]
    assert len(types) == len(set(types))


@pytest.mark.parametrize("family", FAMILY_FILES)
def test_every_family_names_its_source(family: str) -> None:
    module = import_module(f"kvtax.architectures.families.{family}")
    text = (module.__doc__ or "") + "".join(
        ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    )
    assert "Source:" in text
    assert callable(module.build)


def test_class_defaults_have_a_source_and_are_named_for_their_type() -> None:
    paths = sorted(Path(configs_dir(), "defaults").glob("*.json"))
    assert len(paths) > 500
    for path in paths:
        entry = json.loads(path.read_text(encoding="utf-8"))
        assert entry["model_type"] == path.stem
        assert entry["source"]
        assert isinstance(entry["defaults"], dict)


@pytest.mark.parametrize("name", ["../llama", "/etc/passwd", "a/b", "..", "", "x" * 200, "llama\x00", "LLAMA"])
def test_a_name_from_a_file_does_not_reach_the_file_system(name: str) -> None:
    assert class_defaults(name) is None


def test_exported_names_are_importable() -> None:
    for name in kvtax.__all__:
        assert getattr(kvtax, name) is not None


def test_files_and_functions_keep_their_size() -> None:
    """One subject a file, a function on a screen: 400 lines and 60 lines, docstrings apart."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = node.body[0]
                doc = (first.end_lineno or 0) - first.lineno + 1 if ast.get_docstring(node) is not None else 0
                assert (node.end_lineno or 0) - node.lineno + 1 - doc <= 60, f"{path}: {node.name}"
