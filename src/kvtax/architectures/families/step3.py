"""Step 3.5 Flash and the text model of Step 3.7 Flash: windows with more query heads than full layers, experts beside a shared one."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_HEADS, MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.decoder import Shape, assemble, attention, attention_caches, layers_where
from kvtax.architectures.latent import dense_block, mtp_count, mtp_indices, mtp_layers
from kvtax.architectures.mixture import LAYER, Routed, others, per_layer, routed, shared_mlp, stated_sparse
from kvtax.architectures.tensors import COLUMN, EXPERT, Tensor, linear, norm


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Attention with norms of query and key and a gate per head; dense first layers, then experts that share one tensor a layer.

    Source: transformers 5.24.0 models/step3p7/modeling_step3p7.py, conversion_mapping.py; vllm 0.33.0
    model_executor/models/step3p5.py; MTP layers: the published sizes of Step-3.5-Flash and Step-3.7-Flash.
    """
    if not config.states("num_key_value_heads") and config.states("num_attention_groups"):
        config = config.retyped(num_key_value_heads=config.integer("num_attention_groups", maximum=MAXIMUM_HEADS))
    shape = Shape(config)
    count = mtp_count(config)
    kinds = per_layer(config, "layer_types", shape.num_hidden_layers, extra=count)
    kinds = ["full_attention"] * shape.num_hidden_layers if kinds is None else kinds
    sparse = _sparse_layers(config, shape, count)
    dense = others(shape.layers, sparse)
    sliding = _sliding_heads(config, shape)
    extra = mtp_indices(shape.num_hidden_layers, count)
    facts: dict[str, Any] = {}
    body = _attention(config, shape, layers_where(kinds, "full_attention"), shape.num_attention_heads)
    body += _attention(config, shape, layers_where(kinds, "sliding_attention"), sliding)
    if sparse:
        numbers = routed(
            config, experts=("n_routed_experts", "moe_num_experts", "num_experts", "num_local_experts"),
            used=("num_experts_per_tok", "moe_top_k"),
        )  # fmt: skip
        facts.update(numbers.facts())
        body += experts(config, shape, numbers, sparse)
    mtp: list[Tensor] = []
    if dense or extra:
        width = facts["intermediate_size"] = config.integer("intermediate_size")
        bias = config.boolean("mlp_bias")
        body += dense_block(f"{LAYER}.mlp", dense, shape.hidden_size, width, bias=bias)
        # MTP layers are windowed ones with a dense MLP and a head of their own
        decoder = [
            *_attention(config, shape, extra, sliding),
            *dense_block(f"{LAYER}.mlp", extra, shape.hidden_size, width, bias=bias),
        ]
        mtp = _mtp(shape, extra, decoder)
    window = config.optional_integer("sliding_window")
    caches = attention_caches(config, kinds, shape.num_key_value_heads, shape.head_dim, sliding_window=window)
    return assemble(config, shape, [*body, *mtp], caches, prefix=prefix, **facts)


def _sparse_layers(config: Config, shape: Shape, extra: int) -> tuple[int, ...]:
    """mlp_layer_types, else moe_layers_enum, else all layers from the fourth on."""
    stated = stated_sparse(config, shape.num_hidden_layers, extra=extra)
    if stated is None:
        stated = layers_enum(config, shape)
    return shape.layers[3:] if stated is None else stated


def layers_enum(config: Config, shape: Shape) -> tuple[int, ...] | None:
    """The layers that moe_layers_enum names (a list, or numbers with commas between), None where it is left out."""
    value = config.get("moe_layers_enum")
    if value is None:
        return None
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or len(parts) > MAXIMUM_LAYERS:
        config.fail("moe_layers_enum", f"must be a list of layers, not {describe(value)}")
    known = set()
    for part in parts:
        text = part.strip() if isinstance(part, str) else part
        if text == "":
            continue
        if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 8:
            text = int(text)
        if isinstance(text, bool) or not isinstance(text, int):
            config.fail("moe_layers_enum", f"holds {describe(part)}, which is not the number of a layer")
        known.add(text)
    return tuple(index for index in shape.layers if index in known)


def _sliding_heads(config: Config, shape: Shape) -> int:
    """Query heads of windowed layers: num_sliding_attention_heads, else attention_other_setting, else as in full layers."""
    heads = config.optional_integer("num_sliding_attention_heads", maximum=MAXIMUM_HEADS)
    if heads is None:
        other = config.sub("attention_other_setting", model_type="")
        heads = other.optional_integer("num_attention_heads", maximum=MAXIMUM_HEADS)
        for key, known in (("num_attention_groups", shape.num_key_value_heads), ("head_dim", shape.head_dim)):
            if (other.optional_integer(key) or known) != known:
                other.unsupported(key, f"windowed layers with another {key} than full layers are not understood")
    heads = heads or shape.num_attention_heads
    if heads % shape.num_key_value_heads:
        config.fail(
            "num_sliding_attention_heads",
            f"{shape.num_key_value_heads} key/value heads do not divide {heads} query heads",
        )
    return heads


def _attention(config: Config, shape: Shape, layers: tuple[int, ...], heads: int) -> list[Tensor]:
    """Attention and norms of `layers`, which have `heads` query heads; nothing without layers."""
    if not layers:
        return []
    bias = config.boolean("attention_bias")
    return [
        *attention(
            f"{LAYER}.self_attn", layers, shape.hidden_size, heads, shape.num_key_value_heads, shape.head_dim,
            qkv_bias=bias, o_bias=bias, qk_norm="head",
        ),
        *linear(f"{LAYER}.self_attn.g_proj", heads, shape.hidden_size, "attention", layers, shard=COLUMN),
        *norm(f"{LAYER}.input_layernorm", shape.hidden_size, layers),
        *norm(f"{LAYER}.post_attention_layernorm", shape.hidden_size, layers),
    ]  # fmt: skip


def experts(config: Config, shape: Shape, numbers: Routed, layers: tuple[int, ...]) -> list[Tensor]:
    """Router with its bias, routed experts (three tensors a layer) and the shared expert."""
    count, width, hidden = numbers.num_experts, numbers.moe_intermediate_size, shape.hidden_size
    found = [
        Tensor(f"{LAYER}.moe.gate.weight", (count, hidden), "router", layers),
        Tensor(f"{LAYER}.moe.router_bias", (count,), "router", layers, parameter=False, dtype="float32"),
    ]
    for name, sizes in (("gate_proj", (width, hidden)), ("up_proj", (width, hidden)), ("down_proj", (hidden, width))):
        found.append(
            Tensor(f"{LAYER}.moe.{name}.weight", (count, *sizes), "routed_experts", layers, shard=EXPERT, linear=True)
        )
    shared = config.integer("share_expert_dim", "share_expert_dims", minimum=0, maximum=MAXIMUM_EXPERTS * 256)
    return found + shared_mlp(f"{LAYER}.share_expert", layers, hidden, shared, bias=config.boolean("mlp_bias"))


def _mtp(shape: Shape, layers: tuple[int, ...], decoder: list[Tensor]) -> list[Tensor]:
    """MTP layers: the decoder layer behind norms and a projection, with a head but no embedding of its own."""
    found = mtp_layers(layers, shape.hidden_size, shape.vocab_size, decoder)
    return [
        tensor._replace(name=tensor.name.replace("shared_head.head", "transformer.shared_head.output").replace(
            "layers.*.shared_head.norm", "layers.*.transformer.shared_head.norm"))
        for tensor in found if ".embed_tokens." not in tensor.name
    ]  # fmt: skip
