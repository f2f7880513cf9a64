"""LongCat Flash. Counts are those of transformers 5.24.0 less the projections that it gives to zero experts."""

import pytest

from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError
from kvtax.sources.class_defaults import class_defaults

TINY = {
    "model_type": "longcat_flash", "num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "q_lora_rank": 24,
    "kv_lora_rank": 16, "n_routed_experts": 4, "zero_expert_num": 3, "moe_topk": 2, "expert_ffn_hidden_size": 40,
    "ffn_hidden_size": 72, "vocab_size": 100,
}  # fmt: skip


def read(config):
    return read_architecture(config, class_defaults)


def test_parameters_and_caches():
    architecture = read(TINY)
    zero_experts = 2 * 3 * 2 * 40 * 64
    assert architecture.parameters == 458_848 - zero_experts
    assert len(architecture.caches) == architecture.num_hidden_layers == 4
    assert architecture.kv_bytes_per_token() == 4 * 2 * (16 + 64)


def test_the_file_of_the_published_size_holds_one_mtp_layer():
    assert sum(tensor.elements for tensor in read({"model_type": "longcat_flash"}).tensors) == 561_862_880_256


def test_spellings_give_the_same_answer():
    names = {"ffn_hidden_size": "intermediate_size", "expert_ffn_hidden_size": "moe_intermediate_size"}
    names |= {"moe_topk": "num_experts_per_tok", "n_routed_experts": "num_local_experts"}
    other = {names.get(key, key): value for key, value in TINY.items() if key != "num_layers"}
    assert read({**other, "num_hidden_layers": 4}).parameters == read(TINY).parameters


@pytest.mark.parametrize(
    "change", [{"num_hidden_layers": 1}, {"q_lora_rank": None}, {"moe_topk": 8}, {"num_layers": 0}]
)
def test_impossible_values(change):
    with pytest.raises(ConfigError):
        read({**TINY, **change})
