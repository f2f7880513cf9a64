"""DBRX: fused query, key and value, experts in every layer, two LayerNorms without bias."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_HEADS, Config
from kvtax.architectures.decoder import Shape, assemble, attention_caches
from kvtax.architectures.mixture import routed
from kvtax.architectures.tensors import EXPERT, HEADS, ROW, Tensor, linear, norm


class _Shape(Shape):
    """The numbers of DBRX, whose key/value heads stand in attn_config."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.num_hidden_layers = config.integer("num_hidden_layers", "n_layers")
        self.hidden_size = config.integer("hidden_size", "d_model")
        self.num_attention_heads = config.integer("num_attention_heads", "n_heads")
        if self.hidden_size % self.num_attention_heads:
            config.fail("n_heads", f"{self.num_attention_heads} does not divide d_model {self.hidden_size}")
        self.head_dim = self.hidden_size // self.num_attention_heads
        nested = config.sub("attn_config")
        self.num_key_value_heads = nested.integer("kv_n_heads", default=1, maximum=MAXIMUM_HEADS)
        if self.num_attention_heads % self.num_key_value_heads:
            nested.fail("kv_n_heads", f"{self.num_key_value_heads} does not divide n_heads {self.num_attention_heads}")
        self.vocab_size = config.integer("vocab_size")
        self.layers = tuple(range(self.num_hidden_layers))
        self.tied = False


def build(config: Config, *, prefix: str = "") -> Architecture:
    """One matrix for query, key and value; every layer's experts in three tensors of moe_num_experts x ffn_hidden_size rows.

    Source: transformers 5.24.0 models/dbrx/modeling_dbrx.py.
    """
    shape = _Shape(config)
    if config.boolean("tie_word_embeddings"):
        config.fail("tie_word_embeddings", "must be false: the model has an lm_head of its own")
    hidden, heads = shape.hidden_size, (shape.num_attention_heads, shape.num_key_value_heads)
    nested = config.sub("ffn_config")
    usual: dict[str, Any] = {"moe_num_experts": 4, "moe_top_k": 1, "ffn_hidden_size": 3584}
    numbers = routed(
        nested.retyped(**{key: value for key, value in usual.items() if key not in nested.values}),
        experts=("moe_num_experts",), used=("moe_top_k",), width=("ffn_hidden_size",),
    )  # fmt: skip
    block, layers = "transformer.blocks.*", shape.layers
    rows = numbers.num_experts * numbers.moe_intermediate_size
    fused = hidden + 2 * shape.num_key_value_heads * shape.head_dim
    body = [
        *linear(f"{block}.norm_attn_norm.attn.Wqkv", fused, hidden, "attention", layers, shard=HEADS, heads=heads),
        *linear(f"{block}.norm_attn_norm.attn.out_proj", hidden, hidden, "attention", layers, shard=ROW),
        *norm(f"{block}.norm_attn_norm.norm_1", hidden, layers),
        *norm(f"{block}.norm_attn_norm.norm_2", hidden, layers),
        Tensor(f"{block}.ffn.router.layer.weight", (numbers.num_experts, hidden), "router", layers),
    ]
    body += [
        Tensor(f"{block}.ffn.experts.mlp.{name}", (rows, hidden), "routed_experts", layers, shard=EXPERT, linear=True)
        for name in ("w1", "v1", "w2")
    ]
    caches = attention_caches(
        config, ["full_attention"] * shape.num_hidden_layers, shape.num_key_value_heads, shape.head_dim
    )
    return assemble(
        config, shape, body, caches, prefix=prefix, final_norm=norm("transformer.norm_f", hidden), embed_name="transformer.wte",
        intermediate_size=numbers.moe_intermediate_size, **numbers.facts(),
    )  # fmt: skip
