"""The catalogue of models: every name leads to one config that is there."""

from __future__ import annotations

import json
import os

import pytest

from kvtax.errors import ConfigError, SourceError, UnknownNameError
from kvtax.sources.data_files import configs_dir
from kvtax.sources.models import (
    ModelEntry,
    catalogue_date,
    find_model,
    hub_id_of,
    list_models,
    read_config,
    read_quant_config,
    search_models,
)
from kvtax.sources.resolve import find

FOLDER = os.path.join(configs_dir(), "models")
ALL = list_models()


@pytest.mark.parametrize("entry", ALL, ids=[entry.id for entry in ALL])
def test_every_entry_has_a_config_and_can_be_found(entry: ModelEntry) -> None:
    config = read_config(entry)
    assert config.get("model_type") or entry.model_type
    assert entry.kind in ("published", "reconstructed")
    assert entry.source and entry.parameters_note
    assert entry.parameters is None or entry.parameters > 10**6
    for name in (entry.id, entry.id.lower(), entry.id.upper(), f" {entry.id} ", *entry.aliases):
        assert find_model(name) == entry
    if entry.kind == "reconstructed":
        assert entry.parameters_note.startswith(("equal", "explained")) or entry.config_from or entry.aliases
    if entry.config_from:
        assert find_model(entry.config_from).file == entry.file
    else:
        assert entry.file == entry.id.replace("/", "--") + ".json"
        assert entry.overrides is None


def test_every_file_is_in_the_index() -> None:
    files = {name for name in os.listdir(FOLDER) if name.endswith(".json")} - {"index.json"}
    assert files == {entry.file for entry in ALL}
    for name in os.listdir(os.path.join(FOLDER, "hf_quant_config")):
        with open(os.path.join(FOLDER, "hf_quant_config", name), encoding="utf-8") as file:
            assert json.load(file)["quantization"]["quant_algo"]


def test_ids_and_aliases_are_unique_and_sorted() -> None:
    names = [name for entry in ALL for name in (entry.id.lower(), *entry.aliases)]
    assert len(names) == len(set(names))
    assert all(alias == alias.lower() for entry in ALL for alias in entry.aliases)
    assert [entry.id for entry in ALL] == sorted((entry.id for entry in ALL), key=str.lower)
    assert catalogue_date() == "2026-11-30"


@pytest.mark.parametrize(
    ("name", "id_"),
    [
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct"),
        ("Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("llama3.1:8b", "meta-llama/Llama-3.1-8B-Instruct"),
        ("Qwen3 8B", "Qwen/Qwen3-8B"),
        ("qwen/qwen3-8b", "Qwen/Qwen3-8B"),
        ("deepseek_v3", "deepseek-ai/DeepSeek-V3"),
        ("llama-3.1-405b", "meta-llama/Llama-3.1-405B-Instruct"),
    ],
)
def test_the_usual_spellings_are_understood(name: str, id_: str) -> None:
    assert find_model(name).id == id_


def test_a_twin_lends_its_config() -> None:
    glm = find_model("glm-4.6")
    assert glm.config_from == "zai-org/GLM-4.5"
    own, twin = read_config(glm), read_config(find_model("zai-org/GLM-4.5"))
    assert own == {**twin, "max_position_embeddings": 202752}
    assert read_config(find_model("zai-org/GLM-4.5")) == twin
    assert read_config(find_model("kimi-k2-thinking"))["quantization_config"]["quant_method"] == "compressed-tensors"


@pytest.mark.parametrize(
    ("name", "expected"), [("lama-3.1-8b", "llama-3.1-8b"), ("qwen3-8bb", "qwen3-8b"), ("gpt-os-20b", "gpt-oss-20b")]
)
def test_a_typo_gets_the_closest_three(name: str, expected: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_model(name)
    assert caught.value.code == "unknown-model"
    assert expected in caught.value.suggestions
    assert len(caught.value.suggestions) <= 3
    assert "a hub id" in caught.value.hint


@pytest.mark.parametrize(
    "name", ["acme/Unknown-7B", "acme/another-7b", "acme/codestral-22b-tuned", "openai/whisper-large-v9"]
)
def test_a_hub_id_outside_the_catalogue_is_looked_up_elsewhere(name: str) -> None:
    with pytest.raises(UnknownNameError):
        find_model(name)
    assert hub_id_of(name) == name
    with pytest.raises(SourceError) as caught:  # tests have no network
        find(name)
    assert (caught.value.code, caught.value.exit_code) == ("hub-offline", 3)
    assert "path" in caught.value.hint


@pytest.mark.parametrize(
    "name", ["", "./config.json", "/etc/passwd", "a/b/c", "../x", "acme/", "x" * 100_000, "acme/config.json"]
)
def test_nonsense_and_paths_are_unknown(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_model(name)
    assert caught.value.code == "unknown-model"
    assert len(caught.value.message) < 200


def test_a_user_entry_comes_first() -> None:
    own = ModelEntry("Qwen/Qwen3-8B", "", "user", "mine", aliases=("mine",), config={"model_type": "llama"})
    assert find_model("qwen/qwen3-8b", (own,)) is own
    assert read_config(find_model("MINE", (own,))) == {"model_type": "llama"}
    with pytest.raises(UnknownNameError):
        find_model("acme/x", (own,))


@pytest.mark.parametrize("text", ["{", "[]", "\xff", '{"a":' * 100_000])
def test_a_user_config_that_is_no_config(tmp_path: object, text: str) -> None:
    path = os.path.join(str(tmp_path), "config.json")
    with open(path, "w", encoding="latin-1") as file:
        file.write(text)
    with pytest.raises(ConfigError) as caught:
        read_config(ModelEntry("x", path, "user", "mine"))
    assert caught.value.where == path


def test_a_user_config_that_is_too_large_or_not_there(tmp_path: object) -> None:
    path = os.path.join(str(tmp_path), "config.json")
    with pytest.raises(ConfigError, match="no such file"):
        read_config(ModelEntry("x", path, "user", "mine"))
    with open(path, "wb") as file:
        file.truncate(2**30)
    with pytest.raises(ConfigError, match="4 MiB"):
        read_config(ModelEntry("x", path, "user", "mine"))


def test_quant_config() -> None:
    entry = find_model("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4")
    quant = read_quant_config(entry)
    assert quant is not None
    layers = quant["quantization"]["quantized_layers"]
    assert layers["backbone.layers.1.mixer.experts.*.up_proj"] == {"quant_algo": "W4A16_NVFP4", "group_size": 16}
    assert read_quant_config(find_model("qwen3-8b")) is None


def test_search() -> None:
    assert {entry.id for entry in search_models("gpt-oss")} >= {"openai/gpt-oss-20b", "openai/gpt-oss-120b"}
    assert all("qwen" in entry.id.lower() for entry in search_models("Qwen/ fp8"))
    assert search_models("no-such-model") == ()
    assert len(search_models("")) == len(ALL)


def test_a_hub_id_with_a_typing_error_gets_the_closest() -> None:
    with pytest.raises(SourceError) as caught:
        find("meta-llama/Meta-Llama-3-8B-Instuct")
    assert "did you mean meta-llama/Meta-Llama-3-8B-Instruct" in caught.value.hint
    with pytest.raises(SourceError) as caught:
        find("some-org/some-model")
    assert "did you mean" not in caught.value.hint


@pytest.mark.parametrize(
    ("text", "says"), [('{"a": NaN}', "NaN"), ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested"), ("[1]", "object")]
)
def test_a_user_config_is_read_as_strictly_as_any_other(tmp_path: object, text: str, says: str) -> None:
    path = os.path.join(str(tmp_path), "config.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    with pytest.raises(ConfigError, match=says):
        read_config(ModelEntry("x", path, "user", "mine"))
