"""Kimi Linear and the text model of Kimi K3. Parameter counts are those of transformers 5.24.0 for the same configs."""

import pytest

from kvtax.architectures.cache import MultiHeadLatent, Recurrent
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

BASE = {
    "model_type": "kimi_linear", "hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 4,
    "num_hidden_layers": 4, "vocab_size": 60, "intermediate_size": 24, "moe_intermediate_size": 8, "kv_lora_rank": 12,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "num_experts": 4, "num_experts_per_token": 2,
    "linear_attn_config": {
        "head_dim": 6, "num_heads": 3, "short_conv_kernel_size": 3, "full_attn_layers": [2, 4], "kda_layers": [1, 3],
    },
}  # fmt: skip


def read(config, **changes):
    return read_architecture({**config, **changes}, class_defaults)


def test_parameters_and_caches():
    architecture = read(BASE)
    assert architecture.parameters == 46_482
    assert architecture.active_parameters == 39_570
    assert [type(cache) for cache in architecture.caches] == [Recurrent, MultiHeadLatent] * 2
    assert architecture.kv_bytes_per_token() == 2 * (12 + 4) * 2
    # three convolutions in the model's dtype, the state in float32 whatever is asked for
    assert architecture.state_bytes() == 2 * (3 * 18 * 2 * 2 + 3 * 6 * 6 * 4)
    assert architecture.state_bytes(ssm_dtype="float16") == architecture.state_bytes()


def test_spellings_give_the_same_answer():
    other = {key: value for key, value in BASE.items() if key not in ("linear_attn_config", "num_experts")}
    other |= {"linear_head_dim": 6, "linear_num_heads": 3, "linear_conv_kernel_dim": 3, "num_local_experts": 4}
    found = read(other, layer_types=["linear_attention", "full_attention"] * 2)
    assert (found.tensors, found.caches) == (read(BASE).tensors, read(BASE).caches)


def test_what_k3_adds():
    attention = {**BASE["linear_attn_config"], "use_full_rank_gate": True}
    k3 = read(BASE, linear_attn_config=attention, routed_expert_hidden_size=16, latent_moe_use_norm=True,
              attn_res_block_size=2, mla_use_output_gate=True)  # fmt: skip
    names = {tensor.name.removeprefix("model.layers.*.") for tensor in k3.tensors}
    assert names >= {
        "self_attn.g_proj.weight", "mlp_res_norm.weight", "self_attention_res_proj.weight",
        "block_sparse_moe.routed_expert_norm.weight", "model.output_attn_res_proj.weight",
    }  # fmt: skip
    # A_log is padded in the file, not in memory
    logs = [tensor for tensor in k3.tensors if tensor.name.endswith("A_log")]
    assert [(tensor.shape, tensor.loaded, tensor.stored) for tensor in logs] == [
        ((3,), True, False),
        ((6,), False, True),
    ]


def test_what_is_not_understood_or_impossible():
    with pytest.raises(UnsupportedArchitectureError, match="sliding_attention"):
        read(BASE, layer_types=["sliding_attention"] * 4)
    for full, delta in (([2, 4], [1]), ([2, 4], [1, 2, 3]), ([2, 5], [1, 3])):
        attention = {**BASE["linear_attn_config"], "full_attn_layers": full, "kda_layers": delta}
        with pytest.raises(ConfigError, match="kda_layers"):
            read(BASE, linear_attn_config=attention)
