"""RWKV 4, 5 and 6: time mixing and channel mixing, no attention; a state of the same size whatever the length."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import Recurrent, State
from kvtax.architectures.config import Config, describe
from kvtax.architectures.decoder import assemble
from kvtax.architectures.recurrent import COMPONENT, AttentionFree, hidden_state, state_dtypes
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, linear, norm

_BLOCK = "rwkv.blocks.*"


class _Rwkv(AttentionFree):
    """Widths of the mixing, and the heads that versions 5 and later have."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.version = {"rwkv": 4, "rwkv5": 5, "rwkv6": 6}[config.model_type]
        self.attention_hidden_size = config.optional_integer("attention_hidden_size") or self.hidden_size
        self.head_size = config.integer("head_size") if self.version > 4 else 0
        self.heads = self.attention_hidden_size // self.head_size if self.head_size else 0
        if self.version > 4 and self.heads * self.head_size != self.attention_hidden_size:
            config.fail(
                "head_size", f"{self.head_size} does not divide attention_hidden_size {self.attention_hidden_size}"
            )
        wide = 4 * self.hidden_size if self.version == 4 else int(3.5 * self.hidden_size) // 32 * 32
        self.intermediate_size = config.optional_integer("intermediate_size") or wide
        if self.intermediate_size < 1:
            config.fail("hidden_size", f"{self.hidden_size} leaves no width for channel mixing")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """LayerNorms, time mixing through a state and channel mixing through the previous token, in every layer.

    Source: transformers 5.24.0 models/rwkv/modeling_rwkv.py; versions 5 and 6: modeling_rwkv5.py and modeling_rwkv6.py
    of the RWKV model repositories.
    """
    if config.model_type == "rwkv6" and config.states("proj_low_rank_dim", "hidden_ratio"):
        config.unsupported("proj_low_rank_dim", "this layout of RWKV 6 (flash-linear-attention) is not understood")
    if config.model_type == "rwkv5" and config.string("model_version", default="5_2") not in ("5_2", "5.2", "5"):
        config.unsupported("model_version", f"version {describe(config.get('model_version'))} is not understood")
    shape = _Rwkv(config)
    hidden = shape.hidden_size
    body = [
        *norm("rwkv.blocks.0.pre_ln", hidden, bias=True),
        *norm(f"{_BLOCK}.ln1", hidden, shape.layers, bias=True),
        *norm(f"{_BLOCK}.ln2", hidden, shape.layers, bias=True),
        *_time_mix(shape),
        *_channel_mix(shape),
    ]
    return assemble(
        config, shape, body, [_cache(config, shape)] * shape.num_hidden_layers, prefix=prefix, head_name="head",
        embed_name="rwkv.embeddings", final_norm=norm("rwkv.ln_out", hidden, bias=True),
        intermediate_size=shape.intermediate_size,
    )  # fmt: skip


def _cache(config: Config, shape: _Rwkv) -> Recurrent:
    """The previous token of both mixings; version 4: numerator, denominator and maximum; later: a matrix a head."""
    shift = hidden_state(shape.hidden_size)
    if shape.version == 4:
        kept = tuple(State("recurrent", (shape.attention_hidden_size,)) for _ in range(3))
    else:
        kept = (State("recurrent", (shape.heads, shape.head_size, shape.head_size)),)
    dtypes = state_dtypes(config)
    return Recurrent("rwkv", (shift, *kept, shift), dtypes.model, dtypes.ssm)


def _vectors(prefix: str, names: tuple[str, ...], size: tuple[int, ...], layers: tuple[int, ...]) -> list[Tensor]:
    return [Tensor(f"{prefix}.{name}", size, COMPONENT, layers) for name in names]


def _time_mix(shape: _Rwkv) -> list[Tensor]:
    """Key, value, receptance and output, from version 5 on a gate and a norm over the heads."""
    prefix, layers, hidden = f"{_BLOCK}.attention", shape.layers, shape.hidden_size
    width, row = shape.attention_hidden_size, (1, 1, shape.hidden_size)
    names = ("key", "value", "receptance") if shape.version == 4 else ("key", "value", "receptance", "gate")
    found: list[Tensor] = []
    for name in names:
        found += linear(f"{prefix}.{name}", width, hidden, COMPONENT, layers, shard=COLUMN)
    found += linear(f"{prefix}.output", hidden, width, COMPONENT, layers, shard=ROW)
    if shape.version == 4:
        found += _vectors(prefix, ("time_decay", "time_first"), (width,), layers)
    if shape.version < 6:
        found += _vectors(prefix, tuple(f"time_mix_{name}" for name in names), row, layers)
    if shape.version == 5:
        found += _vectors(prefix, ("time_decay", "time_faaaa"), (shape.heads, shape.head_size), layers)
    if shape.version == 6:
        # the widest models mix and decay through twice as many dimensions
        mix, decay = (64, 128) if hidden == 4096 else (32, 64)
        found += _vectors(prefix, tuple(f"time_maa_{name}" for name in "xwkvrg"), row, layers)
        found += _vectors(prefix, ("time_maa_w1",), (hidden, 5 * mix), layers)
        found += _vectors(prefix, ("time_maa_w2",), (5, mix, hidden), layers)
        found += _vectors(prefix, ("time_decay",), (1, 1, width), layers)
        found += _vectors(prefix, ("time_decay_w1",), (hidden, decay), layers)
        found += _vectors(prefix, ("time_decay_w2",), (decay, width), layers)
        found += _vectors(prefix, ("time_faaaa",), (shape.heads, shape.head_size), layers)
    return found if shape.version == 4 else [*found, *norm(f"{prefix}.ln_x", hidden, layers, bias=True)]


def _channel_mix(shape: _Rwkv) -> list[Tensor]:
    prefix, layers, hidden = f"{_BLOCK}.feed_forward", shape.layers, shape.hidden_size
    names = ("time_maa_k", "time_maa_r") if shape.version == 6 else ("time_mix_key", "time_mix_receptance")
    return [
        *linear(f"{prefix}.key", shape.intermediate_size, hidden, "mlp", layers, shard=COLUMN),
        *linear(f"{prefix}.receptance", hidden, hidden, "mlp", layers, shard=COLUMN),
        *linear(f"{prefix}.value", hidden, shape.intermediate_size, "mlp", layers, shard=ROW),
        *_vectors(prefix, names, (1, 1, hidden), layers),
    ]
