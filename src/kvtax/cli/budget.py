"""`kvtax budget`: where the memory of a GPU goes, and how many requests fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvtax.cli.engine_options import ENGINE_OPTIONS
from kvtax.cli.exits import Exit, UsageError, say, say_error, worst
from kvtax.cli.network import settle_network
from kvtax.cli.options import (
    CARD_OPTIONS,
    CATALOGUE,
    CHART,
    EXPLAIN,
    FORMAT_OPTIONS,
    LOAD_OPTIONS,
    MODEL_OPTIONS,
    OFFLINE,
    PLOT,
    STRICT,
    Argument,
    Command,
    deployment_fields,
)
from kvtax.cli.outlet import Look, choose_look, open_outlet
from kvtax.cli.plots import open_plot
from kvtax.cli.words import read_catalogue, read_model, size_notices
from kvtax.errors import KvtaxError

if TYPE_CHECKING:
    from kvtax.budgets import Budget
    from kvtax.hardware.gpu import Gpu
    from kvtax.sources.models import ModelEntry
    from kvtax.views.cards import Answer

FORMATS = ("table", "plain", "json", "markdown", "csv", "html")


def run(values: Mapping[str, Any]) -> int:
    """Answer one command line.

    Args:
        values: by option name.

    Returns:
        The exit code: 0 fits, 1 does not; of several cards the worst, of the common cards 0 where one fits.
    """
    with open_outlet(values) as outlet, open_plot(values) as plot:
        look = choose_look(values, outlet, FORMATS)
        if values.get("chart") and look.format not in ("table", "html"):
            raise UsageError(f"--chart does not go with {look.format}", hint="table and html take it; --plot FILE any")
        if values.get("explain") and look.format == "csv":
            raise UsageError("--explain does not go with csv", hint="table, plain, json, markdown and html take it")
        models, gpus = read_catalogue(values)
        settle_network(values)
        fields = deployment_fields(values)
        notices = [*size_notices(values, COMMAND.options), *read_model(fields, values)]
        cards, common = _cards(values)
        answers = [_answer(card, fields, notices, models, gpus) for card in cards]
        _raise_shared(answers)
        if len(answers) == 1:
            text = _one(answers[0][1], look, bool(values.get("explain")), models, gpus)
        else:
            text = _several(answers, look, bool(values.get("explain")))
        plot.write(lambda: _charts(answers))
        if values.get("chart"):
            text = _with_charts(text, _charts(answers), look)
        outlet.write(text)
    if not values.get("quiet"):
        _talk(answers, look)
        if common and values.get("tensor_parallel_size") is None and not any(_fits(answer) for _, answer in answers):
            say("hint: no card is enough alone: split the model with --tp 2, 4 or 8")
    return _exit_code(answers, common=common, strict=bool(values.get("strict")), quiet=bool(values.get("quiet")))


def _cards(values: Mapping[str, Any]) -> tuple[list[str | None], bool]:
    """The cards to answer for, and whether they are the common ones since none was named."""
    named = list(dict.fromkeys(values.get("gpu") or ()))
    if named:
        return named, False
    if values.get("vram") is not None:
        return [None], False
    from kvtax.planning.levers import COMMON_CARDS

    return list(COMMON_CARDS), True


def _answer(
    card: str | None,
    fields: Mapping[str, Any],
    notices: Sequence[Any],
    models: Sequence[ModelEntry],
    gpus: Sequence[Gpu],
) -> Answer:
    from kvtax.budgets import budget

    try:
        found = budget(models=models, gpus=gpus, **{**fields, "gpu": card})
    except KvtaxError as error:
        return card or "", error
    found.extra_notices = tuple(notices)
    return card or "", found


def _raise_shared(answers: Sequence[Answer]) -> None:
    """Raise what went wrong for every card alike: then it is not about a card."""
    errors = [answer for _, answer in answers if isinstance(answer, KvtaxError)]
    if len(errors) < len(answers) or len({(error.code, str(error)) for error in errors}) > 1:
        return
    raise errors[0]


def _one(
    answer: Budget | KvtaxError, look: Look, explained: bool, models: Sequence[ModelEntry], gpus: Sequence[Gpu]
) -> str:
    if isinstance(answer, KvtaxError):
        raise answer
    if look.format == "json":
        from kvtax.views.json_text import json_text

        document = answer.to_dict()
        if explained:
            document["figures"] = [figure.to_dict() for figure in answer.figures]
        return json_text(document)
    if look.format == "csv":
        from kvtax.views.csv_form import csv_rows

        return csv_rows([("", answer)])
    from kvtax.views.sheet import make_sheet

    found: tuple[Any, ...] = ()
    if not answer.fits:
        from kvtax.planning.levers import levers

        found = levers(answer, models=models, gpus=gpus)
    return _drawn(make_sheet(answer, found), look, answer.explain() if explained else "")


def _drawn(sheet: Any, look: Look, explanation: str) -> str:
    if look.format == "markdown":
        from kvtax.views.markdown import markdown_text

        return markdown_text(sheet) + (
            f"\n```text\n{explanation.rstrip().replace('```', '')}\n```\n" if explanation else ""
        )
    if look.format == "html":
        from kvtax.views.html import html_page, sheet_to_html

        return html_page(sheet.title, sheet_to_html(sheet), explanation)
    if look.format == "plain":
        from kvtax.views.plain import plain_text

        text = plain_text(sheet)
    else:
        from kvtax.views.table import table_text

        text = table_text(sheet, width=look.width, colour=look.colour, unicode=look.unicode)
    return f"{text}\n{explanation}" if explanation else text


def _several(answers: Sequence[Answer], look: Look, explained: bool) -> str:
    from kvtax.views import cards

    if look.format == "json":
        from kvtax.views.json_text import json_text

        return json_text(cards.cards_to_dict(answers))
    if look.format == "csv":
        from kvtax.views.csv_form import csv_rows

        return csv_rows(answers)
    if explained:
        raise UsageError("--explain shows one card", hint="name one card, or use --json: it holds the terms of all")
    title, rows = cards.cards_title(answers), cards.card_rows(answers)
    if look.format == "markdown":
        from kvtax.views.markdown import markdown_cards

        return markdown_cards(title, rows)
    if look.format == "html":
        from kvtax.views.html import html_cards, html_page

        return html_page(title, html_cards(title, rows))
    if look.format == "plain":
        from kvtax.views.plain import plain_cards

        return plain_cards(title, rows)
    from kvtax.views.table import cards_text

    return cards_text(
        title, cards.cards_legend(answers), rows, width=look.width, colour=look.colour, unicode=look.unicode
    )


def _charts(answers: Sequence[Answer]) -> tuple[Any, ...]:
    """What --plot and --chart draw, of the cards that have an answer."""
    from kvtax.views.budget_charts import budget_charts

    named = [(answer.gpu.id, answer) for _, answer in answers if not isinstance(answer, KvtaxError)]
    return budget_charts(named) if named else ()


def _with_charts(text: str, charts: tuple[Any, ...], look: Look) -> str:
    """The answer with its charts below it."""
    from kvtax.views.page import Page

    if look.format == "html":
        from kvtax.views.page_html import page_fragment_html

        return text.replace("</body>", page_fragment_html(Page("", charts)) + "</body>")
    from kvtax.views.page_text import Style, page_text

    return f"{text}\n{page_text(Page('', charts), Style(look.width, look.colour, look.unicode))}"


def _talk(answers: Sequence[Answer], look: Look) -> None:
    """What a format has no room for goes to stderr: errors of single cards, and the notices of CSV."""
    if len(answers) == 1 and look.format != "csv":
        return
    from kvtax.views.cards import about_card

    said: set[Any] = set()
    for name, answer in answers:
        if isinstance(answer, KvtaxError):
            say_error(KvtaxError(about_card(name, answer), code=answer.code, hint=answer.hint))
        elif look.format == "csv":
            for notice in answer.notices:
                if notice not in said:
                    said.add(notice)
                    say(f"note: {notice.message} [{notice.code}]")


def _fits(answer: Budget | KvtaxError) -> bool:
    return not isinstance(answer, KvtaxError) and answer.fits


def _exit_code(answers: Sequence[Answer], *, common: bool, strict: bool, quiet: bool) -> int:
    budgets = [answer for _, answer in answers if not isinstance(answer, KvtaxError)]
    codes = [Exit.OK if budget.fits else Exit.DOES_NOT_FIT for budget in budgets]
    if common and Exit.OK in codes:
        codes = [Exit.OK]
    codes += [answer.exit_code for _, answer in answers if isinstance(answer, KvtaxError)]
    if strict:
        from kvtax.views.notices import INFORMATIVE

        assumed = sorted({notice.code for budget in budgets for notice in budget.notices} - INFORMATIVE)
        if assumed:
            if not quiet:
                say(f"strict: the answer rests on assumptions: {', '.join(assumed)}")
            codes.append(Exit.DOES_NOT_FIT)
    return worst(codes)


COMMAND = Command(
    name="budget",
    about="Where the memory of a GPU goes, and how many requests fit.\n\n"
    "With the engine's own arithmetic. Models of the catalogue and on this disk take no network; of others the hub is asked for configs "
    "and headers alone. Several cards, or none, give one line "
    "for each card.\n\n"
    "Exit code: 0 it fits, 1 it does not (or, with --strict, the answer rests on an assumption), 2 wrong usage or bad input, "
    "3 could not be found out. In sizes k and K are 1024.",
    arguments=(Argument("model_argument", "MODEL", "The same as --model."),),
    options=(
        *MODEL_OPTIONS,
        OFFLINE,
        *CARD_OPTIONS,
        *LOAD_OPTIONS,
        *ENGINE_OPTIONS,
        CATALOGUE,
        *FORMAT_OPTIONS[:3],
        PLOT,
        CHART,
        EXPLAIN,
        STRICT,
        *FORMAT_OPTIONS[3:],
    ),
    examples=(
        ("one model on one card", "kvtax budget -m llama-3-8b -g a100-80 --context 8k"),
        (
            "16 requests at once on four cards, and how each number comes about",
            "kvtax budget -m llama-3.1-70b -g h100-sxm --tp 4 --context 16k -n 16 --explain",
        ),
        ("a config of your own on the common cards, as CSV", "kvtax budget --format csv - < config.json"),
    ),
    run=run,
)
