"""Pieces that decoders with routed experts and ordinary attention share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvtax.architectures.config import MAXIMUM_EXPERTS, Config, describe
from kvtax.architectures.decoder import Shape, attention, gated_mlp, layers_where
from kvtax.architectures.tensors import Tensor, norm

LAYER = "model.layers.*"


class Routed(NamedTuple):
    """How many experts a layer has, how many of them a token uses, and how wide one is."""

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int

    def facts(self) -> dict[str, Any]:
        """The fields of an Architecture."""
        return dict(zip(self._fields, self, strict=True))


def routed(
    config: Config,
    *,
    experts: Sequence[str] = ("num_experts", "num_local_experts", "n_routed_experts"),
    used: Sequence[str] = ("num_experts_per_tok",),
    width: Sequence[str] = ("moe_intermediate_size",),
) -> Routed:
    """The numbers of the routed experts, under the keys of the family.

    Args:
        config: of the text model.
        experts: spellings of the number of experts, the one that wins first.
        used: spellings of the experts per token.
        width: spellings of the width of one expert.

    Returns:
        The numbers.

    Raises:
        ConfigError: one is missing or impossible, or a token uses more experts than there are.
    """
    count = config.integer(*experts, maximum=MAXIMUM_EXPERTS)
    per_token = config.integer(*used, maximum=MAXIMUM_EXPERTS)
    if per_token > count:
        config.fail(used[0], f"{per_token} is more than the {count} experts that there are")
    return Routed(count, per_token, config.integer(*width))


def stated_sparse(config: Config, num_hidden_layers: int, *, extra: int = 0) -> tuple[int, ...] | None:
    """Layers that mlp_layer_types calls sparse, None where the config has no such list.

    Args:
        config: of the text model.
        num_hidden_layers: [layers].
        extra: MTP layers for which the list may go on [layers].

    Raises:
        ConfigError: not one entry per layer.
        UnsupportedArchitectureError: another word than dense and sparse.
    """
    kinds = per_layer(config, "mlp_layer_types", num_hidden_layers, extra=extra)
    if kinds is None:
        return None
    for kind in kinds:
        if kind not in ("dense", "sparse"):
            config.unsupported("mlp_layer_types", f"MLP type {describe(kind)} is not understood")
    return layers_where(kinds, "sparse")


def per_layer(config: Config, key: str, num_hidden_layers: int, *, extra: int = 0) -> list[str] | None:
    """A list of one string per layer, cut to the decoder's layers where it goes on for `extra` MTP layers; None without one."""
    values = config.optional_list(key)
    if extra and values is not None and len(values) == num_hidden_layers + extra:
        changes: dict[str, Any] = {key: values[:num_hidden_layers]}
        config = config.retyped(**changes)
    return config.layer_types(num_hidden_layers, key)


def flags(config: Config, key: str, num_hidden_layers: int) -> tuple[int, ...] | None:
    """Layers for which a list of 0 and 1 (or false and true) says 1, None where the config has no such list.

    Entries beyond the last layer do not count, as in code that looks its own layer up in the list.

    Raises:
        ConfigError: not a list of 0 and 1, or fewer of them than layers.
    """
    values = config.optional_list(key)
    if values is None:
        return None
    if len(values) < num_hidden_layers:
        config.fail(key, f"has {len(values)} items, but the model has {num_hidden_layers} layers")
    for value in values[:num_hidden_layers]:
        if not isinstance(value, int) or value not in (0, 1):
            config.fail(key, f"holds {describe(value)}, which is neither 0 nor 1")
    return layers_where(values[:num_hidden_layers], 1)


def others(layers: Sequence[int], taken: Sequence[int]) -> tuple[int, ...]:
    """The layers that are not in `taken`."""
    known = frozenset(taken)
    return tuple(layer for layer in layers if layer not in known)


def block(
    shape: Shape,
    layers: tuple[int, ...],
    *,
    qkv_bias: bool = False,
    o_bias: bool = False,
    qk_norm: str = "",
    layer: str = LAYER,
    norms: Sequence[str] = ("input_layernorm", "post_attention_layernorm"),
    norm_bias: bool = False,
    norm_names: Sequence[str] = ("q_norm", "k_norm"),
) -> list[Tensor]:
    """Attention below `layer`.self_attn and the norms of a layer; nothing without layers."""
    if not layers:
        return []
    found = attention(
        f"{layer}.self_attn", layers, shape.hidden_size, shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim,
        qkv_bias=qkv_bias, o_bias=o_bias, qk_norm=qk_norm, norm_names=norm_names,
    )  # fmt: skip
    for name in norms:
        found += norm(f"{layer}.{name}", shape.hidden_size, layers, bias=norm_bias)
    return found


def shared_mlp(
    prefix: str,
    layers: tuple[int, ...],
    hidden_size: int,
    width: int,
    *,
    bias: bool = False,
    names: Sequence[str] = ("gate_proj", "up_proj", "down_proj"),
) -> list[Tensor]:
    """A gated MLP of all shared experts; nothing without layers or width."""
    if not layers or not width:
        return []
    return gated_mlp(prefix, layers, hidden_size, width, component="shared_experts", bias=bias, names=names)
