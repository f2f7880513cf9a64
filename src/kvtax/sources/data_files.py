"""Where the data lie: inside the package when installed, at the top of the repository in an editable install."""

from __future__ import annotations

import json
import os
from typing import Any

from kvtax.errors import SourceError

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def configs_dir() -> str:
    """The folder that holds `models/` and `gpus/`.

    Raises:
        SourceError: the installation has no data.
    """
    for folder in (
        os.path.join(_PACKAGE, "configs"),
        os.path.join(os.path.dirname(os.path.dirname(_PACKAGE)), "configs"),
    ):
        if os.path.isdir(os.path.join(folder, "gpus")):
            return folder
    raise SourceError(
        "the catalogue of models and GPUs is missing from this installation",
        code="no-catalogue",
        hint="install kvtax again",
    )


def read_json(path: str) -> Any:
    """A JSON file of the catalogue.

    Raises:
        SourceError: the file is not there or cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())
    except (OSError, ValueError) as error:
        raise SourceError(
            f"a file of the catalogue cannot be read: {error}",
            code="no-catalogue",
            hint="install kvtax again",
            where=path,
        ) from error
