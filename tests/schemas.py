"""JSON documents held against the schemas that are shipped."""

from __future__ import annotations

import json
import pathlib

import jsonschema
from referencing import Registry, Resource

import kvtax

FOLDER = pathlib.Path(kvtax.__file__).parent / "views" / "schemas"


def validate(document: object, name: str) -> None:
    """Raise where a document is not what its schema says."""
    found = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.schema.json")}
    registry: Registry = Registry().with_resources(
        [(key, Resource.from_contents(value)) for key, value in found.items()]
    )
    jsonschema.Draft202012Validator(found[f"{name}.schema.json"], registry=registry).validate(document)
