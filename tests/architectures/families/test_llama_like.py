"""The decoders that are Llama but for a few traits."""

import pytest

from kvtax.architectures.cache import SlidingWindow
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

BASE = {
    "num_hidden_layers": 5,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "intermediate_size": 96,
}


def read(**config):
    return read_architecture(config, class_defaults)


# parameter counts are those of transformers 5.24.0 for the same configs
@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (BASE | {"model_type": "mistral"}, 156_864),
        (BASE | {"model_type": "ministral", "head_dim": 16}, 208_064),
        (BASE | {"model_type": "ministral3", "head_dim": 16, "tie_word_embeddings": True}, 201_664),
        (BASE | {"model_type": "cohere", "use_qk_norm": True, "attention_bias": True}, 151_344),
        (BASE | {"model_type": "cohere2", "head_dim": 12}, 175_744),
        (BASE | {"model_type": "starcoder2", "use_bias": False}, 120_448),
        (BASE | {"model_type": "starcoder2"}, 122_048),
        (BASE | {"model_type": "stablelm", "qk_layernorm": True, "use_qkv_bias": True}, 158_448),
        (BASE | {"model_type": "stablelm", "use_parallel_residual": True}, 156_928),
        (BASE | {"model_type": "olmo"}, 156_160),
        (BASE | {"model_type": "olmo2", "attention_bias": True}, 158_064),
        (BASE | {"model_type": "olmo3"}, 157_264),
        (BASE | {"model_type": "granite", "mlp_bias": True}, 158_144),
        (BASE | {"model_type": "granite_swa"}, 150_504),
        (BASE | {"model_type": "hyperclovax"}, 157_504),
        (BASE | {"model_type": "hyperclovax", "use_post_norm": False}, 156_864),
        (BASE | {"model_type": "exaone4"}, 156_944),
        (BASE | {"model_type": "smollm3", "mlp_bias": True}, 151_744),
        (BASE | {"model_type": "seed_oss", "attention_out_bias": True}, 932_864),
        (BASE | {"model_type": "apertus"}, 126_234),
        (BASE | {"model_type": "apertus", "hidden_act": "silu"}, 126_224),
        (BASE | {"model_type": "arcee", "mlp_bias": True}, 126_944),
        (BASE | {"model_type": "helium", "head_dim": 8}, 156_864),
        (BASE | {"model_type": "ernie4_5", "use_bias": True}, 927_744),
        (BASE | {"model_type": "hunyuan_v1_dense", "head_dim": 16}, 208_224),
        (BASE | {"model_type": "nemotron"}, 126_848),
        (BASE | {"model_type": "cwm"}, 924_864),
        (BASE | {"model_type": "jais2"}, 128_448),
        (BASE | {"model_type": "diffllama"}, 157_024),
        (BASE | {"model_type": "nanochat"}, 125_440),
        (BASE | {"model_type": "bitnet"}, 157_664),
        (BASE | {"model_type": "doge"}, 157_754),
        (BASE | {"model_type": "doge", "is_moe": True, "num_experts": 30}, 180_154),
        (BASE | {"model_type": "minicpm", "tie_word_embeddings": False}, 156_864),
        (BASE | {"model_type": "xverse"}, 156_864),
    ],
)
def test_parameters(config, parameters):
    assert read(**config).parameters == parameters


def windows(**config):
    caches = read(**BASE | config).caches
    return [cache.window if isinstance(cache, SlidingWindow) else None for cache in caches]


@pytest.mark.parametrize("model_type", ["mistral", "ministral", "starcoder2"])
def test_one_window_for_all_layers(model_type):
    assert windows(model_type=model_type, sliding_window=7) == [7] * 5
    assert windows(model_type=model_type, sliding_window=None) == [None] * 5
    kinds = ["full_attention", *["sliding_attention"] * 4]
    assert windows(model_type=model_type, sliding_window=7, layer_types=kinds) == [None, 7, 7, 7, 7]


def test_class_default_of_the_window():
    assert windows(model_type="mistral") == [4096] * 5
    assert windows(model_type="ministral3") == [None] * 5


def test_patterns():
    assert windows(model_type="cohere2", sliding_window=7) == [7, 7, 7, None, 7]
    assert windows(model_type="cohere2", sliding_window=7, sliding_window_pattern=2) == [7, None, 7, None, 7]
    assert windows(model_type="olmo3", sliding_window=7) == [7, 7, 7, None, 7]
    assert windows(model_type="granite_swa", sliding_window=7) == [None, 7, 7, 7, None]
    assert windows(model_type="cwm", sliding_window=7) == [None, 7, 7, 7, None]


def test_exaone4_spells_its_pattern_in_numbers_or_letters():
    assert windows(model_type="exaone4", sliding_window=7, sliding_window_pattern=4) == [7, 7, 7, None, 7]
    # the last layer is full where letters say which ones are
    assert windows(model_type="exaone4", sliding_window=7, sliding_window_pattern="LLLG") == [7, 7, 7, None, None]
    assert windows(model_type="exaone4", sliding_window=None, sliding_window_pattern="LLLG") == [None] * 5
    with pytest.raises(UnsupportedArchitectureError, match="sliding_window_pattern"):
        windows(model_type="exaone4", sliding_window=7, sliding_window_pattern="LXG")


def test_smollm3_slides_where_it_has_no_rope():
    on = {"model_type": "smollm3", "use_sliding_window": True, "sliding_window": 7}
    assert windows(**on) == [None, None, None, 7, None]
    assert windows(**on, no_rope_layers=[0, 1, 1, 1, 1]) == [7, None, None, None, None]
    assert windows(**on | {"use_sliding_window": False}) == [None] * 5


def test_exaone_takes_its_own_key_for_layers():
    plain = read(model_type="exaone", **BASE)
    other = {key: value for key, value in BASE.items() if key != "num_hidden_layers"}
    assert read(model_type="exaone", num_layers=5, **other).parameters == plain.parameters
    assert any(tensor.name == "transformer.h.*.mlp.c_fc_0.weight" for tensor in plain.tensors)


def test_names_of_checkpoints():
    baichuan = {tensor.name: tensor for tensor in read(model_type="baichuan", **BASE).tensors}
    packed = baichuan["model.layers.*.self_attn.W_pack.weight"]
    assert packed.shape == (3 * 64, 64)
    assert packed.heads == (8, 8)
    apertus = [tensor for tensor in read(model_type="apertus", **BASE).tensors if not tensor.parameter]
    assert [tensor.name.rsplit(".", 1)[1] for tensor in apertus] == ["beta", "eps"]


def test_what_is_impossible_or_not_understood():
    with pytest.raises(ConfigError, match="hidden_size"):
        read(**BASE | {"model_type": "stablelm", "hidden_size": 65})
    with pytest.raises(ConfigError, match="even"):
        read(**BASE | {"model_type": "diffllama", "num_key_value_heads": 1})
    with pytest.raises(UnsupportedArchitectureError, match="num_experts"):
        read(model_type="minicpm", num_experts=8, **BASE)
