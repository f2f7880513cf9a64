"""The shape that most decoders share, in pieces that families put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache, SlidingWindow
from kvtax.architectures.config import Config
from kvtax.architectures.context import context_limit, rope_factors, usual_context
from kvtax.architectures.tensors import (
    COLUMN,
    EXPERT,
    HEADS,
    ROW,
    Tensor,
    embedding,
    linear,
    lm_head,
    norm,
)


class Shape:
    """The numbers that nearly every decoder's config gives, read and checked once."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.num_hidden_layers = config.integer("num_hidden_layers")
        self.hidden_size = config.integer("hidden_size")
        self.num_attention_heads = config.integer("num_attention_heads")
        self.num_key_value_heads = config.num_key_value_heads(self.num_attention_heads)
        self.head_dim = config.head_dim(self.hidden_size, self.num_attention_heads)
        self.vocab_size = config.integer("vocab_size")
        self.layers = tuple(range(self.num_hidden_layers))
        self.tied = config.tie_word_embeddings()


def attention(
    prefix: str,
    layers: tuple[int, ...],
    hidden_size: int,
    num_attention_heads: int,
    num_key_value_heads: int,
    head_dim: int,
    *,
    v_head_dim: int | None = None,
    qkv_bias: bool = False,
    o_bias: bool = False,
    qk_norm: str = "",
    qk_norm_bias: bool = False,
    names: Sequence[str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
    norm_names: Sequence[str] = ("q_norm", "k_norm"),
    query_width: int | None = None,
    component: str = "attention",
) -> list[Tensor]:
    """Query, key, value and output projections of grouped-query attention below `prefix`, such as `model.layers.*.self_attn`.

    q [num_attention_heads x head_dim, hidden_size], k [num_key_value_heads x head_dim, .], v [num_key_value_heads x v_head_dim, .],
    o [hidden_size, num_attention_heads x v_head_dim]; qk_norm `head`: one weight of head_dim, `full`: one over all heads.

    Args:
        prefix: module of the attention.
        layers: indices of the layers.
        hidden_size: width of the residual stream [elements].
        num_attention_heads: [heads].
        num_key_value_heads: [heads].
        head_dim: [elements].
        v_head_dim: where it differs from head_dim [elements].
        qkv_bias: whether q, k and v have a bias.
        o_bias: whether o has one.
        qk_norm: `head`, `full` or empty.
        qk_norm_bias: whether these norms have a bias.
        names: of the projections.
        norm_names: of the norms.
        query_width: output of q where it is more than the heads (a gate beside them) [elements].
        component: of the projections.

    Returns:
        The tensors.
    """
    values = v_head_dim or head_dim
    kv_heads = (0, num_key_value_heads)
    q, k, v, o = (f"{prefix}.{name}" for name in names)
    found = [
        *linear(
            q,
            query_width or num_attention_heads * head_dim,
            hidden_size,
            component,
            layers,
            bias=qkv_bias,
            shard=COLUMN,
        ),
        *linear(
            k,
            num_key_value_heads * head_dim,
            hidden_size,
            component,
            layers,
            bias=qkv_bias,
            shard=HEADS,
            heads=kv_heads,
        ),
        *linear(
            v, num_key_value_heads * values, hidden_size, component, layers, bias=qkv_bias, shard=HEADS, heads=kv_heads
        ),
        *linear(o, hidden_size, num_attention_heads * values, component, layers, bias=o_bias, shard=ROW),
    ]
    if qk_norm:
        full = qk_norm == "full"
        query, key = (f"{prefix}.{name}" for name in norm_names)
        found += norm(query, num_attention_heads * head_dim if full else head_dim, layers, bias=qk_norm_bias)
        found += norm(key, num_key_value_heads * head_dim if full else head_dim, layers, bias=qk_norm_bias)
    return found


def gated_mlp(
    prefix: str,
    layers: tuple[int, ...],
    hidden_size: int,
    intermediate_size: int,
    *,
    bias: bool = False,
    component: str = "mlp",
    names: Sequence[str] = ("gate_proj", "up_proj", "down_proj"),
    per_layer: int = 1,
) -> list[Tensor]:
    """gate and up [intermediate_size, hidden_size] and down [hidden_size, intermediate_size] below `prefix`."""
    up_shard, down_shard = (EXPERT, EXPERT) if component == "routed_experts" else (COLUMN, ROW)
    gate, up, down = (f"{prefix}.{name}" for name in names)
    return [
        *linear(
            gate, intermediate_size, hidden_size, component, layers, bias=bias, shard=up_shard, per_layer=per_layer
        ),
        *linear(up, intermediate_size, hidden_size, component, layers, bias=bias, shard=up_shard, per_layer=per_layer),
        *linear(
            down, hidden_size, intermediate_size, component, layers, bias=bias, shard=down_shard, per_layer=per_layer
        ),
    ]


def plain_mlp(
    prefix: str,
    layers: tuple[int, ...],
    hidden_size: int,
    intermediate_size: int,
    *,
    bias: bool = False,
    component: str = "mlp",
    names: Sequence[str] = ("fc1", "fc2"),
    per_layer: int = 1,
) -> list[Tensor]:
    """up [intermediate_size, hidden_size] and down [hidden_size, intermediate_size] below `prefix`."""
    up_shard, down_shard = (EXPERT, EXPERT) if component == "routed_experts" else (COLUMN, ROW)
    up, down = (f"{prefix}.{name}" for name in names)
    return [
        *linear(up, intermediate_size, hidden_size, component, layers, bias=bias, shard=up_shard, per_layer=per_layer),
        *linear(
            down, hidden_size, intermediate_size, component, layers, bias=bias, shard=down_shard, per_layer=per_layer
        ),
    ]


def experts(
    prefix: str,
    layers: tuple[int, ...],
    num_experts: int,
    hidden_size: int,
    moe_intermediate_size: int,
    *,
    router: str = "gate",
    router_bias: bool = False,
    correction_bias: str = "",
    names: Sequence[str] = ("gate_proj", "up_proj", "down_proj"),
    bias: bool = False,
) -> list[Tensor]:
    """A router [num_experts, hidden_size] and num_experts gated MLPs below `prefix`, such as `model.layers.*.mlp`.

    `correction_bias` names a persistent buffer [num_experts] of the router, kept in float32.
    """
    found = [Tensor(f"{prefix}.{router}.weight", (num_experts, hidden_size), "router", layers)]
    if router_bias:
        found.append(Tensor(f"{prefix}.{router}.bias", (num_experts,), "router", layers))
    if correction_bias:
        found.append(
            Tensor(f"{prefix}.{correction_bias}", (num_experts,), "router", layers, parameter=False, dtype="float32")
        )
    found += gated_mlp(
        f"{prefix}.experts.*", layers, hidden_size, moe_intermediate_size,
        component="routed_experts", names=names, per_layer=num_experts, bias=bias,
    )  # fmt: skip
    return found


def layers_where(kinds: Iterable[object], wanted: object) -> tuple[int, ...]:
    """Indices of the layers whose kind is `wanted`."""
    return tuple(index for index, kind in enumerate(kinds) if kind == wanted)


def attention_caches(
    config: Config,
    kinds: Sequence[str],
    num_key_value_heads: int,
    head_dim: int,
    *,
    v_head_dim: int | None = None,
    sliding_window: int | None = None,
) -> list[LayerCache]:
    """One cache per layer for layer types `full_attention` and `sliding_attention`.

    Raises:
        UnsupportedArchitectureError: another layer type, or sliding layers without a window.
    """
    values = v_head_dim or head_dim
    full = FullAttention(num_key_value_heads, head_dim, values)
    found: list[LayerCache] = []
    for index, kind in enumerate(kinds):
        if kind == "full_attention":
            found.append(full)
        elif kind == "sliding_attention":
            if sliding_window is None:
                config.fail("sliding_window", "is missing or null, but layer_types has sliding_attention layers")
            found.append(SlidingWindow(num_key_value_heads, head_dim, values, sliding_window))
        else:
            config.unsupported(f"layer_types[{index}]", f"layer type {ascii(kind)[:64]} is not understood")
    return found


def every_nth_full(num_hidden_layers: int, n: int) -> list[str]:
    """`full_attention` on every n-th layer (index n-1, 2n-1 ...), `sliding_attention` on the others."""
    return ["full_attention" if (index + 1) % n == 0 else "sliding_attention" for index in range(num_hidden_layers)]


def assemble(
    config: Config,
    shape: Shape,
    body: Iterable[Tensor],
    caches: Iterable[LayerCache],
    *,
    prefix: str = "",
    final_norm: Iterable[Tensor] | None = None,
    head: bool = True,
    head_bias: bool = False,
    embed_name: str = "model.embed_tokens",
    head_name: str = "lm_head",
    **facts: Any,
) -> Architecture:
    """An Architecture of embedding, the layers in `body`, a final norm and lm_head; all below `prefix`.

    `facts` are further fields of Architecture (num_experts, intermediate_size ...). A checkpoint of a class without a head
    (`...Model`, `...ForSequenceClassification`) has none: pass head=False, or leave it to `has_head`.
    """
    tensors = [*embedding(shape.vocab_size, shape.hidden_size, name=embed_name), *body]
    tensors += norm("model.norm", shape.hidden_size) if final_norm is None else final_norm
    if head and has_head(config):
        tensors += lm_head(shape.vocab_size, shape.hidden_size, shape.tied, name=head_name, bias=head_bias)
    elif config.parent is None:
        tensors += task_head(config, shape.hidden_size)
    fields: dict[str, Any] = {
        "num_key_value_heads": shape.num_key_value_heads,
        "num_attention_heads": shape.num_attention_heads,
        "head_dim": shape.head_dim,
        "rotary_dim": shape.head_dim,
        "max_position_embeddings": context_limit(config),
        "usual_context": usual_context(config),
    }
    fields.update(facts)
    fields.setdefault("rope_factors", rope_factors(config, fields["rotary_dim"]))
    return Architecture(
        model_type=config.model_type,
        name=config.architecture or config.model_type,
        tensors=[tensor._replace(name=prefix + tensor.name) for tensor in tensors] if prefix else tensors,
        caches=caches,
        num_hidden_layers=shape.num_hidden_layers,
        hidden_size=shape.hidden_size,
        vocab_size=shape.vocab_size,
        dtype=config.dtype() or "bfloat16",
        dtype_stated=bool(config.dtype()),
        defaults_used=config.defaults_used,
        **fields,
    )


_TASK_HEADS = (
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForRewardModel",
    "ForProcessRewardModel",
)


def has_head(config: Config) -> bool:
    """Whether the class of the checkpoint has a language-model head: not for `...Model` and the classification classes."""
    name = config.architecture
    return name.endswith("LMHeadModel") or not name.endswith(("Model", *_TASK_HEADS))


def task_head(config: Config, hidden_size: int) -> list[Tensor]:
    """The head of a classification or question answering class: `score` [labels, hidden_size] or `qa_outputs` [2, hidden_size].

    Labels: num_labels, else as many as id2label names, else 2. Engines keep such a head whole on every rank.
    """
    name = config.architecture
    if name.endswith("ForQuestionAnswering"):
        return linear("qa_outputs", 2, hidden_size, "other", bias=True)
    if not name.endswith(("ForSequenceClassification", "ForTokenClassification")):
        return []
    return linear("score", label_count(config), hidden_size, "other", bias=name.endswith("ForTokenClassification"))


def label_count(config: Config) -> int:
    """Labels of a classification head: num_labels, else as many as id2label names, else 2 [labels]."""
    named = config.root.values.get("id2label")
    return config.root.integer("num_labels", default=len(named) if isinstance(named, dict) and named else 2)
