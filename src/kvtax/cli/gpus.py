"""`kvtax gpus`: the cards of the catalogue, with the memory that engines see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvtax.cli.exits import Exit, say
from kvtax.cli.options import CATALOGUE, FLAG, Argument, Command, Option
from kvtax.cli.outlet import choose_look, open_outlet
from kvtax.cli.pages import PAGE_FORMATS, PAGE_OPTIONS, drawn, nothing_found
from kvtax.cli.words import read_catalogue

if TYPE_CHECKING:
    from kvtax.hardware.gpu import Gpu


def run(values: Mapping[str, Any]) -> int:
    """Answer one command line.

    Args:
        values: by option name.

    Returns:
        The exit code: 0, also where nothing is found.
    """
    query = " ".join(values.get("query") or ())
    with open_outlet(values) as outlet:
        look = choose_look(values, outlet, PAGE_FORMATS)
        _, extra = read_catalogue(values)
        found = _search(query, bool(values.get("mig")), extra)
        names = [] if found else _closest(query, extra)
        from kvtax.views import gpus_page as view

        text = drawn(
            look,
            lambda: view.gpus_page(found, prices=bool(values.get("prices"))),
            lambda: view.gpus_to_dict(query, found, names),
            view.gpus_csv(found) if look.format == "csv" else None,
        )
        outlet.write(text)
    if not found and not values.get("quiet"):
        say(nothing_found("GPU", query, names))
    return Exit.OK


def _search(query: str, mig: bool, extra: Sequence[Gpu]) -> list[Gpu]:
    """A user's own cards first, then those of the catalogue that have every word; whatever else one name means, too."""
    from kvtax.errors import KvtaxError
    from kvtax.sources.gpus import find_gpu, search_gpus

    words = query.lower().split()
    found = [gpu for gpu in extra if all(word in " ".join((gpu.id, gpu.name, *gpu.aliases)).lower() for word in words)]
    found += search_gpus(f"{query} mig" if mig else query)
    if not found and query:
        try:
            found = [find_gpu(query, extra)]
        except KvtaxError:
            found = []
    return found


def _closest(query: str, extra: Sequence[Gpu]) -> list[str]:
    from kvtax.planning.summaries import closest
    from kvtax.sources.gpus import list_gpus

    cards = [gpu for gpu in (*extra, *list_gpus()) if gpu.parent is None]
    return closest(query, [(spelling, gpu.id) for gpu in cards for spelling in (gpu.name, *gpu.aliases, gpu.id)])


COMMAND = Command(
    "gpus",
    "The cards that kvtax knows: memory as CUDA or HIP reports it (less than the nominal size), bandwidth, and what they compute.\n\n"
    "A few results show where each figure comes from; figures that are estimated are marked.",
    (
        Argument(
            "query",
            "WORD",
            "What to search for: h100, mi300x, apple, rtx 4090, h100 1g.10gb. Left out: every card.",
            many=True,
        ),
    ),
    (
        Option("mig", ("--mig",), "List the MIG slices of each card too.", "Search", FLAG),
        Option("prices", ("--prices",), "Show examples of prices (JSON always has them).", "Search", FLAG),
        CATALOGUE,
        *PAGE_OPTIONS,
    ),
    (
        ("every variant of the H100, with its sources", "kvtax gpus h100"),
        ("the slices that an A100 can be cut into", "kvtax gpus a100-80gb-sxm --mig"),
        ("the whole list for a program", "kvtax gpus --json"),
    ),
    run,
)
