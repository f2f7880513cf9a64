"""OPT, XGLM and BioGPT."""

import pytest

from kvtax.architectures.cache import FullAttention
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError
from kvtax.sources.class_defaults import class_defaults

BASE = {"num_hidden_layers": 5, "hidden_size": 64, "num_attention_heads": 8, "vocab_size": 100}


def read(**config):
    return read_architecture(config, class_defaults)


# parameter counts are those of transformers 5.24.0 for the same configs
@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (BASE | {"model_type": "opt", "ffn_dim": 96}, 284_448),
        (
            BASE | {"model_type": "opt", "ffn_dim": 96, "word_embed_proj_dim": 16, "do_layer_norm_before": False},
            281_568,
        ),
        (
            BASE
            | {
                "model_type": "opt",
                "ffn_dim": 96,
                "enable_bias": False,
                "layer_norm_elementwise_affine": False,
                "tie_word_embeddings": False,
            },
            287_360,
        ),
        (BASE | {"model_type": "opt", "_remove_final_layer_norm": True}, 2_203_840),
        (BASE | {"model_type": "xglm"}, 2_733_248),
        (BASE | {"model_type": "xglm", "add_cross_attention": True}, 2_817_088),
        (BASE | {"model_type": "biogpt", "intermediate_size": 96}, 218_912),
    ],
)
def test_parameters(config, parameters):
    assert read(**config).parameters == parameters


def test_narrow_embedding():
    found = read(model_type="opt", word_embed_proj_dim=16, **BASE)
    shapes = {tensor.name: tensor.shape for tensor in found.tensors}
    assert shapes["model.decoder.embed_tokens.weight"] == (100, 16)
    assert shapes["model.decoder.project_in.weight"] == (64, 16)
    assert shapes["model.decoder.embed_positions.weight"] == (2050, 64)
    assert found.hidden_size == 64


def test_caches():
    assert read(model_type="opt", **BASE).caches == (FullAttention(8, 8, 8, 0),) * 5


def test_what_is_impossible():
    with pytest.raises(ConfigError, match="ffn_dim"):
        read(model_type="opt", ffn_dim=-1, **BASE)
