"""LM Studio's folder of models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvtax.errors import ConfigError, InputError, SourceError, UnknownNameError
from kvtax.sources.lm_studio import find_lm_studio, list_lm_studio, lm_studio_stores

FILES = {
    "lmstudio-community/Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf": 5,
    "lmstudio-community/gemma-3-4b-it-GGUF/gemma-3-4b-it-Q4_K_M.gguf": 3,
    "lmstudio-community/gemma-3-4b-it-GGUF/mmproj-model-f16.gguf": 1,
    "bartowski/Big-GGUF/Big-Q8_0-00001-of-00002.gguf": 8,
    "bartowski/Big-GGUF/Big-Q8_0-00002-of-00002.gguf": 7,
    "bartowski/Big-GGUF/Big-Q4_K_M.gguf": 6,
    "mlx-community/Qwen3-4B-4bit/config.json": 1,
    "mlx-community/Qwen3-4B-4bit/model.safetensors": 4,
    "me/notes/readme.txt": 1,
}


def write(folder: Path, files: dict[str, int] = FILES) -> Path:
    for name, size in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    write(tmp_path / ".lmstudio" / "models")
    return {"HOME": str(tmp_path)}


def test_the_only_model_of_a_repository(home: dict[str, str]) -> None:
    found = find_lm_studio("lmstudio-community/gemma-3-4b-it-GGUF", home)
    folder = Path(home["HOME"], ".lmstudio/models/lmstudio-community/gemma-3-4b-it-GGUF")
    assert found.folder == str(folder)
    assert found.model_paths == (str(folder / "gemma-3-4b-it-Q4_K_M.gguf"),)
    assert found.projector_paths == (str(folder / "mmproj-model-f16.gguf"),)
    assert found.choice is not None
    assert found.choice.bytes == 3


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("bartowski/Big-GGUF:q8_0", ["Big-Q8_0-00001-of-00002.gguf", "Big-Q8_0-00002-of-00002.gguf"]),
        ("bartowski/Big-GGUF/Big-Q4_K_M.gguf", ["Big-Q4_K_M.gguf"]),
        ("Bartowski/big-gguf/big-q4_k_m.gguf", ["Big-Q4_K_M.gguf"]),
    ],
)
def test_one_of_several(home: dict[str, str], name: str, files: list[str]) -> None:
    found = find_lm_studio(name, home)
    assert [Path(path).name for path in found.model_paths] == files
    assert found.name == "bartowski/Big-GGUF"
    assert [choice.label for choice in found.contents.gguf.choices] == ["Q4_K_M", "Q8_0"]


def test_a_full_path_below_the_models(home: dict[str, str]) -> None:
    path = Path(home["HOME"], ".lmstudio/models/bartowski/Big-GGUF")
    assert find_lm_studio(str(path / "Big-Q8_0-00001-of-00002.gguf"), home).choice == (
        find_lm_studio("bartowski/Big-GGUF:Q8_0", home).choice
    )
    with pytest.raises(InputError):
        find_lm_studio(str(path / ".." / ".." / ".." / "x" / "y"), home)
    with pytest.raises(InputError):
        find_lm_studio("/bartowski/Big-GGUF", home)


def test_several_must_be_told_apart(home: dict[str, str]) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_lm_studio("bartowski/Big-GGUF", home)
    assert caught.value.code == "ambiguous-quantization"
    assert caught.value.suggestions == ("bartowski/Big-GGUF:Q4_K_M", "bartowski/Big-GGUF:Q8_0")
    with pytest.raises(UnknownNameError) as caught:
        find_lm_studio("bartowski/Big-GGUF:Q5_K_M", home)
    assert caught.value.code == "unknown-quantization"


def test_a_model_of_safetensors_is_a_folder(home: dict[str, str]) -> None:
    found = find_lm_studio("mlx-community/Qwen3-4B-4bit", home)
    assert found.choice is None
    assert found.contents.weights == ("model.safetensors",)


def test_a_folder_without_a_model(home: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="no model that kvtax knows") as caught:
        find_lm_studio("me/notes", home)
    assert caught.value.code == "no-model"


def test_a_missing_model_is_told_the_closest(home: dict[str, str]) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_lm_studio("lmstudio-community/Qwen3-9B-GGUF", home)
    assert caught.value.suggestions[0] == "lmstudio-community/Qwen3-8B-GGUF"
    assert len(list_lm_studio(home)) == 5


@pytest.mark.parametrize(
    "name",
    ["", "one", "a/b/c/d/e", "../x", "a/..", "a/./b", "a//b", "a/b/c.gguf:Q4_0", "a/b\\c", "a/b\x1b", "a/" + "b" * 256],
)
def test_no_names(home: dict[str, str], name: str) -> None:
    with pytest.raises(InputError) as caught:
        find_lm_studio(name, home)
    assert caught.value.code == "invalid-model-name"


def test_where_the_models_are(tmp_path: Path) -> None:
    """The pointer file first, the older cache folder, then the home of today; settings may name another folder."""
    home = {"HOME": str(tmp_path)}
    with pytest.raises(SourceError) as caught:
        find_lm_studio("a/b", home)
    assert caught.value.code == "no-lm-studio-store"
    older, today = tmp_path / ".cache/lm-studio/models", tmp_path / ".lmstudio/models"
    older.mkdir(parents=True)
    today.mkdir(parents=True)
    assert lm_studio_stores(home) == (str(older), str(today))
    pointed, chosen = tmp_path / "pointed", tmp_path / "chosen"
    (pointed / "models").mkdir(parents=True)
    chosen.mkdir()
    (tmp_path / ".lmstudio-home-pointer").write_text(f"{pointed}\n")
    (pointed / "settings.json").write_text(json.dumps({"downloadsFolder": str(chosen)}))
    assert lm_studio_stores(home) == (str(chosen), str(pointed / "models"), str(older), str(today))
    write(chosen, {"a/b/m-Q8_0.gguf": 1})
    assert find_lm_studio("a/b", home).folder == str(chosen / "a" / "b")


@pytest.mark.parametrize("pointer", [b"", b"relative/path", b"\xff\xfe", b"/x\x1b[2J", b"/" + b"y" * 10_000])
def test_a_pointer_that_leads_nowhere_is_passed_over(
    tmp_path: Path, pointer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "relative" / "path" / "models", {"a/c/m-Q8_0.gguf": 1})
    monkeypatch.chdir(tmp_path)
    write(tmp_path / ".lmstudio" / "models", {"a/b/m-Q8_0.gguf": 1})
    (tmp_path / ".lmstudio-home-pointer").write_bytes(pointer)
    (tmp_path / ".lmstudio" / "settings.json").write_bytes(b'{"downloadsFolder": ["x"]}')
    assert find_lm_studio("a/b", {"HOME": str(tmp_path)}).name == "a/b"
    assert lm_studio_stores({"HOME": str(tmp_path)}) == (str(tmp_path / ".lmstudio" / "models"),)
