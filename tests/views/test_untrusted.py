"""Names from files and command lines reach no terminal, table or page as anything but text."""

import copy
import csv
import io
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvtax
from kvtax.budgets import Budget
from kvtax.errors import InputError
from kvtax.planning.levers import levers
from kvtax.safe_text import safe
from kvtax.terms import Notice
from kvtax.views import cards, csv_form, explain, html, markdown, plain, sheet, table
from kvtax.views.json_text import json_text
from kvtax.views.safe import csv_text

WORST = [
    "\x1b[31mred\x1b[0m", "\x1b]8;;http://evil\x07link\x1b]8;;\x07", "a\r\nb", "\x9b2J", "\x7f", "\u202eevil", "\u200b", "\ufeff", "\ud800", "[bold]x[/bold]",
    "x[/]", ":smile:", "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "a|b", "`x`", "<img src=x onerror=alert(1)>", "</td><script>x</script>", "@everyone", "a\u2028b",
    '"><b>', "![x](http://evil)", "x" * 5000,
]  # fmt: skip
TEXT = st.one_of(st.sampled_from(WORST), st.text(st.characters(), max_size=40))
BASE = kvtax.budget(model="gpt-oss-20b", gpu="l4", max_model_len=8192)
LEVERS = levers(BASE)


def hostile(text: str) -> Budget:
    prepared = copy.copy(BASE.prepared)
    prepared.model = prepared.model._replace(id=text, source=text)
    prepared.gpu = prepared.gpu._replace(id=text, name=text)
    prepared.architecture = copy.copy(prepared.architecture)
    prepared.architecture.name = text
    budget = Budget(prepared, 8192, None)
    budget.extra_notices = (Notice(text, text, text),)
    return budget


def rendered(text: str) -> dict[str, str]:
    budget = hostile(text)
    shown = sheet.make_sheet(budget, LEVERS)
    answers = [(text, budget), (text, InputError(text, code="x", hint=text))]
    title, rows = cards.cards_title(answers), cards.card_rows(answers)
    return {
        "table": table.table_text(shown, width=80, colour=False),
        "cards": table.cards_text(title, cards.cards_legend(answers), rows, width=100, colour=False),
        "plain": plain.plain_text(shown) + plain.plain_cards(title, rows),
        "markdown": markdown.markdown_text(shown),
        "markdown cards": markdown.markdown_cards(title, rows),
        "csv": csv_form.csv_rows(answers),
        "html": html.html_page(
            title, html.sheet_to_html(shown) + html.html_cards(title, rows), explain.explain(budget)
        ),
        "explain": explain.explain(budget),
        "json": json_text(budget.to_dict()) + json_text(cards.cards_to_dict(answers)),
    }


@given(TEXT)
@settings(max_examples=60, deadline=None)
def test_no_control_character_leaves_any_renderer(text):
    for name, out in rendered(text).items():
        for letter in out:
            assert letter == "\n" or letter.isprintable() or (name.startswith("markdown") and letter == "\u2060"), (
                name,
                letter,
            )


@given(TEXT)
@settings(max_examples=60, deadline=None)
def test_json_is_ascii_and_comes_back(text):
    out = json_text(hostile(text).to_dict())
    assert out.isascii()
    assert json.loads(out)["gpu"]["name"] == text


@given(TEXT)
@settings(max_examples=60, deadline=None)
def test_no_csv_cell_is_a_formula(text):
    for row in list(csv.reader(io.StringIO(rendered(text)["csv"])))[1:]:
        assert all(cell[:1] not in ("=", "+", "@", "\t", "\r") for cell in row)
        assert all(cell[:1] != "-" or re.fullmatch(r"-\d+(\.\d+)?(e[+-]\d+)?", cell) for cell in row)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = set()

    def handle_starttag(self, tag, attrs):
        self.found.add(tag)
        self.found.update(name for name, _ in attrs)


@given(TEXT)
@settings(max_examples=60, deadline=None)
def test_html_holds_only_tags_of_ours(text):
    ours = Tags()
    ours.feed(rendered("plain name")["html"])
    tags = Tags()
    tags.feed(rendered(text)["html"])
    assert tags.found <= ours.found
    assert not tags.found & {"script", "img", "a", "src", "href", "onerror", "link", "iframe"}


@given(TEXT)
@settings(max_examples=60, deadline=None)
def test_markdown_rows_keep_their_columns(text):
    for out in (rendered(text)["markdown"], rendered(text)["markdown cards"]):
        for block in re.findall(r"(?:^\|.*\n)+", out, flags=re.MULTILINE):
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


def test_markup_of_rich_stays_text():
    assert "[bold]x[/bold]" in rendered("[bold]x[/bold]")["table"]
    assert ":smile:" in rendered(":smile:")["table"]


@pytest.mark.parametrize(
    ("text", "shown"), [("a\x1bb", r"a\x1bb"), ("\u202e", r"\u202e"), ("é", "é"), ("\U000e0001", r"\U000e0001")]
)
def test_safe(text, shown):
    assert safe(text) == shown


def test_safe_is_bounded():
    assert len(safe("x" * 10_000)) == 256
    assert csv_text("=1") == "'=1"
