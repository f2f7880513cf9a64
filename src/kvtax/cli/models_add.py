"""`kvtax models add`: an entry of one's own from any source."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvtax.cli.exits import Exit, UsageError, say
from kvtax.cli.network import settle_network
from kvtax.cli.options import FLAG, MANY, OFFLINE, Option
from kvtax.cli.outlet import choose_look, open_outlet
from kvtax.cli.pages import PAGE_FORMATS, drawn
from kvtax.cli.words import read_stdin_model

if TYPE_CHECKING:
    from kvtax.sources.found import Found

ADD = "add"
ADD_OPTIONS = (
    Option("entry_name", ("--name",), "Of the entry [the model's own].", "Adding"),
    Option("alias", ("--alias",), "Another name of the entry; may be repeated.", "Adding", MANY),
    Option("replace", ("--replace",), "Where the entry is there: write its facts anew.", "Adding", FLAG),
    OFFLINE._replace(group="Adding"),
)


def adds(words: Sequence[str]) -> bool:
    """Whether the words of `kvtax models` ask for an entry."""
    return bool(words) and words[0] == ADD


def refuse_add_options(values: Mapping[str, Any]) -> None:
    """Refuse what only `add` takes.

    Raises:
        UsageError: one of its options is given.
    """
    given = [option.flags[0] for option in ADD_OPTIONS if values.get(option.name)]
    if given:
        raise UsageError(
            f"{given[0]} goes with kvtax models add MODEL", hint="kvtax models --help shows how it is used"
        )


def run_add(values: Mapping[str, Any]) -> int:
    """Read a model and write the entry.

    Args:
        values: by option name.

    Returns:
        The exit code: 0; what goes wrong is an error with its own.
    """
    words = values["query"]
    if len(words) != 2 or values.get("families"):
        raise UsageError("add takes one model", hint="kvtax models add org/name --alias mine")
    with open_outlet(values) as outlet:
        look = choose_look(values, outlet, PAGE_FORMATS)
        settle_network(values)
        name, found = _read(words[1], values)
        from kvtax.sources.catalogue_entry import add_entry
        from kvtax.sources.found_model import model_of
        from kvtax.sources.user_catalogue import FILE_NAME, find_kvtax_toml

        model = model_of(found)
        path = os.path.abspath(os.path.expanduser(values.get("catalogue") or FILE_NAME))
        hidden = None if values.get("catalogue") else find_kvtax_toml(os.path.dirname(path))
        added = add_entry(path, name, values.get("alias") or (), found, replace=bool(values.get("replace")))
        if not values.get("quiet"):
            _talk(added, hidden)
        from kvtax.views import entry_page as view

        outlet.write(
            drawn(
                look,
                lambda: view.entry_page(added, model, found.commit),
                lambda: view.entry_to_dict(added, model, found.commit),
            )
        )
    return Exit.OK


def _read(word: str, values: Mapping[str, Any]) -> tuple[str, Found]:
    """What the entry is called, and what was found of the model."""
    given = values.get("entry_name")
    if word != "-":
        from kvtax.sources.find_facts import find_facts, short_name

        found = find_facts(word)
        return short_name(word, found) if given is None else given, found
    name = next(iter(values.get("alias") or ()), None) if given is None else given
    if name is None:
        raise UsageError("a config on standard input has no name", hint="give it one: --name acme/private-7b")
    from kvtax.sources.found import Found

    config, notices = read_stdin_model()
    return name, Found("(stdin)", "the config on standard input", config, notices=tuple(notices))


def _in_catalogue(name: str) -> str:
    """The model of the shipped catalogue that a name means, '' for none."""
    from kvtax.errors import KvtaxError
    from kvtax.sources.models import find_model

    try:
        return find_model(name).id
    except KvtaxError:
        return ""


def _talk(added: Any, hidden: str | None) -> None:
    """Say what was written."""
    if added.replaced:
        say(f"wrote {added.facts}: the facts of {added.name} anew")
        return
    say(f"wrote {added.facts}, and [[model]] {added.name} in {added.catalogue}")
    for known in (added.name, *added.aliases):
        shadowed = _in_catalogue(known)
        if shadowed and added.name.lower() != shadowed.lower():
            say(f"note: {known} was the shipped {shadowed}; it is your own entry from now on")
    if hidden is not None and hidden != added.catalogue:
        say(f"note: in this folder it now stands in place of {hidden}")
    from kvtax.sources.local import looks_like_path

    if looks_like_path(added.name):
        say(f"note: in this folder {added.name} is read as the path that is here")
