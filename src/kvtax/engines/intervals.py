"""How far the pools of real servers lie from the prediction, by engine and kind of case.

The figures stand in configs/engines/*.json, and `python tests/evidence.py --write` computes them from the starts of tests/data/evidence.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any, NamedTuple

from kvtax.sources.data_files import configs_dir, read_json


class Margin(NamedTuple):
    """The ends of a 90 % interval as shares of the card's memory, and the real starts they rest on."""

    low: float
    high: float
    starts: int
    sources: int
    kind: str


UNKNOWN = Margin(-0.10, 0.05, 0, 0, "no real start of this engine is known")
"""For an engine without any evidence: the 5 % and 95 % ends over all kinds of vLLM starts on discrete cards, rounded outwards."""
EXACT = Margin(0.0, 0.0, 0, 0, "allocated as asked")


@cache
def engine_record(engine: str) -> dict[str, Any]:
    """What is known of an engine's errors; empty where nothing is."""
    path = os.path.join(configs_dir(), "engines", engine + ".json")
    found = read_json(path) if os.path.exists(path) else {}
    return found if isinstance(found, dict) else {}


def margin(engine: str, kind: str) -> Margin:
    """The margin of a kind of case; of all starts of the engine where the kind has too few of its own.

    Args:
        engine: its name.
        kind: as `Plan.kind` says.
    """
    kinds = engine_record(engine).get("kinds", {})
    found = kinds.get(kind)
    if found is None and "all" not in kinds:
        return UNKNOWN._replace(kind=kind)
    entry = found or kinds["all"]
    starts, sources = (entry["starts"], entry["sources"]) if found else (0, 0)
    return Margin(entry["low"], entry["high"], starts, sources, kind)
