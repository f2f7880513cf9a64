"""One description for dense decoders that differ in names, biases, norms, windows and in what is fused."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import Shape, assemble, attention, attention_caches, gated_mlp, plain_mlp
from kvtax.architectures.tensors import COLUMN, HEADS, ROW, Tensor, linear, norm
from kvtax.architectures.windows import FULL, SLIDING, Rule, no_windows

# a fixed answer, or the key of the config that gives it
Flag = bool | str


class Layout(NamedTuple):
    """How the layers of a family look; the defaults are Llama's.

    Args:
        windows: the rule that says which layers slide.
        norms: of a layer, of hidden_size each.
        norm_bias: whether they, and the final one, have a bias.
        final_norm: after the last layer, empty for none.
        qkv: the three projections, or the one that holds all.
        o_proj: the output projection.
        qkv_bias: of the projections in.
        o_bias: of the projection out.
        square_o: the output projection is [hidden_size, hidden_size] whatever the heads are.
        qk_norm: `head` (one weight of head_dim), `square` (of hidden_size / num_attention_heads), `full` (over all
            heads at once), `heads` (a row per head), `per_head` (a module per head) or empty.
        qk_norm_names: of query and key.
        qk_norm_bias: whether they have a bias.
        mlp: gate, up, down; or up, down for an MLP without a gate (see `fused_gate`).
        fused_gate: the first of two holds gate and up.
        mlp_bias: of all of them.
        any_head_dim: whether the head_dim of a config counts, else it is hidden_size / num_attention_heads.
        transposed: weights are kept [in, out].
        root, layers, attention, mlp_module, embed, head: names of modules; without mlp_module the layer holds the MLP.
        head_bias: whether lm_head has a bias.
        rotary: share of head_dim that rope turns unless the config says otherwise, 0 without rope.
    """

    windows: Rule = no_windows
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    norm_bias: bool = False
    final_norm: str = "norm"
    qkv: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    o_proj: str = "o_proj"
    qkv_bias: Flag = False
    o_bias: Flag = False
    square_o: bool = False
    qk_norm: str = ""
    qk_norm_names: tuple[str, str] = ("q_norm", "k_norm")
    qk_norm_bias: bool = False
    mlp: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    fused_gate: bool = False
    mlp_bias: Flag = False
    any_head_dim: bool = True
    transposed: bool = False
    root: str = "model"
    layers: str = "layers"
    attention: str = "self_attn"
    mlp_module: str = "mlp"
    embed: str = "embed_tokens"
    head: str = "lm_head"
    head_bias: bool = False
    rotary: float = 1.0

    @property
    def layer(self) -> str:
        """The module of a layer."""
        return f"{self.root}.{self.layers}.*"


def flag(config: Config, value: Flag) -> bool:
    """A fixed answer, or what the config says under the key."""
    return config.boolean(value) if isinstance(value, str) else value


def square_head_dim(shape: Shape) -> int:
    """hidden_size / num_attention_heads.

    Raises:
        ConfigError: it is not a whole number.
    """
    if shape.hidden_size % shape.num_attention_heads:
        shape.config.fail(
            "hidden_size", f"{shape.hidden_size} is not a multiple of the {shape.num_attention_heads} attention heads"
        )
    return shape.hidden_size // shape.num_attention_heads


def rotary_dim(config: Config, head_dim: int, share: float) -> int:
    """Width that rope turns: head_dim x partial_rotary_factor (rotary_pct), also from rope_parameters [elements]."""
    if not share:
        return 0
    stated = config.values.get("rope_parameters") or config.values.get("rope_scaling")
    nested = stated.get("partial_rotary_factor") if isinstance(stated, dict) else None
    if isinstance(nested, (int, float)) and not isinstance(nested, bool):
        share = nested
    elif config.states("partial_rotary_factor", "rotary_pct"):
        share = config.number("partial_rotary_factor", "rotary_pct")
    if not 0 <= share <= 1:
        config.fail("partial_rotary_factor", "must be between 0 and 1")
    return int(head_dim * share)


def _attention(config: Config, layout: Layout, shape: Shape) -> list[Tensor]:
    """The projections of the attention, and its norms."""
    prefix = f"{layout.layer}.{layout.attention}"
    heads, kv_heads, width = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
    qkv_bias, o_bias = flag(config, layout.qkv_bias), flag(config, layout.o_bias)
    if len(layout.qkv) == 3:
        found = attention(
            prefix, shape.layers, shape.hidden_size, heads, kv_heads, width,
            qkv_bias=qkv_bias, o_bias=o_bias, names=(*layout.qkv, layout.o_proj),
        )  # fmt: skip
    else:
        fused = (heads + 2 * kv_heads) * width
        found = [
            *linear(
                f"{prefix}.{layout.qkv[0]}", fused, shape.hidden_size, "attention", shape.layers,
                bias=qkv_bias, shard=HEADS, heads=(heads, kv_heads),
            ),
            *linear(
                f"{prefix}.{layout.o_proj}", shape.hidden_size, heads * width, "attention", shape.layers,
                bias=o_bias, shard=ROW,
            ),
        ]  # fmt: skip
    if layout.square_o:
        found = [
            tensor._replace(shape=(shape.hidden_size, shape.hidden_size))
            if tensor.name == f"{prefix}.{layout.o_proj}.weight"
            else tensor
            for tensor in found
        ]
    return found + _qk_norms(layout, shape, prefix)


def _qk_norms(layout: Layout, shape: Shape, prefix: str) -> list[Tensor]:
    """Norms of query and key."""
    found: list[Tensor] = []
    for name, heads in zip(layout.qk_norm_names, (shape.num_attention_heads, shape.num_key_value_heads), strict=True):
        module = f"{prefix}.{name}"
        if layout.qk_norm in ("head", "square"):
            width = shape.head_dim if layout.qk_norm == "head" else shape.hidden_size // shape.num_attention_heads
            found += norm(module, width, shape.layers, bias=layout.qk_norm_bias)
        elif layout.qk_norm == "full":
            found += norm(module, heads * shape.head_dim, shape.layers, bias=layout.qk_norm_bias)
        elif layout.qk_norm == "heads":
            found.append(Tensor(f"{module}.weight", (heads, shape.head_dim), "norms", shape.layers))
        elif layout.qk_norm == "per_head":
            found.append(Tensor(f"{module}.norms.*.weight", (shape.head_dim,), "norms", shape.layers, heads))
    return found


def _mlp(config: Config, layout: Layout, shape: Shape, intermediate_size: int) -> list[Tensor]:
    """The MLP, with or without a gate."""
    prefix = f"{layout.layer}.{layout.mlp_module}" if layout.mlp_module else layout.layer
    bias = flag(config, layout.mlp_bias)
    if len(layout.mlp) == 3:
        return gated_mlp(prefix, shape.layers, shape.hidden_size, intermediate_size, bias=bias, names=layout.mlp)
    if not layout.fused_gate:
        return plain_mlp(prefix, shape.layers, shape.hidden_size, intermediate_size, bias=bias, names=layout.mlp)
    up, down = (f"{prefix}.{name}" for name in layout.mlp)
    return [
        *linear(up, 2 * intermediate_size, shape.hidden_size, "mlp", shape.layers, bias=bias, shard=COLUMN),
        *linear(down, shape.hidden_size, intermediate_size, "mlp", shape.layers, bias=bias, shard=ROW),
    ]


def layer_tensors(config: Config, layout: Layout, shape: Shape, intermediate_size: int) -> list[Tensor]:
    """All tensors of the layers of `shape`."""
    body = [*_attention(config, layout, shape), *_mlp(config, layout, shape, intermediate_size)]
    if layout.transposed:
        body = [tensor._replace(shape=tensor.shape[::-1]) for tensor in body]
    for name in layout.norms:
        body += norm(f"{layout.layer}.{name}", shape.hidden_size, shape.layers, bias=layout.norm_bias)
    return body


def build_layout(
    config: Config,
    layout: Layout,
    *,
    prefix: str = "",
    shape: Shape | None = None,
    intermediate_size: int | None = None,
    embedding_width: int | None = None,
    extra: Callable[[Shape], list[Tensor]] | None = None,
    **facts: Any,
) -> Architecture:
    """The Architecture that a layout describes.

    Args:
        config: of the text model.
        layout: of its family.
        prefix: module that everything stands below.
        shape: the sizes, where the family reads them in its own way.
        intermediate_size: the same; None: the key `intermediate_size` [elements].
        embedding_width: columns of embedding and head where they are not hidden_size [elements].
        extra: gives what the family has besides.
        facts: further fields for `assemble`.

    Returns:
        The Architecture.
    """
    if shape is None:
        shape = Shape(config)
        if not layout.any_head_dim:
            shape.head_dim = square_head_dim(shape)
    width = config.integer("intermediate_size") if intermediate_size is None else intermediate_size
    kinds, window = layout.windows(config, shape.num_hidden_layers)
    if window is None:
        # a null window is no window
        kinds = [FULL if kind == SLIDING else kind for kind in kinds]
    caches = attention_caches(config, kinds, shape.num_key_value_heads, shape.head_dim, sliding_window=window)
    body = layer_tensors(config, layout, shape, width)
    if extra is not None:
        body += extra(shape)
    final = f"{layout.root}.{layout.final_norm}"
    facts.setdefault("rotary_dim", rotary_dim(config, shape.head_dim, layout.rotary))
    facts.setdefault("final_norm", norm(final, shape.hidden_size, bias=layout.norm_bias) if layout.final_norm else [])
    outer = shape
    if embedding_width is not None and embedding_width != shape.hidden_size:
        outer = copy(shape)
        outer.hidden_size = embedding_width
    return assemble(
        config, outer, body, caches, prefix=prefix, intermediate_size=width, head_bias=layout.head_bias,
        embed_name=f"{layout.root}.{layout.embed}", head_name=layout.head, **facts,
    ).replace(hidden_size=shape.hidden_size)  # fmt: skip
