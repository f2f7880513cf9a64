"""A user's own models and GPUs: what is right is read, what is wrong is named in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvtax.errors import InputError
from kvtax.sources.gpus import find_gpu
from kvtax.sources.models import find_model, read_config
from kvtax.sources.user_catalogue import find_kvtax_toml, load_catalogue

GOOD = """
[defaults]
engine = "vllm"

[[model]]
name = "Acme/Private-7B"
aliases = ["Private"]
config = "sub/config.json"

[[model]]
name = "tiny"
config = { model_type = "llama", hidden_size = 64 }

[[gpu]]
id = "Lab-Card"
aliases = ["lab"]
memory = "46.5GiB"
bandwidth_gb_s = 864
bf16_tflops = 362.5
compute_capability = "8.9"
price_per_hour = 1.5
note = "the one in the corner"

[[gpu]]
id = "plain"
memory = 8000000000
"""


def write(folder: Path, text: str, name: str = "kvtax.toml") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_good_entries(tmp_path: Path) -> None:
    write(tmp_path, '{"model_type": "qwen3"}', "sub/config.json")
    path = write(tmp_path, GOOD)
    models, gpus = load_catalogue(path)
    assert [model.id for model in models] == ["Acme/Private-7B", "tiny"]
    assert read_config(find_model("private", models)) == {"model_type": "qwen3"}
    assert read_config(find_model("TINY", models)) == {"model_type": "llama", "hidden_size": 64}
    assert models[1].model_type == "llama"
    card = find_gpu("LAB card", gpus)
    assert card.id == "lab-card" and card.name == "Lab-Card" and card.kind == "user"
    assert card.total_bytes == 46 * 2**30 + 2**29
    assert card.bandwidth_bytes_per_second == 864 * 10**9
    assert card.bf16_flops == 3625 * 10**11
    assert card.supports_fp8 is True
    assert card.prices[0].usd_per_hour == 1.5
    assert find_gpu("plain", gpus).total_bytes == 8 * 10**9
    assert path in find_gpu("plain", gpus).source


def test_a_file_without_entries_does_not_need_pydantic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pydantic", None)
    assert load_catalogue(write(tmp_path, "[targets.x]\nmodel = 'y'\n")) == ((), ())


@pytest.mark.parametrize(
    ("text", "code", "needle"),
    [
        ("[[gpu]", "invalid-toml", "TOML"),
        ("a = " + "[" * 100_000, "invalid-toml", "TOML"),
        ("gpu = 3", "invalid-entry", "`gpu`"),
        ("[gpu]\nid = 'x'", "invalid-entry", "list of tables"),
        ("gpu = [1, 2]", "invalid-entry", "list of tables"),
        ("[[gpu]]\nid = 'x'", "invalid-entry", "gpu[0]: `memory`"),
        ("[[gpu]]\nmemory = '8GiB'", "invalid-entry", "gpu[0]: `id`"),
        ("[[gpu]]\nid = 'x'\nmemory = '8GiB'\n[[gpu]]\nid = 'y'\nmemory = true", "invalid-entry", "gpu[1]: `memory`"),
        ("[[gpu]]\nid = 'x'\nmemory = '8 parsecs'", "invalid-entry", "`memory`"),
        ("[[gpu]]\nid = 'x'\nmemory = 0", "invalid-entry", "`memory`"),
        ("[[gpu]]\nid = 'x'\nmemory = -1", "invalid-entry", "`memory`"),
        ("[[gpu]]\nid = 'x'\nmemory = 1.5", "invalid-entry", "`memory`"),
        ("[[gpu]]\nid = 'x'\nmemory = '8GiB'\nbandwidth_gb_s = -1", "invalid-entry", "`bandwidth_gb_s`"),
        ("[[gpu]]\nid = 'x'\nmemory = '8GiB'\nbandwidth_gb_s = inf", "invalid-entry", "`bandwidth_gb_s`"),
        ("[[gpu]]\nid = 'x'\nmemory = '8GiB'\nbandwith = 1", "invalid-entry", "`bandwith`"),
        ("[[gpu]]\nid = 'x'\nmemory = '8GiB'\ncompute_capability = 'new'", "invalid-entry", "`compute_capability`"),
        ("[[gpu]]\nid = 'a b'\nmemory = '8GiB'", "invalid-entry", "`id`"),
        ("[[gpu]]\nid = 'x'\nmemory = '8GiB'\n[[gpu]]\nid = 'X'\nmemory = '8GiB'", "duplicate-name", "'x'"),
        ("[[gpu]]\nid = 'x'\nmemory = '8GiB'\n'\\u001b[31m' = 1", "invalid-entry", "gpu[0]"),
        ("[[model]]\nname = 'x'", "invalid-entry", "model[0]: `config`"),
        ("[[model]]\nname = 'x'\nconfig = 3", "invalid-entry", "`config`"),
        ("[[model]]\nname = 'x'\nconfig = 'absent.json'", "invalid-entry", "absent.json"),
        ("[[model]]\nname = ''\nconfig = {}", "invalid-entry", "`name`"),
        ("[[model]]\nname = 'x'\naliases = 'y'\nconfig = {}", "invalid-entry", "`aliases`"),
        ("[[model]]\nname = 'x'\nconfig = {}\n[[model]]\nname = 'X'\nconfig = {}", "duplicate-name", "'x'"),
        ("[[gpu]]\n" * 1001, "invalid-entry", "1000"),
    ],
)
def test_bad_entries_are_named_in_one_line(tmp_path: Path, text: str, code: str, needle: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_catalogue(path)
    error = caught.value
    assert error.code == code
    assert error.exit_code == 2
    assert needle in str(error)
    assert path in str(error)
    assert "\n" not in str(error) and "\x1b" not in str(error)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_catalogue(str(tmp_path / "absent.toml"))
    with pytest.raises(InputError, match="cannot be read"):
        load_catalogue(str(tmp_path))
    with pytest.raises(InputError, match="1 MiB"):
        load_catalogue(write(tmp_path, "#" * (2**20 + 1)))
    (tmp_path / "latin.toml").write_bytes(b'a = "\xff"')
    with pytest.raises(InputError, match="TOML"):
        load_catalogue(str(tmp_path / "latin.toml"))


def test_the_nearest_kvtax_toml_is_found(tmp_path: Path) -> None:
    deep = tmp_path / "repository" / "a" / "b"
    deep.mkdir(parents=True)
    top = write(tmp_path, "")
    assert find_kvtax_toml(str(deep)) == top
    (tmp_path / "repository" / ".git").mkdir()
    assert find_kvtax_toml(str(deep)) is None
    inner = write(tmp_path / "repository", "")
    assert find_kvtax_toml(str(deep)) == inner
    os.makedirs(deep / "kvtax.toml")
    assert find_kvtax_toml(str(deep)) == inner


@pytest.mark.parametrize(("maker", "known"), [("", True), ("nvidia", True), ("AMD", True), ("Intel", False)])
def test_a_card_of_ones_own_gets_the_engines_rules(tmp_path: Path, maker: str, known: bool) -> None:
    import kvtax

    path = tmp_path / "kvtax.toml"
    path.write_text(f'[[gpu]]\nid = "lab-card"\nmemory = "47.5GiB"\nvendor = "{maker}"\n', encoding="utf-8")
    found = kvtax.budget(model="llama-3-8b", gpu="lab-card", gpus=load_catalogue(str(path))[1])
    assert ("no-engine-rule" in [notice.code for notice in found.notices]) is not known


def test_memory_without_a_unit_that_was_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "kvtax.toml"
    path.write_text('[[gpu]]\nid = "lab-card"\nmemory = 48\n', encoding="utf-8")
    with pytest.raises(InputError, match="at least") as caught:
        load_catalogue(str(path))
    assert "48GiB" in caught.value.hint


def test_an_entry_that_hides_the_catalogue_says_so(tmp_path):
    import kvtax

    config = {"model_type": "llama", "num_hidden_layers": 2}
    path = tmp_path / "own.toml"
    path.write_text(
        '[[model]]\nname = "llama-3-8b"\nconfig = {model_type = "llama", num_hidden_layers = 2}\n'
        '[[gpu]]\nid = "a100-80"\nmemory = "40GiB"\nvendor = "NVIDIA"\n'
    )
    models, gpus = load_catalogue(str(path))
    from kvtax.budgets import budget

    found = budget(model="llama-3-8b", gpu="a100-80", models=models, gpus=gpus)
    assert found.prepared.architecture.parameters == kvtax.architecture(config).parameters
    assert found.memory.total_bytes == 40 * 2**30
    assert {"own-model", "own-gpu"} <= {notice.code for notice in found.notices}
