"""Zamba 2: Mamba 2 layers, some of which also run one of a few shared attention blocks."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache
from kvtax.architectures.config import MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble, attention, layers_where
from kvtax.architectures.recurrent import Mamba2, expanded, kernel_size, layer_kinds, state_dtypes
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, linear, norm

_GAPS = (6, 6, 6, 6, 6, 6, 6, 5, 4)  # layers from one shared block to the next in the class's own list of 54


class _Zamba(Shape):
    """num_hidden_layers and heads as usual; a head is as wide as the doubled residual stream makes it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.num_hidden_layers = config.integer("num_hidden_layers")
        self.hidden_size = config.integer("hidden_size")
        self.num_attention_heads = config.integer("num_attention_heads")
        self.num_key_value_heads = config.num_key_value_heads(self.num_attention_heads)
        self.head_dim = config.head_dim(2 * self.hidden_size, self.num_attention_heads)
        self.vocab_size = config.integer("vocab_size")
        self.layers = tuple(range(self.num_hidden_layers))
        self.tied = config.tie_word_embeddings(True)


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Mamba 2 in every layer; hybrid layers first run a shared attention and MLP over the stream and the embedding.

    The n-th hybrid layer uses block n modulo num_mem_blocks; a block's weights count once, its adapters once per use.

    Source: transformers 5.24.0 models/zamba2/modeling_zamba2.py.
    """
    shape = _Zamba(config)
    hidden = shape.hidden_size
    kinds = layer_kinds(config, shape.num_hidden_layers, ("linear_attention", "hybrid")) or _default_kinds(
        config, shape
    )
    plain, hybrid = layers_where(kinds, "linear_attention"), layers_where(kinds, "hybrid")
    intermediate_size = config.optional_integer("intermediate_size", minimum=0) or 4 * hidden
    mixer = _mixer(config, hidden)
    layer = "model.layers.*"
    body: list[Tensor] = []
    if plain:
        body += mixer.tensors(f"{layer}.mamba", plain)
        body += norm(f"{layer}.input_layernorm", hidden, plain)
    if hybrid:
        body += linear(f"{layer}.linear", hidden, hidden, "other", hybrid)
        body += mixer.tensors(f"{layer}.mamba_decoder.mamba", hybrid)
        body += norm(f"{layer}.mamba_decoder.input_layernorm", hidden, hybrid)
        body += _shared_blocks(config, shape, hybrid, intermediate_size)
    full = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)
    recurrent = mixer.cache(state_dtypes(config))
    caches: list[LayerCache] = []
    cache_layers: list[int] = []
    for index, kind in enumerate(kinds):
        kept = [full, recurrent] if kind == "hybrid" else [recurrent]
        caches += kept
        cache_layers += [index] * len(kept)
    return assemble(
        config, shape, body, caches, prefix=prefix, final_norm=norm("model.final_layernorm", hidden),
        cache_layers=cache_layers, intermediate_size=intermediate_size,
        rotary_dim=shape.head_dim if config.boolean("use_mem_rope") else 0,
    )  # fmt: skip


def _default_kinds(config: Config, shape: Shape) -> list[str]:
    """The class's own list, which has 54 layers."""
    kinds = ["linear_attention"] * 54
    index = 0
    for gap in _GAPS:
        index += gap
        kinds[index] = "hybrid"
    if shape.num_hidden_layers != len(kinds):
        config.fail(
            "layers_block_type", f"is missing, and its default is for 54 layers, not for {shape.num_hidden_layers}"
        )
    return kinds


def _mixer(config: Config, hidden_size: int) -> Mamba2:
    width = expanded(config, hidden_size, "mamba_expand")
    num_heads = config.integer("n_mamba_heads")
    bias = config.boolean("add_bias_linear")
    mixer = Mamba2(
        hidden_size,
        width,
        num_heads,
        config.optional_integer("mamba_headdim") or width // num_heads,
        config.integer("mamba_d_state"),
        config.integer("mamba_ngroups"),
        kernel_size(config, "mamba_d_conv"),
        conv_bias=True,  # whatever use_conv_bias says
        in_bias=bias,
        out_bias=bias,
    )
    return mixer.check(config, "n_mamba_heads")


def _shared_blocks(config: Config, shape: Shape, hybrid: tuple[int, ...], intermediate_size: int) -> list[Tensor]:
    """The shared blocks, stored with the first hybrid layers that use them."""
    hidden, rank = shape.hidden_size, config.integer("adapter_rank")
    num_mem_blocks = config.integer("num_mem_blocks", maximum=MAXIMUM_LAYERS)
    adapted_attention = config.boolean("use_shared_attention_adapter")
    bias = config.boolean("add_bias_linear")
    found: list[Tensor] = []
    for block, index in enumerate(hybrid[:num_mem_blocks]):
        layers, uses = (index,), len(range(block, len(hybrid), num_mem_blocks))
        block_name = "model.layers.*.shared_transformer"
        found += norm(f"{block_name}.input_layernorm", 2 * hidden, layers)
        found += norm(f"{block_name}.pre_ff_layernorm", hidden, layers)
        found += attention(
            f"{block_name}.self_attn",
            layers,
            2 * hidden,
            shape.num_attention_heads,
            shape.num_key_value_heads,
            shape.head_dim,
        )[:3]
        width = shape.num_attention_heads * shape.head_dim
        found += linear(f"{block_name}.self_attn.o_proj", hidden, width, "attention", layers, shard=ROW)
        if adapted_attention:
            for name in ("linear_q", "linear_k", "linear_v"):
                adapter = f"{block_name}.self_attn.{name}_adapter_list.*"
                found += _adapter(adapter, 2 * hidden, rank, 2 * hidden, layers, uses, "attention")
        mlp = f"{block_name}.feed_forward"
        found += linear(f"{mlp}.gate_up_proj", 2 * intermediate_size, hidden, "mlp", layers, bias=bias, shard=COLUMN)
        found += linear(f"{mlp}.down_proj", hidden, intermediate_size, "mlp", layers, bias=bias, shard=ROW)
        found += _adapter(
            f"{mlp}.gate_up_proj_adapter_list.*", hidden, rank, 2 * intermediate_size, layers, uses, "mlp"
        )
    return found


def _adapter(
    name: str, in_features: int, rank: int, out_features: int, layers: tuple[int, ...], uses: int, component: str
) -> list[Tensor]:
    """A low-rank pair for each use of the block."""
    return [
        *linear(f"{name}.0", rank, in_features, component, layers, per_layer=uses),
        *linear(f"{name}.1", out_features, rank, component, layers, per_layer=uses, shard=COLUMN),
    ]
