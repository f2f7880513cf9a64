"""Recurrent token mixers: their weights, and the fixed state that each keeps for a sequence.

Conv states have kernel - 1 columns, as serving engines keep them. Source for how tensor parallelism splits a state:
vllm 0.33.0 model_executor/layers/mamba/mamba_utils.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvtax.architectures.cache import LayerCache, Recurrent, State
from kvtax.architectures.config import Config, describe
from kvtax.architectures.decoder import Shape
from kvtax.architectures.tensors import COLUMN, GROUPS, ROW, Tensor, linear, norm
from kvtax.dtypes import find_dtype
from kvtax.errors import UnknownNameError

COMPONENT = "linear_or_ssm"
MAXIMUM_KERNEL = 4096
# names of layer types in older files
_RENAMED = {"mamba": "linear_attention", "attention": "full_attention"}


class AttentionFree(Shape):
    """The numbers of a decoder that has no attention at all."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.num_hidden_layers = config.integer("num_hidden_layers")
        self.hidden_size = config.integer("hidden_size")
        self.num_attention_heads = self.num_key_value_heads = self.head_dim = 0
        self.vocab_size = config.integer("vocab_size")
        self.layers = tuple(range(self.num_hidden_layers))
        self.tied = config.tie_word_embeddings()


class StateDtypes(NamedTuple):
    """Dtypes of conv and recurrent states; `ssm` is empty where the config declares none."""

    model: str
    ssm: str


def state_dtypes(config: Config) -> StateDtypes:
    """Conv states have the model's dtype; recurrent ones what the config declares, else float32.

    Raises:
        ConfigError: a declared dtype that is not known.
    """
    key, declared = config.find("mamba_ssm_cache_dtype", "mamba_ssm_dtype")
    ssm = ""
    if declared is not None and declared != "auto":
        try:
            ssm = find_dtype(declared).name if isinstance(declared, str) else ""
        except UnknownNameError:
            ssm = ""
        if not ssm:
            config.fail(key, f"{describe(declared)} is not a dtype that is known")
    return StateDtypes(config.dtype() or "bfloat16", ssm)


def layer_kinds(config: Config, num_hidden_layers: int, allowed: Sequence[str]) -> list[str] | None:
    """`layer_types` or `layers_block_type` under today's names, or None where neither is given.

    Raises:
        UnsupportedArchitectureError: a type that is not among `allowed`.
    """
    key = "layer_types" if config.states("layer_types") else "layers_block_type"
    stated = config.layer_types(num_hidden_layers, "layer_types", "layers_block_type")
    if stated is None:
        return None
    kinds = [_RENAMED.get(kind, kind) for kind in stated]
    for index, kind in enumerate(kinds):
        if kind not in allowed:
            config.unsupported(f"{key}[{index}]", f"layer type {describe(kind)} is not understood")
    return kinds


def kernel_size(config: Config, *keys: str) -> int:
    """Width of a short causal convolution."""
    return config.integer(*keys, maximum=MAXIMUM_KERNEL)


def expanded(config: Config, hidden_size: int, *keys: str) -> int:
    """hidden_size times an expansion factor that need not be whole, rounded down.

    Raises:
        ConfigError: not a number, or the product is no usable width.
    """
    factor = config.number(*keys)
    width = int(hidden_size * factor) if abs(factor) < 2**20 else 0
    if not 1 <= width <= 2**28:
        config.fail(keys[0], f"{describe(factor)} times hidden_size {hidden_size} is no usable width")
    return width


class Mamba1(NamedTuple):
    """The selective state space mixer of Mamba, Falcon Mamba and Jamba."""

    hidden_size: int
    intermediate_size: int
    state_size: int
    conv_kernel: int
    time_step_rank: int
    conv_bias: bool = True
    proj_bias: bool = False
    norms: tuple[str, ...] = ()

    def tensors(self, prefix: str, layers: tuple[int, ...]) -> list[Tensor]:
        """in_proj [2 I, H], conv1d [I, 1, K], x_proj [R + 2 N, I], dt_proj [I, R], A_log [I, N], D [I], out_proj."""
        width, state, rank = self.intermediate_size, self.state_size, self.time_step_rank
        found = [
            Tensor(f"{prefix}.A_log", (width, state), COMPONENT, layers, shard=COLUMN),
            Tensor(f"{prefix}.D", (width,), COMPONENT, layers, shard=COLUMN),
            *convolution(f"{prefix}.conv1d", width, self.conv_kernel, layers, bias=self.conv_bias),
            *linear(
                f"{prefix}.in_proj", 2 * width, self.hidden_size, COMPONENT, layers, bias=self.proj_bias, shard=COLUMN
            ),
            *linear(f"{prefix}.x_proj", rank + 2 * state, width, COMPONENT, layers, shard=ROW),
            *linear(f"{prefix}.dt_proj", width, rank, COMPONENT, layers, bias=True, shard=COLUMN),
            *linear(f"{prefix}.out_proj", self.hidden_size, width, COMPONENT, layers, bias=self.proj_bias, shard=ROW),
        ]
        for name, size in zip(self.norms, (rank, state, state), strict=False):
            found += norm(f"{prefix}.{name}", size, layers)
        return found

    def cache(self, dtypes: StateDtypes) -> LayerCache:
        """Conv [I, K - 1], ssm [I, N]."""
        states = (
            State("conv", (self.intermediate_size, self.conv_kernel - 1)),
            State("recurrent", (self.intermediate_size, self.state_size)),
        )
        return Recurrent("mamba1", states, dtypes.model, dtypes.ssm)


class Mamba2(NamedTuple):
    """The multi-head state space mixer of Mamba 2 and of most hybrids."""

    hidden_size: int
    intermediate_size: int
    num_heads: int
    head_dim: int
    state_size: int
    n_groups: int
    conv_kernel: int
    conv_bias: bool = True
    in_bias: bool = False
    out_bias: bool = False
    gated_norm: bool = True

    @property
    def conv_dim(self) -> int:
        """Channels of the convolution: I + 2 G N [elements]."""
        return self.intermediate_size + 2 * self.n_groups * self.state_size

    def check(self, config: Config, key: str) -> Mamba2:
        """Itself, once its heads are known to fill the intermediate size and its groups to divide it.

        Raises:
            ConfigError: they do not.
        """
        if self.num_heads * self.head_dim != self.intermediate_size:
            config.fail(
                key, f"{self.num_heads} heads of {self.head_dim} do not make the mixer's width {self.intermediate_size}"
            )
        if self.num_heads % self.n_groups:
            config.fail(key, f"{self.num_heads} heads cannot share {self.n_groups} groups")
        return self

    def tensors(self, prefix: str, layers: tuple[int, ...]) -> list[Tensor]:
        """in_proj [2 I + 2 G N + heads, H], conv1d [I + 2 G N, 1, K], A_log, D, dt_bias [heads], norm [I], out_proj."""
        width, groups = self.intermediate_size, (self.n_groups, 2 * self.state_size)
        found = [
            Tensor(f"{prefix}.{name}", (self.num_heads,), COMPONENT, layers, shard=COLUMN)
            for name in ("dt_bias", "A_log", "D")
        ]
        found += convolution(
            f"{prefix}.conv1d", self.conv_dim, self.conv_kernel, layers, bias=self.conv_bias, groups=groups
        )
        found += linear(
            f"{prefix}.in_proj", width + self.conv_dim + self.num_heads, self.hidden_size, COMPONENT, layers,
            bias=self.in_bias, shard=GROUPS, heads=groups,
        )  # fmt: skip
        if self.gated_norm:
            found += norm(f"{prefix}.norm", width, layers, shard=COLUMN)
        found += linear(f"{prefix}.out_proj", self.hidden_size, width, COMPONENT, layers, bias=self.out_bias, shard=ROW)
        return found

    def cache(self, dtypes: StateDtypes) -> LayerCache:
        """Conv [I + 2 G N, K - 1], ssm [heads, head_dim, N]."""
        states = (
            State("conv", (self.conv_dim, self.conv_kernel - 1), groups=(self.n_groups, 2 * self.state_size)),
            State("recurrent", (self.num_heads, self.head_dim, self.state_size)),
        )
        return Recurrent("mamba2", states, dtypes.model, dtypes.ssm)


class GatedDeltaNet(NamedTuple):
    """Gated DeltaNet: key heads of head_k_dim, value heads of head_v_dim, one state matrix a value head."""

    hidden_size: int
    num_k_heads: int
    num_v_heads: int
    head_k_dim: int
    head_v_dim: int
    conv_kernel: int

    @property
    def key_dim(self) -> int:
        """Width of all keys [elements]."""
        return self.num_k_heads * self.head_k_dim

    @property
    def value_dim(self) -> int:
        """Width of all values [elements]."""
        return self.num_v_heads * self.head_v_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the convolution: queries, keys and values [elements]."""
        return 2 * self.key_dim + self.value_dim

    def tensors(self, prefix: str, layers: tuple[int, ...], projections: dict[str, int]) -> list[Tensor]:
        """conv1d [conv_dim, 1, K], dt_bias, A_log [value heads], norm [head_v_dim], out_proj, and the `projections`."""
        found = [
            Tensor(f"{prefix}.{name}", (self.num_v_heads,), COMPONENT, layers, shard=COLUMN)
            for name in ("dt_bias", "A_log")
        ]
        found += convolution(f"{prefix}.conv1d", self.conv_dim, self.conv_kernel, layers)
        for name, width in projections.items():
            found += linear(f"{prefix}.{name}", width, self.hidden_size, COMPONENT, layers, shard=COLUMN)
        found += norm(f"{prefix}.norm", self.head_v_dim, layers)
        found += linear(f"{prefix}.out_proj", self.hidden_size, self.value_dim, COMPONENT, layers, shard=ROW)
        return found

    def cache(self, dtypes: StateDtypes) -> LayerCache:
        """Conv [2 key_dim + value_dim, K - 1], state [value heads, head_v_dim, head_k_dim]."""
        states = (
            State("conv", (self.conv_dim, self.conv_kernel - 1)),
            State("recurrent", (self.num_v_heads, self.head_v_dim, self.head_k_dim)),
        )
        return Recurrent("gated_delta_net", states, dtypes.model, dtypes.ssm)


class KimiDelta(NamedTuple):
    """Kimi Delta Attention: as many keys as values, gates per channel, a state that is always float32."""

    hidden_size: int
    num_heads: int
    head_dim: int
    conv_kernel: int

    @property
    def width(self) -> int:
        """Width of all heads [elements]."""
        return self.num_heads * self.head_dim

    def tensors(
        self, prefix: str, layers: tuple[int, ...], *, a_log: tuple[int, ...] = (), full_rank_gate: bool = False
    ) -> list[Tensor]:
        """q, k, v [width, H] with a convolution [width, 1, K] each; decay f and gate g through head_dim dimensions; b.

        A_log [heads] (or shaped `a_log`), dt_bias [width], a norm over a head, o [H, width]; g may be one matrix.
        """
        hidden, width = self.hidden_size, self.width
        found = [
            Tensor(f"{prefix}.A_log", a_log or (self.num_heads,), COMPONENT, layers, shard=COLUMN, dtype="float32"),
            Tensor(f"{prefix}.dt_bias", (width,), COMPONENT, layers, shard=COLUMN, dtype="float32"),
        ]
        for part in ("q", "k", "v"):
            found += linear(f"{prefix}.{part}_proj", width, hidden, COMPONENT, layers, shard=COLUMN)
            found += convolution(f"{prefix}.{part}_conv1d", width, self.conv_kernel, layers)
        for gate in ("f",) if full_rank_gate else ("f", "g"):
            found += linear(f"{prefix}.{gate}_a_proj", self.head_dim, hidden, COMPONENT, layers)
            found += linear(f"{prefix}.{gate}_b_proj", width, self.head_dim, COMPONENT, layers, shard=COLUMN)
        if full_rank_gate:
            found += linear(f"{prefix}.g_proj", width, hidden, COMPONENT, layers, shard=COLUMN)
        found += linear(f"{prefix}.b_proj", self.num_heads, hidden, COMPONENT, layers, shard=COLUMN)
        found += norm(f"{prefix}.o_norm", self.head_dim, layers)
        return [*found, *linear(f"{prefix}.o_proj", hidden, width, COMPONENT, layers, shard=ROW)]

    def cache(self, dtypes: StateDtypes) -> LayerCache:
        """Three conv states [width, K - 1] and one [heads, head_dim, head_dim] in float32."""
        conv = State("conv", (self.width, self.conv_kernel - 1))
        state = State("recurrent", (self.num_heads, self.head_dim, self.head_dim), dtype="float32")
        return Recurrent("kimi_delta", (conv, conv, conv, state), dtypes.model, dtypes.ssm)


class ShortConv(NamedTuple):
    """A gated short convolution over the residual stream (LFM2)."""

    hidden_size: int
    conv_kernel: int
    bias: bool = False

    def tensors(self, prefix: str, layers: tuple[int, ...]) -> list[Tensor]:
        """Conv [H, 1, K], in_proj [3 H, H], out_proj [H, H]."""
        width = self.hidden_size
        return [
            *convolution(f"{prefix}.conv", width, self.conv_kernel, layers, bias=self.bias),
            *linear(f"{prefix}.in_proj", 3 * width, width, COMPONENT, layers, bias=self.bias, shard=COLUMN),
            *linear(f"{prefix}.out_proj", width, width, COMPONENT, layers, bias=self.bias, shard=ROW),
        ]

    def cache(self, dtypes: StateDtypes) -> LayerCache:
        """Conv [H, K - 1]."""
        return Recurrent(
            "short_conv", (State("conv", (self.hidden_size, self.conv_kernel - 1)),), dtypes.model, dtypes.ssm
        )


def convolution(
    name: str,
    channels: int,
    kernel: int,
    layers: tuple[int, ...],
    *,
    bias: bool = False,
    groups: tuple[int, int] | None = None,
    shard: str = COLUMN,
) -> list[Tensor]:
    """A depthwise causal convolution: `name.weight` [channels, 1, kernel] and, if asked for, `name.bias` [channels]."""
    split, heads = (GROUPS, groups) if groups else (shard, (0, 0))
    found = [Tensor(f"{name}.weight", (channels, 1, kernel), COMPONENT, layers, shard=split, heads=heads)]
    if bias:
        found.append(Tensor(f"{name}.bias", (channels,), COMPONENT, layers, shard=split, heads=heads))
    return found


def hidden_state(width: int) -> State:
    """The previous token's activations that a token shift keeps [width], the same on every rank."""
    return State("conv", (width,), axis=-1)
