"""Tensors of files matched with the inventory: every model of the catalogue, other spellings, and what the config does not know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvtax
from kvtax.architectures.architecture import Architecture
from kvtax.architectures.from_files import match
from kvtax.architectures.quantization.stored import StoredTensor
from kvtax.errors import KvtaxError
from kvtax.formulas.weights import rank_tensors, sum_elements
from kvtax.sources.models import list_models
from kvtax.sources.resolve import find

MOST_TENSORS = 12_000
"""Larger checkpoints are matched in the hub's tests, from their real names."""


class InFile(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


def names_of(stored: StoredTensor) -> Iterator[str]:
    layers = stored.source.layers or (0,)
    if "*" not in stored.name:
        yield from [stored.name] * stored.copies
    elif stored.name.count("*") == 1:
        yield from (stored.name.replace("*", str(layer)) for layer in layers)
    else:
        for layer in layers:
            for expert in range(stored.copies // len(layers)):
                yield stored.name.replace("*", str(layer), 1).replace("*", str(expert), 1)


def files_of(architecture: Architecture) -> list[InFile]:
    return [
        InFile(name, stored.dtype, stored.shape, stored.bytes // stored.copies)
        for stored in architecture.stored_tensors()
        if stored.source.stored
        for name in names_of(stored)
    ]


def models() -> Iterator[Architecture]:
    for entry in list_models():
        try:
            architecture = find(entry.id).architecture
        except KvtaxError:
            continue
        if sum(stored.copies for stored in architecture.stored_tensors()) <= MOST_TENSORS:
            yield architecture


def with_files(architecture: Architecture, files: Iterable[InFile]) -> Architecture:
    return architecture.replace(stored=match(architecture, files).stored)


def held(architecture: Architecture, tp: int) -> dict[tuple[str, str], int]:
    return sum_elements(rank_tensors(architecture, tp))


@pytest.mark.parametrize("spelling", ["as they are", "without model."])
def test_every_model_of_the_catalogue_gets_back_what_its_inventory_says(spelling):
    compared = 0
    for architecture in models():
        files = files_of(architecture)
        if spelling != "as they are":
            files = [one._replace(name=one.name.removeprefix("model.")) for one in files]
        found = with_files(architecture, files)
        assert found.checkpoint_bytes == architecture.checkpoint_bytes == sum(one.bytes for one in files)
        assert found.weight_bytes() == architecture.weight_bytes(), architecture.name
        for tp in (1, 2):
            assert held(found, tp) == held(architecture, tp), (architecture.name, tp)
        compared += 1
    assert compared > 250


def test_files_in_another_dtype_take_their_own_bytes_and_load_in_the_models():
    architecture = kvtax.architecture("llama-3-8b")
    files = [one._replace(dtype="float32", bytes=2 * one.bytes) for one in files_of(architecture)]
    weighed = match(architecture, files)
    found = architecture.replace(stored=weighed.stored)
    assert weighed.differs
    assert found.checkpoint_bytes == 2 * (architecture.checkpoint_bytes or 0)
    assert sum_elements(rank_tensors(found, 1, dtype="bfloat16")) == held(architecture, 1)


def test_what_the_config_does_not_know():
    architecture = kvtax.architecture("llama-3.2-1b")  # its output matrix is the embedding
    added = [
        InFile("model.layers.16.eh_proj.weight", "bfloat16", (2048, 4096), 2**24),
        InFile("model.layers.16.self_attn.q_proj.weight", "bfloat16", (2048, 2048), 2**23),
        InFile("lm_head.weight", "bfloat16", (128256, 2048), 128256 * 4096),
        InFile("model.layers.3.self_attn.rotary_emb.inv_freq", "float32", (32,), 128),
        InFile("visual.blocks.0.attn.qkv.weight", "bfloat16", (8, 8), 128),
        InFile("something.else.weight", "unknown:f5", (7, 7), 31),
    ]
    weighed = match(architecture, [*files_of(architecture), *added])
    of = {stored.name: stored for stored in weighed.stored}
    assert weighed.bytes == (architecture.checkpoint_bytes or 0) + sum(one.bytes for one in added)
    assert weighed.differs
    assert [gap.what for gap in weighed.gaps[:2]] == ["lm_head", "mtp"]
    for name in ("model.layers.*.eh_proj.weight", "lm_head.weight", "model.layers.*.self_attn.rotary_emb.inv_freq"):
        assert not of[name].source.loaded
    assert of["visual.blocks.*.attn.qkv.weight"].source.component == "vision"
    assert (of["something.else.weight"].bytes, of["something.else.weight"].source.component) == (31, "other")
    found = architecture.replace(stored=weighed.stored)
    assert found.weight_bytes() == architecture.weight_bytes() + 128 + 31


def test_scales_of_a_format_that_the_config_does_not_state_belong_to_their_module():
    architecture = kvtax.architecture("llama-3-8b")
    name = "model.layers.5.mlp.down_proj"
    packed = [
        InFile(f"{name}.qweight", "int32", (1792, 4096), 1792 * 4096 * 4),
        InFile(f"{name}.scales", "float16", (112, 4096), 112 * 4096 * 2),
    ]
    kept = [one for one in files_of(architecture) if not one.name.startswith(name)]
    stored = {
        one.name: one
        for one in match(architecture, [*kept, *packed]).stored
        if "down_proj.q" in one.name or "scales" in one.name
    }
    weight, scales = stored["model.layers.*.mlp.down_proj.qweight"], stored["model.layers.*.mlp.down_proj.scales"]
    assert (weight.source.component, weight.source.shard, weight.scale) == ("mlp", "row", False)
    assert (scales.source.component, scales.source.layers, scales.scale) == ("mlp", (5,), True)


NAMES = st.lists(
    st.sampled_from(
        [
            "model",
            "layers",
            "0",
            "7",
            "99999999999999999999",
            "experts",
            "mlp",
            "weight",
            "*",
            "",
            "lm_head",
            "mtp",
            "scales",
            "x",
        ]
    ),
    min_size=1,
    max_size=8,
).map(".".join)


@given(
    st.lists(st.tuples(NAMES, st.sampled_from(["bfloat16", "uint8", "unknown:q"]), st.integers(0, 2**40)), max_size=12)
)
def test_whatever_names_come_no_byte_is_lost(entries):
    architecture = kvtax.architecture("llama-3-8b")
    files = []
    for name, dtype, count in entries:
        size = 2 * count if dtype == "bfloat16" else count
        files.append(InFile(name, dtype, (count,), size))
    weighed = match(architecture, files)
    assert weighed.bytes == sum(one.bytes for one in files)
    assert sum(stored.bytes for stored in weighed.stored) == weighed.bytes
    assert sum(stored.copies for stored in weighed.stored) == len(files)
    held(architecture.replace(stored=weighed.stored), 4)


@pytest.mark.parametrize(
    ("model", "experts"),
    [("qwen3-30b-a3b", "model.layers.{}.mlp.experts"), ("mixtral-8x7b", "model.layers.{}.mlp.experts")],
)
def test_experts_of_a_layer_in_one_tensor_are_experts(model, experts):
    architecture = kvtax.architecture(model)
    width, hidden, count = (
        architecture.moe_intermediate_size or architecture.intermediate_size,
        architecture.hidden_size,
        architecture.num_experts,
    )
    fused = []
    for layer in range(architecture.num_hidden_layers):
        name = experts.format(layer)
        for last, shape in (("gate_up_proj", (count, hidden, 2 * width)), ("down_proj", (count, width, hidden))):
            fused.append(InFile(f"{name}.{last}", "bfloat16", shape, 2 * shape[0] * shape[1] * shape[2]))
    others = [one for one in files_of(architecture) if ".experts." not in one.name]
    weighed = match(architecture, [*others, *fused])
    assert not weighed.differs
    found = architecture.replace(stored=weighed.stored)
    for layout in (
        {"tp": 1},
        {"tp": 2},
        {"tp": 1, "dp": 4, "expert_parallel": True},
        {"tp": 2, "dp": 2, "expert_parallel": True},
    ):
        assert sum_elements(rank_tensors(found, **layout)) == sum_elements(rank_tensors(architecture, **layout)), layout


def test_experts_one_by_one_where_the_inventory_has_one_tensor():
    architecture = kvtax.architecture("llama-4-scout")
    stacked = next(
        one for one in architecture.tensors if one.component == "routed_experts" and one.name.endswith("down_proj")
    )
    count, width, hidden = stacked.shape
    files = [one for one in files_of(architecture) if not one.name.endswith("experts.down_proj")]
    for layer in stacked.layers:
        prefix = stacked.name.replace("*", str(layer), 1).rpartition(".")[0]
        files += [
            InFile(f"{prefix}.{expert}.down_proj.weight", "bfloat16", (hidden, width), 2 * hidden * width)
            for expert in range(count)
        ]
    weighed = match(architecture, files)
    assert not weighed.differs
    found = architecture.replace(stored=weighed.stored)
    for layout in ({"tp": 1}, {"tp": 2}, {"tp": 1, "dp": 4, "expert_parallel": True}):
        assert sum_elements(rank_tensors(found, **layout)) == sum_elements(rank_tensors(architecture, **layout)), layout


def test_scales_of_the_cache_and_states_of_bitsandbytes_are_not_loaded_on_the_card():
    architecture = kvtax.architecture("llama-3-8b")
    p = "model.layers.3.self_attn"
    files = [
        InFile(f"{p}.k_proj.k_scale", "float32", (), 4), InFile(f"{p}.v_scale", "float32", (1,), 4),
        InFile(f"{p}.q_proj.weight.quant_state.bitsandbytes__nf4", "uint8", (94,), 94), InFile(f"{p}.q_proj.weight.absmax", "uint8", (64,), 64),
    ]  # fmt: skip
    stored = {one.name.rpartition(".")[2]: one for one in match(architecture, files).stored}
    assert [name for name, one in stored.items() if one.source.loaded] == ["absmax"]
    assert (stored["absmax"].source.component, stored["absmax"].source.shard, stored["absmax"].scale) == (
        "attention",
        "column",
        True,
    )
