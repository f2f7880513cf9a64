"""Settings of every test: property tests have no deadline (machines differ), and CI always tries the same examples."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(request, monkeypatch, tmp_path_factory):
    """No test reads the caches, tokens and models of whoever runs it, and none reaches the network unless it says so."""
    home = tmp_path_factory.getbasetemp() / "home"
    for name in (
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "HF_ENDPOINT",
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "OLLAMA_MODELS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(home / "huggingface"))
    monkeypatch.setenv("KVTAX_CACHE_DIR", str(home / "kvtax"))
    if request.node.get_closest_marker("allow_hosts") is None:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        return
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    constants = sys.modules.get("huggingface_hub.constants")  # which read the environment when it was imported
    if constants is not None:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
