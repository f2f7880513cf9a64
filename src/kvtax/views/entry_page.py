"""An entry that was added, as a page and JSON."""

from __future__ import annotations

from typing import Any

from kvtax.sources.catalogue_entry import Added
from kvtax.sources.resolve import Model
from kvtax.units import format_bytes, format_parameters
from kvtax.views.page import Fact, Facts, Page

SCHEMA = "kvtax.model-entry/1"


def entry_page(added: Added, model: Model, commit: str) -> Page:
    """What was added.

    Args:
        added: the files.
        model: that was read.
        commit: of its repository, '' for none.
    """
    architecture = model.architecture
    size = architecture.checkpoint_bytes or architecture.weight_bytes()
    facts = (
        Fact("name", "name", added.name, added.name),
        Fact("aliases", "also called", ", ".join(added.aliases), ";".join(added.aliases)),
        Fact("architecture", "architecture", architecture.name, architecture.name),
        Fact("parameters", "parameters", format_parameters(architecture.parameters), architecture.parameters),
        Fact("weight_bytes", "weights", f"{format_bytes(size)} ({model.weights_source})", size),
        Fact("weights_source", "", "", model.weights_source),
        Fact("source", "read from", model.source, model.source),
        Fact("commit", "commit", commit, commit or None),
        Fact("catalogue_file", "entry in", added.catalogue, added.catalogue),
        Fact("facts_file", "facts in", added.facts, added.facts),
    )
    return Page("", (Facts("entry", "Replaced" if added.replaced else "Added", facts),), model.notices)


def entry_to_dict(added: Added, model: Model, commit: str) -> dict[str, Any]:
    """The same as `kvtax.model-entry/1`."""
    from kvtax.budget_result import catalogue_stamp

    architecture = model.architecture
    return {
        "schema": SCHEMA,
        **catalogue_stamp(),
        "name": added.name,
        "aliases": list(added.aliases),
        "replaced": added.replaced,
        "catalogue_file": added.catalogue,
        "facts_file": added.facts,
        "source": model.source,
        "commit": commit or None,
        "weights_source": model.weights_source,
        "architecture": architecture.name,
        "parameters": architecture.parameters,
        "weight_bytes": architecture.weight_bytes(),
        "checkpoint_bytes": architecture.checkpoint_bytes,
        "notices": [notice.to_dict() for notice in model.notices],
    }
