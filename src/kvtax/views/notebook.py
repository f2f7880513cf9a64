"""Charts in a notebook: shown where they stand, saved as a file for documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kvtax.views.charts import AnyChart

if TYPE_CHECKING:
    from kvtax.budgets import Budget


class Chart:
    """One or several charts, below each other.

    Args:
        charts: curves, bars or heat maps.
    """

    def __init__(self, *charts: AnyChart) -> None:
        self.charts = charts

    def save(self, path: str) -> None:
        """Write them to a file, whole or not at all; takes the extra `plot`.

        Args:
            path: of the file: its end says the format, .svg, .png or .html.

        Raises:
            InputError: the format is not known, the file cannot be written, or the extra is not installed.
        """
        from kvtax.views.plot_files import write_plot

        write_plot(self.charts, path)

    def _repr_html_(self) -> str:
        from kvtax.views.page import Page
        from kvtax.views.page_html import page_fragment_html

        return page_fragment_html(Page("", self.charts))

    def _repr_svg_(self) -> str:
        from kvtax.views.chart_svg import chart_svg

        return chart_svg(self.charts, alone=True)

    def __str__(self) -> str:
        """As text, for a terminal."""
        from kvtax.views.chart_text import chart_text
        from kvtax.views.page_text import Style

        return chart_text(self.charts, Style())

    def __repr__(self) -> str:
        """One line: the titles."""
        return f"<Chart {'; '.join(chart.title for chart in self.charts)}>"


def chart_budgets(budgets: Budget | Sequence[Budget] | Mapping[str, Budget]) -> Chart:
    """Where the memory of each budget goes, and how its concurrency falls with context.

    Args:
        budgets: one, several (named by their GPU), or several by name.
    """
    from kvtax.budget_result import Budget
    from kvtax.views.budget_charts import budget_charts

    if isinstance(budgets, Mapping):
        return Chart(*budget_charts(list(budgets.items())))
    several = [budgets] if isinstance(budgets, Budget) else budgets
    return Chart(*budget_charts([(budget.gpu.id, budget) for budget in several]))
