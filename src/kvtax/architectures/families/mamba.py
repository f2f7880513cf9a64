"""Mamba, Falcon Mamba and Mamba 2: state space mixers and nothing else."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import assemble
from kvtax.architectures.recurrent import AttentionFree, Mamba1, Mamba2, expanded, kernel_size, state_dtypes
from kvtax.architectures.tensors import norm


def build(config: Config, *, prefix: str = "") -> Architecture:
    """One mixer and one RMS norm a layer; no attention, no MLP, no cache that grows.

    Source: transformers 5.24.0 models/mamba/modeling_mamba.py, models/mamba2/modeling_mamba2.py,
    models/falcon_mamba/modeling_falcon_mamba.py.
    """
    shape = AttentionFree(config)
    mixer = _mamba2(config, shape.hidden_size) if config.model_type == "mamba2" else _mamba1(config, shape.hidden_size)
    body = [
        *norm("backbone.layers.*.norm", shape.hidden_size, shape.layers),
        *mixer.tensors("backbone.layers.*.mixer", shape.layers),
    ]
    return assemble(
        config, shape, body, [mixer.cache(state_dtypes(config))] * shape.num_hidden_layers, prefix=prefix,
        embed_name="backbone.embeddings", final_norm=norm("backbone.norm_f", shape.hidden_size),
    )  # fmt: skip


def time_step_rank(config: Config, hidden_size: int, key: str) -> int:
    """The rank of the time step projection; `auto` is hidden_size / 16, rounded up."""
    if config.get(key) in ("auto", None):
        return -(-hidden_size // 16)
    return config.integer(key)


def _mamba1(config: Config, hidden_size: int) -> Mamba1:
    """The norms of Falcon Mamba over B, C and the time step have no weights."""
    stated = config.optional_integer("intermediate_size", default=None)
    use_bias = config.boolean("use_bias")
    return Mamba1(
        hidden_size,
        stated if stated is not None else expanded(config, hidden_size, "expand"),
        config.integer("state_size"),
        kernel_size(config, "conv_kernel"),
        time_step_rank(config, hidden_size, "time_step_rank"),
        conv_bias=config.boolean("use_conv_bias", default=True),
        proj_bias=use_bias,
    )


def _mamba2(config: Config, hidden_size: int) -> Mamba2:
    use_bias = config.boolean("use_bias")
    mixer = Mamba2(
        hidden_size,
        expanded(config, hidden_size, "expand"),
        config.integer("num_heads"),
        config.integer("head_dim"),
        config.integer("state_size"),
        config.integer("n_groups"),
        kernel_size(config, "conv_kernel"),
        conv_bias=config.boolean("use_conv_bias", default=True),
        in_bias=use_bias,
        out_bias=use_bias,
    )
    return mixer.check(config, "num_heads")
