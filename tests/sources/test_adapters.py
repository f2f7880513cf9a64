"""LoRA adapters: their config read strictly, and what they hold."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvtax
from kvtax.errors import ConfigError, KvtaxError
from kvtax.sources.adapters import Adapter, alternatives, read_adapter
from kvtax.values import Lora, read_lora

LLAMA = "meta-llama/Meta-Llama-3-8B"
CONFIG = {
    "peft_type": "LORA",
    "r": 16,
    "target_modules": ["q_proj", "v_proj"],
    "base_model_name_or_path": "../../etc/passwd",
}
# q: 4096 + 4096, v: 4096 + 1024 of each of 32 layers
Q_AND_V = 32 * (8192 + 5120)


class FileTensor(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


def read(tensors: list[FileTensor] | None = None, **changes: Any) -> Adapter:
    return read_adapter({**CONFIG, **changes}, tensors, kvtax.architecture(LLAMA))


def test_bytes_are_rank_times_inputs_and_outputs() -> None:
    found = read()
    assert (found.rank, found.target_modules, found.notices) == (16, ("q_proj", "v_proj"), ())
    assert found.bytes == 2 * 16 * Q_AND_V
    assert read(r=32).bytes == 2 * 32 * Q_AND_V


def test_every_linear_layer() -> None:
    # the published count of an adapter of rank 16 on all seven projections of an 8B Llama: 41,943,040 parameters
    every = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    assert read(target_modules=every).bytes == 2 * 41_943_040
    assert read(target_modules="all-linear").bytes == 2 * 41_943_040
    assert (
        read(target_modules=r".*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)$").bytes == 2 * 41_943_040
    )


def test_ranks_and_layers_of_their_own() -> None:
    assert read(rank_pattern={"v_proj": 64}).rank == 64
    assert read(rank_pattern={"v_proj": 64}).bytes == 2 * 32 * (16 * 8192 + 64 * 5120)
    assert read(layers_to_transform=[0, 1]).bytes == 2 * 16 * Q_AND_V // 16
    assert read(layers_to_transform=3).bytes == 2 * 16 * Q_AND_V // 32
    assert read(use_dora=True).bytes == 2 * (16 * Q_AND_V + 32 * (4096 + 1024))


def test_what_is_not_loaded_is_said() -> None:
    codes = {notice.code for notice in read(use_dora=True, modules_to_save=["lm_head"]).notices}
    assert codes == {"adapter-dora", "adapter-whole-modules"}


def test_a_pattern_is_not_run() -> None:
    found = read(target_modules="(a+)+$" * 40)
    assert (found.target_modules, found.bytes) == ((), None)
    assert {notice.code for notice in found.notices} == {"adapter-size-unknown"}
    assert read(rank_pattern={".*(q)_proj": 8}).bytes is None


def test_the_file_counts() -> None:
    tensors = [
        FileTensor("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", "float32", (8, 4096), 131072),
        FileTensor("base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight", "float32", (4096, 8), 131072),
    ]
    found = read(tensors, target_modules="(.+)x")
    assert (found.rank, found.bytes, found.target_modules) == (8, 262144, ("q_proj",))
    assert {notice.code for notice in found.notices} == {"adapter-rank-differs"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"peft_type": "IA3"}, "adapter-not-lora"),
        ({"peft_type": 3}, "adapter-not-lora"),
        ({"r": 0}, "adapter-rank"),
        ({"r": 10**30}, "adapter-rank"),
        ({"r": True}, "adapter-rank"),
        ({"r": None}, "adapter-rank"),
        ({"rank_pattern": {"q": -1}}, "adapter-rank"),
        ({"rank_pattern": [1]}, "adapter-rank"),
        ({"target_modules": ["x" * 2000]}, "adapter-modules"),
        ({"target_modules": [1]}, "adapter-modules"),
        ({"target_modules": {"a": 1}}, "adapter-modules"),
        ({"target_modules": ["q_proj"] * 70_000}, "adapter-modules"),
        ({"layers_to_transform": ["0"]}, "adapter-layers"),
        ({"layers_to_transform": -1.5}, "adapter-layers"),
    ],
)
def test_impossible(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**changes)
    assert caught.value.code == code


@given(
    st.binary(max_size=300)
    | st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text(max_size=8)).map(
        lambda one: json.dumps(one).encode()
    )
)
def test_any_bytes(data: bytes) -> None:
    with suppress(KvtaxError):
        assert 1 <= read_adapter(data).rank <= 4096


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from([*CONFIG, "rank_pattern", "layers_to_transform", "use_dora", "modules_to_save"]), _JSON
    )
)
def test_any_values(changes: dict[str, Any]) -> None:
    with suppress(KvtaxError):
        assert 1 <= read(**changes).rank <= 4096


@given(st.text(max_size=60))
def test_alternatives_are_names(pattern: str) -> None:
    for name in alternatives(pattern):
        assert name
        assert not set(name) & set("()|*+?[]{}^$\\")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("4:64", Lora(4, 64)),
        ("4", Lora(4, 16)),
        ("./adapter", Lora(1, 0, "./adapter")),
        ("runs/a:4", Lora(4, 0, "runs/a")),
        ("~/a", Lora(1, 0, "~/a")),
        ({"path": "a", "max_loras": 2}, Lora(2, 0, "a")),
        ("C:\\a", Lora(1, 0, "C:\\a")),
    ],
)
def test_as_typed(typed: Any, expected: Lora) -> None:
    assert read_lora("lora", typed) == expected
    if "/" in expected.adapter:
        assert read_lora("lora", str(expected)) == expected


def test_a_folder_gives_the_rank(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({**CONFIG, "r": 24}), encoding="utf-8")
    fields: dict[str, Any] = {"model": LLAMA, "gpu": "h100-sxm", "max_model_len": 8192}
    named, plain = kvtax.budget(**fields, lora=f"{tmp_path}:4"), kvtax.budget(**fields, lora="4:32")
    assert named.kv_pool_bytes == plain.kv_pool_bytes
    held = next(notice for notice in named.notices if notice.code == "adapter-in-slot")
    assert "rank 24" in held.message
    assert "rank 32" in held.message
    with pytest.raises(ConfigError) as caught:
        kvtax.budget(**fields, lora=str(tmp_path / "none"))
    assert caught.value.code == "no-adapter"
