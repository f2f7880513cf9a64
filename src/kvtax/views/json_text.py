"""Any document as JSON text that can be printed anywhere."""

from __future__ import annotations

import json
from typing import Any


def json_text(document: Any) -> str:
    """Indented JSON in plain ASCII, with a line end; DEL, which JSON lets through, is escaped too."""
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False).replace("\x7f", "\\u007f") + "\n"
