"""`kvtax --version`."""

from __future__ import annotations

import sys

from kvtax.version import __version__


def show_version(as_json: bool) -> int:
    """Print the version; with the date of the catalogue in JSON."""
    if as_json:
        from kvtax.sources.models import catalogue_date
        from kvtax.views.json_text import json_text

        sys.stdout.write(json_text({"schema": "kvtax.version/1", "kvtax": __version__, "catalogue": catalogue_date()}))
    else:
        sys.stdout.write(f"kvtax {__version__}\n")
    return 0
