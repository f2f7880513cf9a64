"""GPT-2 and what grew from it."""

import pytest

from kvtax.architectures.cache import FullAttention
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

BASE = {"num_hidden_layers": 5, "hidden_size": 64, "num_attention_heads": 8, "vocab_size": 100}


def read(**config):
    return read_architecture(config, class_defaults)


# parameter counts are those of transformers 5.24.0 for the same configs
@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (BASE | {"model_type": "gpt2"}, 321_984),
        (BASE | {"model_type": "gpt2", "n_inner": 50, "tie_word_embeddings": False, "n_positions": 77}, 134_906),
        (BASE | {"model_type": "gpt2", "add_cross_attention": True}, 405_824),
        (BASE | {"model_type": "gpt_bigcode"}, 285_584),
        (BASE | {"model_type": "gpt_bigcode", "multi_query": False, "n_inner": 80}, 208_464),
        (
            BASE
            | {
                "model_type": "gpt_neo",
                "attention_types": [[["global", "local"], 2], [["global"], 1]],
                "intermediate_size": 70,
            },
            266_590,
        ),
        (BASE | {"model_type": "gptj", "tie_word_embeddings": True}, 254_628),
        (BASE | {"model_type": "codegen", "n_inner": 80}, 147_508),
        (BASE | {"model_type": "openai-gpt"}, 289_088),
        (BASE | {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, 321_984),
        (BASE | {"model_type": "gpt2", "architectures": ["GPT2Model"]}, 321_984),
    ],
)
def test_parameters(config, parameters):
    assert read(**config).parameters == parameters


def test_spellings():
    short = {"n_layer": 5, "n_embd": 64, "n_head": 8, "vocab_size": 100}
    assert read(model_type="gpt2", **short).parameters == read(model_type="gpt2", **BASE).parameters


def test_matrices_are_kept_input_first():
    shapes = {tensor.name: tensor.shape for tensor in read(model_type="gpt2", **BASE).tensors}
    assert shapes["transformer.h.*.attn.c_attn.weight"] == (64, 192)
    assert shapes["transformer.h.*.mlp.c_proj.weight"] == (256, 64)
    shapes = {tensor.name: tensor.shape for tensor in read(model_type="gpt_bigcode", **BASE).tensors}
    assert shapes["transformer.h.*.attn.c_attn.weight"] == (64 + 2 * 8, 64)


def test_caches():
    assert read(model_type="gpt2", **BASE).caches == (FullAttention(8, 8, 8, 0),) * 5
    assert read(model_type="gpt_bigcode", **BASE).caches[0].num_key_value_heads == 1
    local = read(model_type="gpt_neo", attention_types=[[["local"], 5]], **BASE)
    assert local.caches == (FullAttention(8, 8, 8, 0),) * 5


def test_rope():
    assert read(model_type="gpt2", **BASE).rotary_dim == 0
    assert read(model_type="gptj", rotary_dim=4, **BASE).rotary_dim == 4
    assert read(model_type="gptj", rotary_dim=None, **BASE).rotary_dim == 8


def test_what_is_impossible_or_not_understood():
    with pytest.raises(ConfigError, match="describes 4 layers"):
        read(model_type="gpt_neo", attention_types=[[["global"], 4]], **BASE)
    with pytest.raises(UnsupportedArchitectureError, match="attention_types"):
        read(model_type="gpt_neo", attention_types=[[["strided"], 5]], **BASE)
    with pytest.raises(UnsupportedArchitectureError, match="multi_query"):
        read(model_type="gpt_bigcode", add_cross_attention=True, **BASE)
