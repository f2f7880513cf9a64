"""GLM-5.3 Flash. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import MultiHeadLatent, Recurrent
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

TEXT = {
    "num_hidden_layers": 5, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 24,
    "kv_lora_rank": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
    "intermediate_size": 72, "vocab_size": 100, "index_kpool": 4,
    "linear_attn_config": {"head_dim": 16, "num_heads": 3, "short_conv_kernel_size": 3},
}  # fmt: skip
VISION = {
    "depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "out_hidden_size": 64,
    "projection_intermediate_size": 96,
}  # fmt: skip
TINY = {"model_type": "glm5_next", "text_config": TEXT, "vision_config": VISION}


def read(config):
    return read_architecture(config, class_defaults)


def test_parameters_and_caches():
    architecture = read(TINY)
    assert architecture.parameters == 589_954
    assert [type(cache) for cache in architecture.caches] == [Recurrent] * 3 + [MultiHeadLatent, Recurrent]
    assert architecture.caches[3] == MultiHeadLatent(16, 0, 132, 4)
    assert architecture.state_bytes() == 4 * (3 * 48 * 2 * 2 + 3 * 16 * 16 * 4)


def test_an_index_row_for_every_pool_of_tokens():
    cache = MultiHeadLatent(16, 0, 132, 4)
    assert cache.bytes(1003, "bfloat16") == 1003 * 32 + 250 * 132
    assert cache.growth("bfloat16") == 32 + 33


def test_spellings_give_the_same_answer():
    text = {key: value for key, value in TEXT.items() if key != "linear_attn_config"}
    text |= {"linear_head_dim": 16, "linear_num_heads": 3, "linear_conv_kernel_dim": 3}
    text["layer_types"] = ["linear_attention"] * 3 + ["full_attention", "linear_attention"]
    assert read({**TINY, "text_config": text}).parameters == 589_954
    flat = {"model_type": "glm5_next", "vision_config": VISION, **text}
    assert read(flat).parameters == 589_954
    assert {tensor.name for tensor in read(flat).tensors} == {tensor.name for tensor in read(TINY).tensors}


def test_defaults_of_the_class():
    assert read({"model_type": "glm5_next"}).parameters == 313_786_889_214
    text_alone = {"model_type": "glm5_next_text", "architectures": ["Glm5NextTextModel"]}
    assert read(text_alone).parameters == 312_692_428_286


def test_the_file_of_the_published_size_holds_one_mtp_layer():
    text = {"index_kpool": 4, "num_nextn_predict_layers": 1}
    config = {"model_type": "glm5_next", "text_config": text, "vision_config": {"out_hidden_size": 4096}}
    assert sum(tensor.elements for tensor in read(config).tensors) == 321_323_031_390


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"layer_types": ["mamba2"] * 5}, UnsupportedArchitectureError),
        ({"index_kpool": 0}, ConfigError),
        ({"indexer_types": ["shared"] * 5}, ConfigError),
        ({"linear_attn_config": {"num_heads": "three"}}, ConfigError),
    ],
)
def test_what_is_not_understood_and_what_is_impossible(change, error):
    with pytest.raises(error):
        read({**TINY, "text_config": {**TEXT, **change}})
