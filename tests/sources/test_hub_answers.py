"""What is kept of the hub: read again as it was, and whatever is wrong with a file, it counts as absent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gguf_files import data_bytes, gguf_header
from kvtax.sources.hub import answers, read
from kvtax.sources.hub.names import parse_hub_name
from kvtax.sources.hub.read import read_hub
from safetensors_files import whole
from tiny_models import COMMIT, CONFIG, GGUF_KEYS, HubInMemory, checkpoint, gguf_tensors

HEAD = gguf_header(GGUF_KEYS, gguf_tensors())
REPOSITORIES = {
    "acme/Tiny": {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": whole(checkpoint())},
    "acme/Tiny-GGUF": {"Tiny-Q4_K_M.gguf": (HEAD, len(HEAD) + data_bytes(GGUF_KEYS, gguf_tensors()))},
}
NAMES = ("acme/Tiny", "acme/Tiny-GGUF:Q4_K_M", "acme/Tiny-GGUF:Tiny-Q4_K_M.gguf", f"acme/Tiny@{COMMIT}")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HubInMemory:
    for name in ("HF_HUB_CACHE", "KVTAX_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    made = HubInMemory(REPOSITORIES)
    monkeypatch.setattr(read, "Client", made)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_kept(hub: HubInMemory, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    first = read_hub(parse_hub_name(name))
    assert first.commit == COMMIT
    hub.asked.clear()
    again = read_hub(parse_hub_name(name))
    assert len(hub.asked) == (0 if "@" in name else 1)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub.asked.clear()
    offline = read_hub(parse_hub_name(name))
    assert hub.asked == []
    for found in (again, offline):
        assert sorted(found.tensors or ()) == sorted(first.tensors or ())
        assert found._replace(tensors=first.tensors) == first


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"{", b'{"schema": "kvtax.hub-answer/2"}', b"\xff" * 99, b"[" * 10_000]
)
def test_a_file_that_is_wrong_counts_as_absent(hub: HubInMemory, data: bytes) -> None:
    read_hub(parse_hub_name("acme/Tiny"))
    (path,) = (Path(answers.cache_dir()) / "hub").iterdir()
    path.write_bytes(data)
    assert answers.load("https://huggingface.co", parse_hub_name("acme/Tiny")) is None
    assert read_hub(parse_hub_name("acme/Tiny")).commit == COMMIT
    assert json.loads(path.read_bytes())["pin"] == COMMIT


def test_a_file_of_another_model_counts_as_absent(hub: HubInMemory) -> None:
    read_hub(parse_hub_name("acme/Tiny"))
    (path,) = (Path(answers.cache_dir()) / "hub").iterdir()
    document = json.loads(path.read_bytes())
    for change in ({"model": "acme/Other"}, {"pin": 1}, {"found": {**document["found"], "sized_bytes": "x"}}):
        path.write_text(json.dumps({**document, **change}))
        assert answers.load("https://huggingface.co", parse_hub_name("acme/Tiny")) is None
