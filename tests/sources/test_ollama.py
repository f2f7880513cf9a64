"""Ollama's names and its store."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtax.errors import InputError, SourceError, UnknownNameError
from kvtax.sources import ollama
from kvtax.sources.ollama import find_ollama, list_ollama, ollama_stores
from kvtax.sources.ollama_names import OllamaName, parse_ollama_name
from stores import layer, usual_layers, write_manifest

LIBRARY = "registry.ollama.ai/library"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    write_manifest(folder, usual_layers(folder))
    return folder


def environment(store: Path) -> dict[str, str]:
    return {"OLLAMA_MODELS": str(store), "HOME": str(store / "nobody")}


@pytest.mark.parametrize(
    ("text", "parts", "shown"),
    [
        ("llama3.1:8b", ("registry.ollama.ai", "library", "llama3.1", "8b"), "llama3.1:8b"),
        ("llama3.1", ("registry.ollama.ai", "library", "llama3.1", "latest"), "llama3.1:latest"),
        ("user/model", ("registry.ollama.ai", "user", "model", "latest"), "user/model:latest"),
        ("hf.co/bartowski/Qwen_Qwen3-8B-GGUF:Q4_K_M", ("hf.co", "bartowski", "Qwen_Qwen3-8B-GGUF", "Q4_K_M"), None),
        ("registry.example.com:5000/user/model:tag", ("registry.example.com:5000", "user", "model", "tag"), None),
        ("https://registry.example.com/user/model:tag", ("registry.example.com", "user", "model", "tag"),
         "registry.example.com/user/model:tag"),
        ("host:80/n/m", ("host:80", "n", "m", "latest"), "host:80/n/m:latest"),
        ("registry.ollama.ai/library/dolphin-mistral:7b-v2.6-dpo-laser-q6_K",
         ("registry.ollama.ai", "library", "dolphin-mistral", "7b-v2.6-dpo-laser-q6_K"), "dolphin-mistral:7b-v2.6-dpo-laser-q6_K"),
        ("8" * 80 + ":" + "t" * 80, ("registry.ollama.ai", "library", "8" * 80, "t" * 80), None),
    ],
)  # fmt: skip
def test_names(text: str, parts: tuple[str, ...], shown: str | None) -> None:
    name = parse_ollama_name(text)
    assert tuple(name) == parts
    assert name.shown == (shown or text)
    assert parse_ollama_name(name.shown) == name


@pytest.mark.parametrize(
    "text",
    ["", ":", "a:", ":b", "/a", "a//b", "a/", "../b", "a/../b", "..", "a/b/c/d", "a b", "m@sha256:00", "a\\b", "m:t/x", "n.n/m", "é", "a\n", ".m",
     "-m", "m:.t", "8" * 81, "m:" + "t" * 81, "h" * 351 + "/n/m", "m\x00", "host//m"],
)  # fmt: skip
def test_no_names(text: str) -> None:
    if text == "a\n":  # space around a name is not part of it
        assert parse_ollama_name(text).model == "a"
        return
    with pytest.raises(InputError) as caught:
        parse_ollama_name(text)
    assert caught.value.code == "invalid-model-name"
    assert str(caught.value).isprintable()


@given(st.text(max_size=60))
def test_no_part_of_a_name_leads_out_of_its_folder(text: str) -> None:
    try:
        name = parse_ollama_name(text)
    except InputError:
        return
    for part in name:
        assert part and not set("/\\\0") & set(part) and not part.startswith(".")
    assert parse_ollama_name(name.shown).valid


def test_a_model(store: Path) -> None:
    found = find_ollama("llama3.1:8b", environment(store))
    assert found.name == "llama3.1:8b"
    assert found.manifest_path == str(store / "manifests" / LIBRARY / "llama3.1" / "8b")
    assert [Path(path).read_bytes()[:4] for path in found.model_paths] == [b"GGUF"]
    assert found.model_bytes == 100
    assert found.parameters == {"num_ctx": 8192, "num_gpu": 99}
    assert not (
        found.projector_paths or found.adapter_paths or found.draft_paths or found.tensor_paths or found.notices
    )


def test_case_does_not_matter(store: Path) -> None:
    write_manifest(store, usual_layers(store), "hf.co/bartowski/Qwen_Qwen3-8B-GGUF/Q4_K_M")
    assert find_ollama("Llama3.1:8B", environment(store)).name == "llama3.1:8b"
    assert find_ollama("HF.co/Bartowski/qwen_qwen3-8b-gguf:q4_k_m", environment(store)).name == (
        "hf.co/bartowski/Qwen_Qwen3-8B-GGUF:Q4_K_M"
    )


def test_layers_beside_the_model(store: Path) -> None:
    layers = [
        *usual_layers(store),
        layer(store, "projector", b"GGUFp"),
        layer(store, "adapter", b"GGUFa"),
        layer(store, "draft", b"GGUFd"),
        layer(store, "model", b"GGUF2"),
        layer(store, "messages", b"[]"),
    ]
    write_manifest(store, layers, f"{LIBRARY}/llava/latest")
    found = find_ollama("llava", environment(store))
    assert (len(found.model_paths), len(found.projector_paths), len(found.adapter_paths), len(found.draft_paths)) == (
        2,
        1,
        1,
        1,
    )
    assert found.model_bytes == 105
    assert [notice.code for notice in found.notices] == ["several-models"]


def test_a_model_of_safetensors_says_what_it_is(store: Path) -> None:
    layers = [
        layer(store, "tensor", b"t" * 40, name="model.embed_tokens.weight"),
        layer(store, "tensor", b"u" * 60, name="model.layers.0.mlp.experts"),
        layer(store, "json", b"{}", name="config.json"),
    ]
    write_manifest(store, layers, f"{LIBRARY}/qwen3.5/mlx", model_format="safetensors")
    found = find_ollama("qwen3.5:mlx", environment(store))
    assert found.model_paths == ()
    assert list(found.tensor_paths) == ["model.embed_tokens.weight", "model.layers.0.mlp.experts"]
    assert list(found.config_paths) == ["config.json"]
    assert found.model_bytes == 100
    assert "MLX" in found.notices[0].message


def test_a_model_of_the_cloud_has_no_weights_here(store: Path) -> None:
    write_manifest(
        store, [], f"{LIBRARY}/gpt-oss/120b-cloud", remote_host="https://ollama.com:443", remote_model="gpt-oss:120b"
    )
    with pytest.raises(SourceError, match=r"runs on https://ollama\.com:443") as caught:
        find_ollama("gpt-oss:120b-cloud", environment(store))
    assert (caught.value.code, caught.value.exit_code) == ("remote-model", 3)


def test_a_missing_model_is_told_the_closest(store: Path) -> None:
    write_manifest(store, usual_layers(store), f"{LIBRARY}/llama3.1/70b")
    with pytest.raises(UnknownNameError) as caught:
        find_ollama("llama3.1", environment(store))
    assert caught.value.code == "unknown-model"
    assert caught.value.suggestions == ("llama3.1:70b", "llama3.1:8b")
    assert "`ollama pull llama3.1:latest`" in caught.value.hint
    with pytest.raises(UnknownNameError) as caught:
        find_ollama("lama3.1:8b", environment(store))
    assert caught.value.suggestions[0] == "llama3.1:8b"


def test_names_are_listed_as_ollama_shows_them(store: Path) -> None:
    for name in ("hf.co/a/B-GGUF/Q8_0", "registry.ollama.ai/me/mine/latest"):
        write_manifest(store, usual_layers(store), name)
    (store / "manifests" / LIBRARY / "llama3.1" / ".DS_Store").write_text("x")
    (store / "manifests" / "stray").write_text("x")
    assert list_ollama(environment(store)) == ("hf.co/a/B-GGUF:Q8_0", "llama3.1:8b", "me/mine:latest")


def test_where_the_store_is(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, service = tmp_path / "home", tmp_path / "service"
    (home / ".ollama" / "models" / "manifests").mkdir(parents=True)
    (service / "manifests").mkdir(parents=True)
    monkeypatch.setattr(ollama, "_SERVICE_STORES", (str(service),))
    own = str(home / ".ollama" / "models")
    assert ollama_stores({"HOME": str(home), "OLLAMA_MODELS": f' "{store}" '}) == (str(store),)
    monkeypatch.setattr(sys, "platform", "linux")
    assert ollama_stores({"HOME": str(home)}) == (own, str(service))
    write_manifest(service, usual_layers(service))
    assert find_ollama("llama3.1:8b", {"HOME": str(home)}).manifest_path.startswith(str(service))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert ollama_stores({"HOME": str(home)}) == (own,)
    assert ollama_stores({"OLLAMA_MODELS": str(tmp_path / "gone"), "HOME": str(home)}) == ()


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        find_ollama("llama3.1", {"OLLAMA_MODELS": str(tmp_path)})
    assert caught.value.code == "no-ollama-store"


def test_a_store_of_the_service_that_is_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stat(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(ollama.os, "stat", stat)
    monkeypatch.setattr(ollama, "_is_folder", lambda path: False)
    with pytest.raises(SourceError, match="may not look into /var/ollama") as caught:
        find_ollama("llama3.1", {"OLLAMA_MODELS": "/var/ollama"})
    monkeypatch.undo()
    assert caught.value.code == "no-ollama-store"


def test_defaults_are_left_out_of_what_is_shown() -> None:
    assert OllamaName("registry.ollama.ai", "library", "m", "t").shown == "m:t"
    assert OllamaName("hf.co", "library", "m", "t").shown == "hf.co/library/m:t"
