"""Plots as files: three formats, the same bytes each time, nothing from outside, no text taken for anything else."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import matplotlib as mpl
import pytest

from chart_cases import hostile_charts, make_cases
from kvtax.errors import InputError
from kvtax.views import plot_files
from kvtax.views.chart_svg import chart_svg
from kvtax.views.notebook import Chart, chart_budgets
from kvtax.views.page import Page
from kvtax.views.page_html import page_fragment_html, page_html
from kvtax.views.plot_files import FORMATS, plot_bytes, plot_format, write_plot

WORST = '<script>alert(1)</script> $\\frac{1}{2}$ & "q" \n\x1b[31mred \u202e id="x" #0072b2 </svg>'


@pytest.fixture(scope="module")
def cases():
    return make_cases()


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.links, self.text = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "xlink:href", "src", "action") or name.startswith("on"):
                self.links.append(value)

    def handle_data(self, data):
        self.text += data


# ---- the same bytes ----


@pytest.mark.parametrize("form", FORMATS)
def test_two_runs_write_the_same_bytes(cases, form):
    script = (
        "import sys; from chart_cases import make_cases; from kvtax.views.plot_files import plot_bytes\n"
        "sys.stdout.buffer.write(plot_bytes(make_cases().charts, sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(__file__)), "PYTHONHASHSEED": "7"}
    other = subprocess.run([sys.executable, "-c", script, form], capture_output=True, check=True, env=environment)
    assert other.stdout == plot_bytes(cases.charts, form)
    assert plot_bytes(cases.charts, form) == plot_bytes(cases.charts, form)


def test_nobodys_settings_count_and_ours_are_not_left_behind(cases):
    before = plot_bytes(cases.charts[0], "svg")
    mpl.rcParams["font.size"] = 31.0
    try:
        assert plot_bytes(cases.charts[0], "svg") == before
        assert mpl.rcParams["font.size"] == 31.0
    finally:
        mpl.rcParams["font.size"] = mpl.rcParamsDefault["font.size"]
    assert mpl.rcParams["text.parse_math"] is True


def test_nothing_says_when_it_was_drawn(cases):
    for form in FORMATS:
        data = plot_bytes(cases.charts[:1], form)
        assert b"dc:date" not in data and b"Software" not in data and b"matplotlib.org" not in data


# ---- the formats ----


def test_a_png_is_one(cases):
    assert plot_bytes(cases.charts, "png").startswith(b"\x89PNG\r\n")


def test_an_svg_has_its_texts_as_text_and_names_its_source(cases):
    root = ElementTree.fromstring(plot_bytes(cases.charts, "svg"))  # noqa: S314
    words = "".join(root.itertext())
    assert "h100-sxm 55.46" in words and "context [tokens]" in words and plot_files.source_line() in words


def test_a_page_loads_nothing_and_runs_nothing(cases):
    found = Elements(plot_bytes(cases.charts, "html").decode())
    assert not {"script", "link", "img", "iframe", "a", "object"} & set(found.tags)
    assert all(link.startswith("#") for link in found.links)
    assert found.tags.count("svg") == 2 * len(cases.charts)
    assert plot_files.source_line() in found.text
    names = set(found.ids)
    assert {link[1:] for link in found.links} <= names
    assert len(names) == len(found.ids)


def test_a_page_follows_the_readers_ground(cases):
    text = plot_bytes(cases.charts, "html").decode()
    assert "prefers-color-scheme:dark" in text and "stroke: var(--k0)" in text


# ---- texts that are not ours ----


@pytest.mark.parametrize("form", FORMATS)
def test_texts_stay_texts(form):
    data = plot_bytes(hostile_charts(WORST), form)
    if form == "png":
        return
    text = data.decode()
    assert "<script" not in text and "\x1b" not in text and "\u202e" not in text
    assert "$\\frac{1}{2}$" in text
    found = Elements(text)
    assert "<script>alert(1)</script>" in found.text
    assert 'id="x" #0072b2' in found.text


def test_letters_that_the_font_lacks_are_no_error():
    for form in FORMATS:
        assert plot_bytes(hostile_charts("\u6a21\u578b \U0001f600"), form)


@pytest.mark.parametrize("text", [WORST, "$x", "a\nb", "x" * 5000])
def test_drawings_of_pages_hold_only_elements_of_ours(text):
    ours = set(Elements(page_html(Page("t", hostile_charts("plain")))).tags)
    page = page_html(Page(text, hostile_charts(text)))
    assert set(Elements(page).tags) <= ours
    assert not {"script", "img", "a", "link"} & ours
    assert all(letter == "\n" or letter.isprintable() for letter in page)
    for chart in hostile_charts(text):
        ElementTree.fromstring(chart_svg(chart, alone=True))  # noqa: S314


# ---- files ----


def test_the_end_of_the_name_says_the_format():
    assert [plot_format(path) for path in ("a.svg", "b.PNG", "c/d.e.html")] == ["svg", "png", "html"]
    for path in ("a.pdf", "a", ".", "a.svg/", "-"):
        with pytest.raises(InputError) as raised:
            plot_format(path)
        assert raised.value.code == "plot-format" and ".svg" in raised.value.hint


def test_a_file_is_written_whole_or_not_at_all(cases, tmp_path, monkeypatch):
    path = tmp_path / "a.svg"
    write_plot(cases.charts[0], str(path))
    assert path.read_bytes() == plot_bytes(cases.charts[0], "svg")

    def broken(*_):
        raise RuntimeError("no")

    monkeypatch.setattr(plot_files, "plot_bytes", broken)
    with pytest.raises(RuntimeError):
        write_plot(cases.charts[1], str(path))
    assert [each.name for each in tmp_path.iterdir()] == ["a.svg"]
    assert path.read_bytes().startswith(b"<?xml")
    with pytest.raises(InputError):
        write_plot(cases.charts[0], str(tmp_path / "none" / "a.svg"))


def test_without_the_extra_it_says_how_to_get_it(cases, tmp_path, monkeypatch):
    monkeypatch.setattr(plot_files, "find_extra", lambda: False)
    with pytest.raises(InputError) as raised:
        write_plot(cases.charts[0], str(tmp_path / "a.svg"))
    assert raised.value.code == "plot-extra-missing" and "pip install 'kvtax[plot]'" in raised.value.hint
    assert not list(tmp_path.iterdir())


# ---- notebooks ----


def test_a_chart_shows_itself_and_is_saved(cases, tmp_path):
    chart = Chart(*cases.charts)
    assert chart._repr_html_() == page_fragment_html(Page("", cases.charts))
    ElementTree.fromstring(chart._repr_svg_())  # noqa: S314
    assert "h200 111.2" in str(chart) and repr(chart).startswith("<Chart meta-llama")
    chart.save(str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_budgets_by_name_by_card_or_alone(cases):
    budget = cases.small[0][1]
    assert [bar.name for bar in chart_budgets(budget).charts[0].bars] == ["l4"]
    assert [bar.name for bar in chart_budgets([budget, cases.small[3][1]]).charts[0].bars] == ["l4", "h100-sxm"]
    assert [bar.name for bar in chart_budgets({"now": budget, "then": budget}).charts[0].bars] == ["now", "then"]


def test_drawings_in_pages_are_the_same_each_time(cases):
    assert page_html(Page("t", cases.charts)) == page_html(Page("t", cases.charts))
    assert "id=" not in chart_svg(cases.charts)
