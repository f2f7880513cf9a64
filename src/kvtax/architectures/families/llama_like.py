"""Decoders that are Llama but for a few biases, norms, names and windows: one row of traits per model type."""

from __future__ import annotations

import math
from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import Shape
from kvtax.architectures.layout import Layout, build_layout, square_head_dim
from kvtax.architectures.tensors import Tensor, linear, norm
from kvtax.architectures.windows import every_nth, exaone4, first_of_four, smollm3, uniform

_POST_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")
_BIASED = Layout(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias")
_COHERE = Layout(norms=("input_layernorm",), qkv_bias="attention_bias", o_bias="attention_bias")
_OLMO2 = Layout(norms=_POST_NORMS, qk_norm="full", qkv_bias="attention_bias", o_bias="attention_bias")
_UP_DOWN = ("up_proj", "down_proj")

LAYOUTS: dict[str, Layout] = {
    "mistral": Layout(windows=uniform),
    "ministral": Layout(windows=uniform),
    "ministral3": Layout(windows=uniform),
    "cohere": _COHERE,
    "cohere2": _COHERE._replace(windows=every_nth(4, "sliding_window_pattern")),
    "starcoder2": Layout(
        windows=uniform, norm_bias=True, qkv_bias="use_bias", o_bias="use_bias", mlp=("c_fc", "c_proj"),
        mlp_bias="use_bias",
    ),
    "stablelm": Layout(
        norm_bias=True, qkv_bias="use_qkv_bias", any_head_dim=False, rotary=0.25,
        qk_norm_names=("q_layernorm", "k_layernorm"),
    ),
    # norms without weights, before every block and at the end
    "olmo": Layout(norms=(), final_norm="", qkv_bias="attention_bias", o_bias="attention_bias"),
    "olmo2": _OLMO2,
    "olmo3": _OLMO2._replace(windows=every_nth(4)),
    "granite": _BIASED,
    "granite_swa": _BIASED._replace(windows=first_of_four),
    "hyperclovax": _BIASED,
    "exaone": _BIASED._replace(
        root="transformer", layers="h", embed="wte", final_norm="ln_f", attention="attn.attention", o_proj="out_proj",
        norms=("ln_1", "ln_2"), mlp=("c_fc_0", "c_fc_1", "c_proj"),
    ),
    "exaone4": Layout(windows=exaone4, norms=_POST_NORMS, qk_norm="head"),
    "smollm3": _BIASED._replace(windows=smollm3),
    "seed_oss": _BIASED._replace(o_bias="attention_out_bias"),
    "apertus": Layout(
        norms=("attention_layernorm", "feedforward_layernorm"), qk_norm="head", qkv_bias="attention_bias",
        o_bias="attention_bias", mlp=_UP_DOWN,
    ),
    "arcee": _BIASED._replace(mlp=_UP_DOWN),
    "helium": _BIASED._replace(o_bias=False, square_o=True),
    "ernie4_5": Layout(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias"),
    "hunyuan_v1_dense": Layout(
        qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="head",
        qk_norm_names=("query_layernorm", "key_layernorm"),
    ),
    "nemotron": _BIASED._replace(mlp=_UP_DOWN, norm_bias=True, rotary=0.5),
    "cwm": Layout(windows=first_of_four, mlp_bias="mlp_bias"),
    "jais2": _BIASED._replace(mlp=_UP_DOWN, norm_bias=True),
    "iquestcoder": _BIASED,
    "diffllama": Layout(qkv_bias="attention_bias", o_bias="attention_bias"),
    "nanochat": Layout(norms=(), final_norm="", qkv_bias="attention_bias", o_bias="attention_bias", mlp=("fc1", "fc2")),
    "bitnet": Layout(qkv_bias="attention_bias", o_bias="attention_bias"),
    "doge": _BIASED._replace(windows=uniform, qk_norm="head"),
    "baichuan": Layout(qkv=("W_pack",), any_head_dim=False),
    "minicpm": Layout(qkv_bias="attention_bias", o_bias="attention_bias", any_head_dim=False),
    "orion": Layout(norm_bias=True, any_head_dim=False),
    "xverse": Layout(any_head_dim=False),
}  # fmt: skip


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention and an MLP, with the traits of LAYOUTS and what `_adapted` and `_extra` add.

    Source: transformers 5.24.0 models/<model type>/modeling_<model type>.py; for baichuan, minicpm, orion and xverse
    modeling_<model type>.py of the model's own repository.
    """
    facts: dict[str, Any] = {}
    kind = config.model_type
    if kind == "doge" and config.boolean("is_moe"):
        facts = {
            "num_experts": config.integer("num_experts", maximum=2**24),
            "num_experts_per_tok": config.integer("num_experts_per_tok", maximum=2**24),
        }
    if kind in ("baichuan", "minicpm", "xverse") and config.states("num_experts"):
        config.unsupported("num_experts", "routed experts are not understood in this family")
    layout = _adapted(config, LAYOUTS[kind])
    if kind == "baichuan":
        shape = Shape(config)
        shape.num_key_value_heads, shape.head_dim = shape.num_attention_heads, square_head_dim(shape)
        return build_layout(config, layout, prefix=prefix, shape=shape)
    return build_layout(config, layout, prefix=prefix, extra=lambda shape: _extra(config, shape), **facts)


def _adapted(config: Config, layout: Layout) -> Layout:
    """The layout with what keys of the config switch on and off."""
    kind = config.model_type
    if kind == "cohere" and config.boolean("use_qk_norm"):
        return layout._replace(qk_norm="heads")
    if kind == "stablelm":
        if config.boolean("qk_layernorm"):
            layout = layout._replace(qk_norm="per_head")
        if config.boolean("use_parallel_residual"):
            layout = layout._replace(norms=layout.norms[:1])
    if kind == "hyperclovax" and config.boolean("use_post_norm"):
        return layout._replace(norms=(*layout.norms, "post_norm1", "post_norm2"))
    return layout


def _extra(config: Config, shape: Shape) -> list[Tensor]:
    """What a few families have besides: attention sinks, parameters of an activation, scales."""
    kind, layers = config.model_type, shape.layers
    layer = "model.layers.*"
    if kind == "granite_swa":
        return [Tensor(f"{layer}.self_attn.sinks", (shape.num_attention_heads,), "attention", layers)]
    if kind == "apertus" and config.string("hidden_act") == "xielu":
        return [
            *(Tensor(f"{layer}.mlp.act_fn.{name}", (1,), "mlp", layers) for name in ("alpha_p", "alpha_n")),
            *(Tensor(f"{layer}.mlp.act_fn.{name}", (), "mlp", layers, parameter=False) for name in ("beta", "eps")),
        ]
    if kind == "diffllama":
        if shape.num_key_value_heads % 2:
            config.fail("num_key_value_heads", "must be even: differential attention splits the values in two")
        names = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")
        return [Tensor(f"{layer}.self_attn.{name}", (shape.head_dim,), "attention", layers) for name in names]
    if kind == "bitnet":
        intermediate_size = config.integer("intermediate_size")
        return [
            *norm(f"{layer}.self_attn.attn_sub_norm", shape.hidden_size, layers),
            *norm(f"{layer}.mlp.ffn_sub_norm", intermediate_size, layers),
        ]
    return _doge(config, shape) if kind == "doge" else []


def _doge(config: Config, shape: Shape) -> list[Tensor]:
    """Doge's dynamic mask, its residual scales and, in its MoE form, experts of one row each behind a key router."""
    layer, layers, hidden_size = "model.layers.*", shape.layers, shape.hidden_size
    kv_heads = shape.num_key_value_heads
    found = [
        Tensor(f"{layer}.input_residual", (hidden_size,), "other", layers),
        Tensor(f"{layer}.post_attention_residual", (hidden_size,), "other", layers),
        Tensor(f"{layer}.self_attn.A", (kv_heads,), "attention", layers),
        *linear(
            f"{layer}.self_attn.dt_proj", kv_heads, kv_heads * shape.head_dim, "attention", layers,
            bias=config.boolean("attention_bias"),
        ),
    ]  # fmt: skip
    if config.boolean("is_moe"):
        experts = config.integer("num_experts", maximum=2**24)
        found += linear(f"{layer}.mlp.router_gate", 2 * math.isqrt(experts), hidden_size, "router", layers)
        found += [
            Tensor(f"{layer}.mlp.{name}.weight", (experts, hidden_size), "routed_experts", layers)
            for name in ("down_embed", "up_embed")
        ]
    return found
