"""The file that --plot names: checked before the work, written whole or not at all.

with open_outlet(values) as outlet, open_plot(values) as plot:
...
plot.write(lambda: charts)                      # before the text: what goes wrong is said instead of it
outlet.write(text)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvtax.cli.exits import UsageError
from kvtax.errors import InputError

if TYPE_CHECKING:
    from kvtax.views.charts import AnyChart
    from kvtax.whole_file import WholeFile


class PlotOutlet:
    """A file for charts, or none.

    Args:
        path: of the file; None where no plot is asked for.

    Raises:
        InputError: its format is not known, it cannot be written, or the extra is not installed.
    """

    def __init__(self, path: str | None) -> None:
        self._shown = path or ""
        self._form = ""
        self._file: WholeFile | None = None
        if path is not None:
            from kvtax.views.plot_files import check_extra, plot_format
            from kvtax.whole_file import WholeFile

            self._form = plot_format(path)
            check_extra()
            self._file = WholeFile(path)

    @property
    def is_asked(self) -> bool:
        """Whether there is anything to write."""
        return self._file is not None

    def write(self, charts: Callable[[], Sequence[AnyChart]]) -> None:
        """Draw the charts, where a plot is asked for.

        Args:
            charts: makes them.

        Raises:
            InputError: there are none, or the file cannot be written.
        """
        if self._file is None:
            return
        from kvtax.views.plot_files import plot_bytes

        found = charts()
        if not found:
            raise InputError("there is nothing to plot", code="nothing-to-plot", where=self._shown[:200])
        self._file.write(plot_bytes(found, self._form))

    def close(self) -> None:
        """Leave nothing half-written behind."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> PlotOutlet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_plot(values: Mapping[str, Any]) -> PlotOutlet:
    """The file that --plot names.

    Raises:
        UsageError: it is the file of --output too.
        InputError: as for PlotOutlet.
    """
    path = values.get("plot")
    if path is not None and path == values.get("output"):
        raise UsageError("--plot and --output name the same file", hint="give each its own")
    return PlotOutlet(path)
