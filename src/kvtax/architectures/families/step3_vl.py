"""Step 3: attention whose queries come from a shared latent and whose one key/value head all queries read; experts; a vision tower."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention
from kvtax.architectures.config import MAXIMUM_HEADS, MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble
from kvtax.architectures.families.step3 import experts as step_experts
from kvtax.architectures.families.step3 import layers_enum
from kvtax.architectures.latent import dense_block
from kvtax.architectures.mixture import LAYER, others, routed
from kvtax.architectures.tensors import COLUMN, HEADS, ROW, Tensor, linear, norm
from kvtax.architectures.towers import convolution, encoder_layers, hidden_and_heads, patch_grid, with_towers


def build(config: Config, *, prefix: str = "") -> Architecture:
    """The text model, or (`step3_vl`) the text model with a vision tower.

    Source: vllm 0.33.0 model_executor/models/step3_text.py, step3_vl.py; the total is the published one of stepfun-ai/step3.
    """
    if config.model_type == "step3_text":
        return _text(config, prefix)
    text = _text(config.sub("text_config").retyped("step3_text"), prefix)
    return with_towers(config, text, _vision(config, text.hidden_size, prefix))


def _text(config: Config, prefix: str) -> Architecture:
    """Two RMS norms a layer; the layers in moe_layers_enum have experts, the others a dense MLP."""
    groups = config.integer("num_attention_groups", "num_key_value_heads", maximum=MAXIMUM_HEADS)
    if groups != 1:
        config.unsupported("num_attention_groups", f"{groups} key/value heads beside a shared query are not understood")
    shape = Shape(config.retyped(num_key_value_heads=1))
    stated = layers_enum(config, shape)
    sparse = shape.layers[1:] if stated is None else stated
    dense = others(shape.layers, sparse)
    facts: dict[str, Any] = {}
    body = _attention(shape, config.optional_integer("share_q_dim") or shape.head_dim)
    if sparse:
        numbers = routed(config, experts=("moe_num_experts", "num_experts"), used=("moe_top_k", "num_experts_per_tok"))
        facts.update(numbers.facts())
        body += step_experts(config, shape, numbers, sparse)
        body = [tensor for tensor in body if not tensor.name.endswith("moe.router_bias")]
    if dense:
        facts["intermediate_size"] = config.integer("intermediate_size")
        body += dense_block(f"{LAYER}.mlp", dense, shape.hidden_size, facts["intermediate_size"])
    caches = [FullAttention(1, shape.head_dim, shape.head_dim)] * shape.num_hidden_layers
    architecture = assemble(config, shape, body, caches, prefix=prefix, **facts)
    limit = config.optional_integer("max_position_embedding", "max_position_embeddings", "max_seq_len", maximum=2**31)
    return architecture.replace(max_position_embeddings=limit)


def _attention(shape: Shape, query_width: int) -> list[Tensor]:
    """The shared query with its norm, the queries of all heads, one key and one value."""
    module, hidden, layers = f"{LAYER}.self_attn", shape.hidden_size, shape.layers
    width = shape.num_attention_heads * shape.head_dim
    return [
        *linear(f"{module}.q_proj", query_width, hidden, "attention", layers),
        *linear(f"{module}.k_proj", shape.head_dim, hidden, "attention", layers, shard=HEADS, heads=(0, 1)),
        *linear(f"{module}.v_proj", shape.head_dim, hidden, "attention", layers, shard=HEADS, heads=(0, 1)),
        *norm(f"{module}.inter_norm", query_width, layers),
        *linear(f"{module}.wq", width, query_width, "attention", layers, shard=COLUMN),
        *linear(f"{module}.o_proj", hidden, width, "attention", layers, shard=ROW),
        *norm(f"{LAYER}.input_layernorm", hidden, layers),
        *norm(f"{LAYER}.post_attention_layernorm", hidden, layers),
    ]


def _vision(config: Config, hidden_size: int, prefix: str) -> list[Tensor]:
    """The vision tower, two strided convolutions and a projection."""
    vision = config.sub("vision_config").retyped("step3_vision_encoder")
    width, heads = hidden_and_heads(vision)
    patch, side = patch_grid(vision)
    channels, out = vision.integer("num_channels", maximum=4096), vision.integer("output_hidden_size")
    tower = f"{prefix}vision_model"
    return [
        Tensor(f"{tower}.embeddings.class_embedding", (1, width), "vision"),
        *convolution(f"{tower}.embeddings.patch_embedding", width, channels, patch, patch),
        Tensor(f"{tower}.embeddings.position_embedding.weight", (side * side + 1, width), "vision"),
        *encoder_layers(
            f"{tower}.transformer.layers", vision.integer("num_hidden_layers", maximum=MAXIMUM_LAYERS), width, heads,
            vision.integer("intermediate_size"),
        ),
        *convolution(f"{prefix}vit_downsampler", out, width, 2, 2),
        *convolution(f"{prefix}vit_downsampler2", 2 * out, out, 3, 3),
        *linear(
            f"{prefix}vit_large_projector", hidden_size, 2 * out, "vision", bias=config.boolean("projector_bias", default=True)
        ),
    ]  # fmt: skip
