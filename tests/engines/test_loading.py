"""What loading keeps beside the parameters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvtax
from kvtax.architectures.registry import read_architecture
from kvtax.engines import loading
from kvtax.engines.allocator import ROUNDING, allocate
from kvtax.formulas.weights import element_bytes, rank_tensors, stage_layers, sum_elements
from kvtax.sources.class_defaults import class_defaults
from kvtax.units import MIB
from kvtax.values import Limits

sizes = st.lists(st.integers(1, 64 * MIB), max_size=60)


@given(sizes)
def test_blocks_hold_the_tensors_and_segments_hold_the_blocks(asked: list[int]) -> None:
    found = allocate(asked)
    assert found.requested_bytes == sum(asked)
    assert found.requested_bytes <= found.allocated_bytes <= found.reserved_bytes
    assert found.allocated_bytes - found.requested_bytes <= (MIB + ROUNDING) * len(asked)
    assert found.reserved_bytes % (2 * MIB) == 0


@pytest.mark.parametrize(
    ("asked", "allocated", "reserved"),
    [
        ([512], 512, 2 * MIB),
        ([1], 512, 2 * MIB),
        ([43 * MIB], 44 * MIB, 44 * MIB),  # 1 MiB is left: it goes to the tensor
        ([44 * MIB], 44 * MIB, 44 * MIB),
        ([12 * MIB + MIB // 2], 12 * MIB + MIB // 2, 14 * MIB),  # 1.5 MiB are left: a free block
        ([5 * MIB] * 4, 20 * MIB, 20 * MIB),
        ([9 * MIB] * 3, 28 * MIB, 40 * MIB),  # two in one segment, of which 2 MiB stay free; the third in another
    ],
)
def test_blocks(asked: list[int], allocated: int, reserved: int) -> None:
    found = allocate(asked)
    assert found.reserved_bytes == reserved
    assert abs(found.allocated_bytes - allocated) <= MIB


@given(sizes)
def test_order_of_equal_tensors_does_not_matter(asked: list[int]) -> None:
    assert allocate(sorted(asked)).requested_bytes == allocate(asked).requested_bytes


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "gemma-3-27b", "gpt-oss-20b"])
@pytest.mark.parametrize("tp", [1, 8])
def test_every_byte_of_the_weights_is_allocated(model: str, tp: int) -> None:
    """Merging tensors as engines do loses none of them."""
    found = kvtax.architecture(model)
    tensors = rank_tensors(found, tp)
    weights = sum(element_bytes(count, dtype) for (_, dtype), count in sum_elements(tensors).items())
    # an odd share of a packed tensor is rounded down, layer by layer
    assert 0 <= weights - loading.allocation(tensors).requested_bytes <= weights * 1e-5


def test_rope_tables() -> None:
    assert loading.rope_table_bytes(kvtax.architecture("llama-3.1-8b"), 2) == 131072 * 128 * 2
    gemma = kvtax.architecture("google/gemma-4-26B-A4B")
    assert gemma.rope_dims == (256, 512)
    qwen = kvtax.architecture("Qwen/Qwen3.5-9B")
    assert qwen.multimodal_rope
    assert loading.rope_table_bytes(qwen, 2, 4) == 4 * loading.rope_table_bytes(qwen, 2) == 4 * 262144 * 64 * 2


def test_ropes_that_differ_by_kind_of_layer() -> None:
    tiny = {
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "max_position_embeddings": 64,
    }  # fmt: skip

    def dims(**more: object) -> tuple[int, ...]:
        return read_architecture({**tiny, **more}, class_defaults).rope_dims

    assert dims() == (16,)
    assert dims(swa_rope_theta=5) == (16, 16)
    same = {"rope_type": "default", "rope_theta": 1e4}
    assert dims(rope_parameters={"full_attention": same, "sliding_attention": same}) == (16,)
    assert dims(rope_parameters={"full_attention": {**same, "rope_theta": 1e6}, "sliding_attention": same}) == (16, 16)


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ({}, set()),
        ({"runner": "generate"}, set()),
        ({"runner": "pooling"}, {"lm_head"}),
        ({"language_model_only": True}, {"vision", "audio"}),
        ({"limit_mm_per_prompt": Limits((("image", 0),))}, {"vision"}),
        ({"limit_mm_per_prompt": Limits((("image", 0), ("video", 1)))}, set()),
        ({"limit_mm_per_prompt": Limits((("audio", 0), ("image", 2)))}, {"audio"}),
    ],
)
def test_components_left_out(flags: dict[str, object], wanted: set[str]) -> None:
    assert loading.components_left_out(**flags) == wanted  # type: ignore[arg-type]


def test_a_pooling_model_loads_no_head() -> None:
    found = kvtax.architecture("Qwen/Qwen3-Embedding-8B")
    whole, pooled = (
        sum(sum_elements(rank_tensors(found, 1, without=without)).values())
        for without in (frozenset[str](), loading.components_left_out("pooling"))
    )
    assert whole - pooled == found.vocab_size * found.hidden_size


def test_latent_copies() -> None:
    quantised, plain = kvtax.architecture("deepseek-v3"), kvtax.architecture("deepseek-ai/DeepSeek-V2-Lite")
    heads, rank, width, layers = 128 // 8, 512, 128 + 128, 61
    assert loading.latent_copies_bytes(rank_tensors(quantised, 8), 2) == heads * rank * width * layers * 2
    assert loading.latent_copies_bytes(rank_tensors(plain, 1), 2) == 0
    assert loading.latent_copies_bytes(rank_tensors(plain, 1), 2, always=True) == 16 * rank * width * 27 * 2


def test_keys_that_are_values_too() -> None:
    """Five full layers of Gemma 4 26B have two key heads of 512 and no values."""
    found = kvtax.architecture("google/gemma-4-26B-A4B")
    assert loading.doubled_values_bytes(rank_tensors(found, 1)) == 5 * 2 * 512 * 2816 * 2
    assert loading.doubled_values_bytes(rank_tensors(kvtax.architecture("llama-3.1-8b"), 1)) == 0


@given(st.integers(1, 128), st.integers(1, 16))
def test_what_is_left_over_went_to_the_last_stage(layers: int, pp: int) -> None:
    sizes = [len(stage) for stage in stage_layers(layers, pp, balanced=False)]
    assert sum(sizes) == layers
    assert sizes[:-1] == [layers // pp] * (pp - 1)


def test_a_model_of_embeddings_is_run_for_pooling() -> None:
    fields = {"model": "Qwen/Qwen3-Embedding-8B", "gpu": "h100-80", "max_model_len": 8192}
    taken, asked, other = (
        kvtax.budget(**fields, **more) for more in ({}, {"runner": "pooling"}, {"runner": "generate"})
    )
    assert taken.memory == asked.memory
    assert other.memory.weights_bytes - taken.memory.weights_bytes == 151665 * 4096 * 2
    assert [notice.code for notice in taken.notices if notice.code == "pooling-runner"] == ["pooling-runner"]
