"""Charts: what they show is what the budgets say, and the terminal drawing at several widths and with little."""

import copy
import os
import pathlib
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chart_cases import hostile_charts, make_cases
from kvtax.budgets import Budget
from kvtax.views.budget_charts import SEGMENTS, concurrency_chart, kv_growth_chart, memory_chart
from kvtax.views.chart_layout import Span, bars_span, place_ticks, spread, y_span
from kvtax.views.chart_text import chart_text, heat_grid
from kvtax.views.charts import BYTES, COUNT, REQUESTS, TOKENS, Axis, Curve, Curves, MapCell, heat_shares
from kvtax.views.page import Page
from kvtax.views.page_csv import grid_csv
from kvtax.views.page_text import Style, page_text

FOLDER = pathlib.Path(__file__).parent.parent / "snapshots" / "charts"
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def cases():
    return make_cases()


# ---- the figures ----


def test_curves_hold_the_concurrency_that_the_budget_prints(cases):
    chart = concurrency_chart(cases.small)
    assert [curve.name for curve in chart.curves] == [name for name, _ in cases.small]
    for curve, (_, budget) in zip(chart.curves, cases.small, strict=True):
        assert dict(zip(chart.at, curve.values, strict=True))[budget.max_model_len] == budget.max_concurrency


def test_a_card_that_carries_nothing_is_named_below(cases):
    chart = concurrency_chart(cases.large)
    assert {curve.name for curve in chart.curves} == {"a100-80", "h100-sxm", "h200", "b200"}
    assert chart.remarks == ("carries no request of any length: l4, rtx-4090",)
    assert concurrency_chart(cases.large[:2]) is None


def test_segments_are_the_parts_of_the_budget_and_fill_the_card(cases):
    for bar, (_, budget) in zip(memory_chart(cases.large).bars, cases.large, strict=True):
        for segment in bar.segments:
            assert segment.value == budget.per_gpu[f"{segment.key}_bytes"]
        taken = sum(segment.value for segment in bar.segments)
        if budget.kv_pool_bytes >= 0 and budget.unallocated_bytes >= 0:
            assert taken == bar.whole == budget.per_gpu["total_bytes"]
        else:
            assert taken == sum(budget.per_gpu[f"{key}_bytes"] for key in SEGMENTS[:4])


def test_growth_is_what_a_request_holds(cases):
    budget = cases.small[0][1]
    chart = kv_growth_chart(budget)
    assert chart.curves[0].values[-1] == budget.live_bytes_per_request
    assert [curve.name for curve in cases.charts[2].curves] == ["held", "set aside"]


def test_a_request_that_keeps_nothing_has_no_growth(cases):
    prepared = copy.copy(cases.small[0][1].prepared)
    prepared.request_bytes = lambda tokens: 0
    assert kv_growth_chart(Budget(prepared, 8192, None)) is None


# ---- the layout ----


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_spread_keeps_order_gap_and_bounds(places):
    moved = spread(places, 0.1, 0.0, 1.0)
    order = sorted(range(len(places)), key=lambda number: (places[number], number))
    for before, after in pairwise(order):
        assert moved[after] - moved[before] >= 0.1 - 1e-9
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in moved)


@given(
    st.sampled_from([BYTES, TOKENS, REQUESTS, COUNT]),
    st.booleans(),
    st.floats(1, 1e12),
    st.floats(1.0001, 1e6),
    st.integers(1, 9),
)
def test_ticks_are_few_rising_and_inside(quantity, logarithmic, low, factor, most):
    span = Span(Axis("", quantity, logarithmic=logarithmic), low, low * factor)
    ticks = span.ticks(most)
    assert ticks == sorted(set(ticks))
    assert all(span.low <= tick <= span.high for tick in ticks)
    assert len(ticks) <= most + 1
    assert all(0 <= span.share(tick) <= 1 for tick in ticks)


def test_a_flat_curve_and_an_empty_one_have_a_place():
    flat = Curves("", Axis("", TOKENS), Axis("", REQUESTS, logarithmic=True), (1, 2), (Curve("", (4.0, 4.0)),))
    assert y_span(flat).share(4.0) == 0.5
    empty = flat._replace(curves=(Curve("", (None, 0.0)),))
    assert 0 < y_span(empty).low < y_span(empty).high
    assert chart_text(empty, Style(80)) == ""


def test_the_last_place_always_has_a_label(cases):
    for gap in (0.01, 0.2, 0.9):
        assert place_ticks(cases.charts[0], gap)[-1] == cases.charts[0].at[-1]


def test_bars_reach_as_far_as_the_longest(cases):
    chart = memory_chart(cases.large)
    assert bars_span(chart).high == max(
        max(bar.whole, sum(segment.value for segment in bar.segments)) for bar in chart.bars
    )


def test_heat_goes_by_ratio_and_leaves_out_what_is_not_there():
    cells = [[MapCell("", 2.0), MapCell("", 8.0), MapCell("", None), MapCell("", 0.0), MapCell("", 4.0)]]
    assert heat_shares(cells) == [[0.0, 1.0, None, 0.0, 0.5]]
    assert heat_shares([[MapCell("", 3.0)]]) == [[1.0]]
    assert heat_shares([[MapCell("", None), MapCell("", 0.0)]]) == [[None, 0.0]]


# ---- the terminal ----

LOOKS = {
    "80": Style(80),
    "120": Style(120),
    "60": Style(60),
    "ascii-80": Style(80, unicode=False),
    "colour-80": Style(80, colour=True),
}


@pytest.mark.parametrize("name", LOOKS)
def test_snapshot(cases, name):
    text = chart_text(cases.charts, LOOKS[name])
    path = FOLDER / f"{name}.txt"
    if os.environ.get("KVTAX_UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_asked(cases, width, unicode):
    for chart in cases.charts[:3]:
        for line in chart_text(chart, Style(width, unicode=unicode)).splitlines():
            assert len(line) <= width


def test_colour_adds_nothing_but_colour(cases):
    for chart in cases.charts[:3]:
        plain = chart_text(chart, Style(100))
        assert ANSI.sub("", chart_text(chart, Style(100, colour=True))) == plain
        assert "\x1b" not in plain


def test_ascii_is_ascii_and_curves_differ_without_colour(cases):
    text = chart_text(cases.charts[0], Style(100, unicode=False))
    assert text.isascii()
    for mark, name in zip("*o+x#@", ("l4", "rtx-4090", "a100-80", "h100-sxm", "h200", "b200"), strict=True):
        assert f"{mark} {name} " in text
    assert all(f"{mark} {name}" in chart_text(cases.charts[0], Style(100)) for mark, name in [("\u25cf", "l4")])


def test_many_curves_have_letters(cases):
    curves = tuple(Curve(f"choice {number}", (9.0 + number, 1.0 + number)) for number in range(12))
    chart = cases.charts[0]._replace(at=(1024, 2048), curves=curves)
    text = chart_text(chart, Style(100))
    for letter, curve in zip("abcdefghijkl", curves, strict=True):
        assert f"{letter} {curve.name} " in text


def test_a_curve_that_ends_says_where(cases):
    curves = (Curve("one", (4.0, 2.0, None)), Curve("other", (8.0, 4.0, 2.0)))
    chart = cases.charts[0]._replace(at=(1024, 2048, 4096), curves=curves)
    assert "one 2.00 at 2k" in chart_text(chart, Style(100))


def test_a_line_too_narrow_has_no_drawing(cases):
    assert chart_text(cases.charts[0], Style(24)) == ""
    assert page_text(Page("", cases.charts[:2]), Style(100, drawings=False)) == ""


def test_tints_stand_for_numbers_and_shades_for_tints(cases):
    grid = heat_grid(cases.charts[3], "map")
    coloured = page_text(Page("", (grid,)), Style(100, colour=True))
    assert "48;5;227m" in coloured and "48;5;54m" in coloured
    assert "\u2588" not in coloured
    plain = page_text(Page("", (grid,)), Style(100))
    assert "143.8 \u2588" in plain and "\x1b" not in plain
    assert page_text(Page("", (grid,)), Style(100, unicode=False)).isascii()
    assert str(cases.small[-1][1].max_concurrency) in grid_csv(grid)


@given(st.sampled_from(["\x1b[31mred", "a\nb", "\u202eevil", "\ud800", "x" * 5000, "$x$", "<b>"]))
@settings(deadline=None)
def test_no_control_character_leaves_the_drawing(text):
    for chart in hostile_charts(text):
        for style in (Style(100), Style(100, unicode=False)):
            assert all(letter == "\n" or letter.isprintable() for letter in chart_text(chart, style))
        assert "\x1b[31mred" not in chart_text(chart, Style(100, colour=True))
