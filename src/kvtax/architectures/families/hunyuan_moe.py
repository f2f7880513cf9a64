"""Hunyuan MoE of the first generation (Hunyuan-Large, Hunyuan-A13B)."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache, Shared
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, MAXIMUM_WIDTH, Config
from kvtax.architectures.decoder import Shape, assemble, experts
from kvtax.architectures.latent import dense_block
from kvtax.architectures.mixture import LAYER, block, shared_mlp
from kvtax.architectures.tensors import Tensor


class Layer(NamedTuple):
    """The MLP of one layer: a dense one where num_experts is 0."""

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    shared_intermediate_size: int


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention with norms of query and key; routed experts beside one shared MLP; numbers may differ from layer to layer.

    With use_cla only the first of cla_share_factor layers makes keys and values; the others read them.
    Source: transformers 5.24.0 models/hunyuan_v1_moe/modeling_hunyuan_v1_moe.py; modeling_hunyuan.py of the model repository;
    vllm 0.33.0 model_executor/models/hunyuan_v1.py.
    """
    if config.boolean("use_mla"):
        config.unsupported("use_mla", "latent attention is not understood")
    shape = Shape(config)
    dense_width = config.integer("intermediate_size")
    layers = _mlp_layers(config, shape, dense_width)
    body = _attention(config, shape)
    for kind in dict.fromkeys(layers):
        indices = tuple(index for index, other in enumerate(layers) if other == kind)
        body += _mlp(config, shape, kind, indices, dense_width)
    sparse = [layer for layer in layers if layer.num_experts]
    widest = max(sparse, key=lambda layer: layer.num_experts * layer.moe_intermediate_size, default=Layer(0, 0, 0, 0))
    architecture = assemble(
        config, shape, body, _caches(config, shape), prefix=prefix, intermediate_size=dense_width,
        num_experts=widest.num_experts, num_experts_per_tok=widest.num_experts_per_tok,
        moe_intermediate_size=widest.moe_intermediate_size,
    )  # fmt: skip
    if len(set(sparse)) < 2:
        return architecture
    matrix = 3 * shape.hidden_size
    idle = sum(
        (layer.num_experts - layer.num_experts_per_tok) * layer.moe_intermediate_size * matrix for layer in sparse
    )
    return architecture.replace(active_parameters=architecture.parameters - idle)


def _numbers(
    config: Config, keys: tuple[str, ...], layers: int, default: int, *, minimum: int, maximum: int
) -> list[int]:
    """A number that is the same in every layer, or a list of (at least) one number per layer."""
    name, value = config.find(*keys, default=default)
    if isinstance(value, list):
        found = config.integers(name, minimum=minimum, maximum=maximum) or []
        if len(found) < layers:
            config.fail(name, f"has {len(found)} items, but the model has {layers} layers")
        return found[:layers]
    number = config.optional_integer(name, default=default, minimum=minimum, maximum=maximum)
    return [default if number is None else number] * layers


def _mlp_layers(config: Config, shape: Shape, dense_width: int) -> list[Layer]:
    """The MLP of each layer."""
    total = shape.num_hidden_layers
    own_code = config.model_type == "hunyuan"
    counts = _numbers(config, ("num_experts", "num_local_experts"), total, 1, minimum=1, maximum=MAXIMUM_EXPERTS)
    used = _numbers(config, ("moe_topk", "num_experts_per_tok"), total, 1, minimum=1, maximum=MAXIMUM_EXPERTS)
    widths = _numbers(config, ("moe_intermediate_size",), total, dense_width, minimum=1, maximum=MAXIMUM_WIDTH)
    shared = _numbers(config, ("num_shared_expert",), total, 1, minimum=0, maximum=MAXIMUM_EXPERTS)
    if not config.boolean("use_mixed_mlp_moe", default=not own_code):
        shared = [0] * total
    skipped = config.optional_integer("moe_layer_num_skipped", default=0, minimum=0, maximum=MAXIMUM_LAYERS) or 0
    found = []
    for index in shape.layers:
        if own_code and (max(counts) == 1 or index < skipped):
            found.append(Layer(0, 0, 0, 0))
            continue
        if used[index] > counts[index]:
            config.fail("moe_topk", f"{used[index]} is more than the {counts[index]} experts that there are")
        found.append(Layer(counts[index], used[index], widths[index], shared[index] * dense_width))
    return found


def _mlp(config: Config, shape: Shape, kind: Layer, layers: tuple[int, ...], dense_width: int) -> list[Tensor]:
    """The MLPs of `layers`, which are all of one kind."""
    module, hidden = f"{LAYER}.mlp", shape.hidden_size
    if not kind.num_experts:
        return dense_block(module, layers, hidden, dense_width, bias=config.boolean("mlp_bias"))
    found = experts(module, layers, kind.num_experts, hidden, kind.moe_intermediate_size, router="gate.wg")
    return found + shared_mlp(f"{module}.shared_mlp", layers, hidden, kind.shared_intermediate_size)


def _share_factor(config: Config) -> int:
    """Layers that share keys and values, 1 without sharing."""
    return config.integer("cla_share_factor", default=1, maximum=MAXIMUM_LAYERS) if config.boolean("use_cla") else 1


def _attention(config: Config, shape: Shape) -> list[Tensor]:
    """Attention and the norms of a layer; layers that read another's keys and values have no projections for them."""
    bias = config.boolean("attention_bias")
    normed = config.boolean("use_qk_norm", default=config.model_type != "hunyuan")
    found = block(
        shape, shape.layers, qkv_bias=bias, o_bias=bias, qk_norm="head" if normed else "",
        norm_names=("query_layernorm", "key_layernorm"),
    )  # fmt: skip
    factor = _share_factor(config)
    if factor == 1:
        return found
    owners = tuple(index for index in shape.layers if index % factor == 0)
    made = (f"{LAYER}.self_attn.k_proj.", f"{LAYER}.self_attn.v_proj.")
    return [tensor._replace(layers=owners) if tensor.name.startswith(made) else tensor for tensor in found]


def _caches(config: Config, shape: Shape) -> list[LayerCache]:
    """Full attention, shared within groups where use_cla says so."""
    factor = _share_factor(config)
    full = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)
    return [full if index % factor == 0 else Shared(index - index % factor) for index in shape.layers]
