"""Hostile config.json files: each gives its own error, one line, exit 2 or 3, in bounded time; nothing gives anything else."""

from __future__ import annotations

import copy
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvtax
from kvtax.architectures.registry import read_architecture
from kvtax.sources.class_defaults import class_defaults
from kvtax.sources.data_files import configs_dir
from kvtax.sources.safe_json import MAXIMUM_CONFIG_BYTES, parse_json
from strategies import json_values

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}


def changed(**values: Any) -> bytes:
    return json.dumps({**LLAMA, **values}).encode()


def text(old: str, new: str) -> bytes:
    return json.dumps(LLAMA).replace(old, new).encode()


CASES = [
    ("empty", b"", "invalid-json"),
    ("not JSON", b"hello", "invalid-json"),
    ("a list", b"[1, 2]", "invalid-json"),
    ("a number", b"7", "invalid-json"),
    ("null", b"null", "invalid-json"),
    ("cut", json.dumps(LLAMA).encode()[:40], "invalid-json"),
    ("NaN", text("14336", "NaN"), "invalid-json"),
    ("Infinity", text("14336", "-Infinity"), "invalid-json"),
    ("1e999", text("14336", "1e999"), "invalid-json"),
    ("Infinity in a list of lists", changed(eos_token_id=[[float("inf")]]), "invalid-json"),
    ("not UTF-8", b'{"model_type": "\xff\xfe"}', "invalid-json"),
    ("UTF-16", json.dumps(LLAMA).encode("utf-16"), "invalid-json"),
    ("deep lists", b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "invalid-json"),
    ("deep objects", b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "invalid-json"),
    ("too large", b'{"a": "' + b"x" * MAXIMUM_CONFIG_BYTES + b'"}', "file-too-large"),
    ("5,000 digits", text("14336", "1" * 5000), "invalid-json"),
    ("30 digits", text("14336", "1" * 30), "invalid-config"),
    ("zero width", changed(hidden_size=0), "invalid-config"),
    ("negative layers", changed(num_hidden_layers=-1), "invalid-config"),
    ("ten million layers", changed(num_hidden_layers=10**7), "invalid-config"),
    ("zero head_dim", changed(head_dim=0), "invalid-config"),
    ("zero heads", changed(num_attention_heads=0), "invalid-config"),
    ("heads not divisible", changed(num_key_value_heads=7), "invalid-config"),
    ("more key heads than heads", changed(num_key_value_heads=64), "invalid-config"),
    ("a string for a number", changed(hidden_size="4096"), "invalid-config"),
    ("true for a number", changed(hidden_size=True), "invalid-config"),
    ("a fraction", changed(hidden_size=4096.5), "invalid-config"),
    ("a list for a number", changed(vocab_size=[1]), "invalid-config"),
    ("an object for a number", changed(num_hidden_layers={}), "invalid-config"),
    ("a number for a flag", changed(tie_word_embeddings="no"), "invalid-config"),
    ("an unknown dtype", changed(torch_dtype="fp12"), "invalid-config"),
    ("rope factor", changed(max_position_embeddings=4096, rope_scaling={"rope_type": "linear", "factor": -4.0}), "invalid-config"),
    ("no model_type", b"{}", "unsupported-architecture"),
    ("an unknown model_type", changed(model_type="frobnicate"), "unsupported-architecture"),
    ("a path as model_type", changed(model_type="../../etc/passwd"), "unsupported-architecture"),
    ("escapes as model_type", changed(model_type="\x1b[2J\u202e"), "unsupported-architecture"),
    ("a number as model_type", changed(model_type=7), "unsupported-architecture"),
    ("an unknown layer type", changed(model_type="gemma3_text", layer_types=["warp"] * 32), "unsupported-architecture"),
    ("layer types of another length", changed(model_type="gemma3_text", layer_types=["full_attention"] * 3), "invalid-config"),
    ("text_config is a list", json.dumps({"model_type": "gemma3", "text_config": []}).encode(), "invalid-config"),
    ("an unknown quantisation", changed(quantization_config={"quant_method": "alchemy"}), "unsupported-architecture"),
]  # fmt: skip


def read(data: bytes) -> kvtax.Architecture:
    values, _ = parse_json(data, "config.json")
    return read_architecture(values, class_defaults)


@pytest.mark.parametrize(("data", "code"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_case_has_its_own_error(data: bytes, code: str) -> None:
    start = time.process_time()
    with pytest.raises(kvtax.KvtaxError) as caught:
        read(data)
    assert time.process_time() - start < 2
    assert caught.value.code == code
    line = f"{caught.value} {caught.value.hint}"
    assert "\n" not in line
    assert line.isprintable()
    assert len(str(caught.value)) < 400


def test_a_whole_float_is_a_number() -> None:
    assert read(changed(hidden_size=4096.0)).hidden_size == 4096


def test_no_limit_may_be_infinite() -> None:
    """Published configs of Mamba 2 hybrids hold `"time_step_limit": [0.0, Infinity]`."""
    assert read(changed(time_step_limit=[0.0, float("inf")])).parameters == 8_030_261_248


@pytest.mark.parametrize("path", sorted(Path(configs_dir(), "models").glob("[!i]*.json")), ids=lambda path: path.stem)
def test_every_shipped_config_is_read_by_its_path(path: Path) -> None:
    assert kvtax.architecture(str(path)).parameters > 0


def test_duplicate_keys_are_said() -> None:
    data = b'{"vocab_size": 1, ' + json.dumps(LLAMA).encode()[1:]
    values, notices = parse_json(data, "config.json")
    assert values["vocab_size"] == 128256
    assert [notice.code for notice in notices] == ["duplicate-key"]


def test_code_in_a_config_is_never_looked_at() -> None:
    found = read(
        changed(auto_map={"AutoConfig": "evil--repo.py"}, trust_remote_code=True, _attn_implementation_internal="x/y")
    )
    assert found.parameters == 8_030_261_248


@given(st.binary(max_size=2000))
@settings(deadline=None)
def test_bytes_give_a_result_or_a_kvtax_error(data: bytes) -> None:
    try:
        read(data)
    except kvtax.KvtaxError as error:
        assert error.exit_code in (2, 3)


@given(
    st.dictionaries(
        st.sampled_from([*LLAMA, "layer_types", "sliding_window", "rope_scaling", "quantization_config", "head_dim"]),
        json_values,
        max_size=4,
    )
)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_values_give_a_result_or_a_kvtax_error(values: dict[str, Any]) -> None:
    try:
        read_architecture({**LLAMA, **values}, class_defaults)
    except kvtax.KvtaxError as error:
        assert error.exit_code in (2, 3)


NASTY: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3, 7, 64, 10**6, 2**24, 2**31, 10**30, 0.5, 1e300, -0.0, "", "x", "full_attention", [], [0], ["x"], {}, {"a": 1},
    [[]], [1, 2, 3], {"factor": 0}, [None], ["full_attention", "sliding_attention"], "auto", "float32",
]  # fmt: skip


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(node, dict):
        for key, value in node.items():
            found += places(value, (*path, key))
    elif isinstance(node, list) and len(node) < 200:
        for index, value in enumerate(node[:6]):
            found += places(value, (*path, index))
    return found


CONFIGS = sorted(Path(configs_dir(), "models").glob("*.json"))


@pytest.mark.parametrize("seed", range(4))
def test_mutated_real_configs(seed: int) -> None:
    """Every family meets values that its config should not have; a result or a KvtaxError comes, quickly."""
    chance = random.Random(seed)
    for path in CONFIGS:
        if path.name == "index.json":
            continue
        original = json.loads(path.read_text())
        spots = places(original)
        for _ in range(3):
            config = copy.deepcopy(original)
            changes = []
            for spot in chance.sample(spots, min(len(spots), chance.choice((1, 1, 2, 4)))):
                value = copy.deepcopy(chance.choice(NASTY))
                node = config
                try:
                    for key in spot[:-1]:
                        node = node[key]
                    if chance.random() < 0.2 and isinstance(node, dict):
                        node.pop(spot[-1], None)
                    else:
                        node[spot[-1]] = value
                except (KeyError, IndexError, TypeError):
                    continue
                changes.append((spot, value))
            start = time.process_time()
            try:
                found = read_architecture(config, class_defaults)
                assert found.parameters >= 0
                assert found.weight_bytes() >= 0
                assert found.kv_bytes(4096) >= 0
            except kvtax.KvtaxError as error:
                assert str(error).isprintable(), (path.name, changes)
            except Exception as error:
                raise AssertionError(f"{path.name}: {changes!r}") from error
            assert time.process_time() - start < 10, (path.name, changes)
