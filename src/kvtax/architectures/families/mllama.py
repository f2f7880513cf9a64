"""Llama 3.2 Vision: a Llama decoder some of whose layers attend to the tokens of an image instead."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CrossAttention, FullAttention, LayerCache
from kvtax.architectures.config import MAXIMUM_LAYERS, Config
from kvtax.architectures.context import context_limit
from kvtax.architectures.decoder import attention, gated_mlp, has_head
from kvtax.architectures.tensors import Tensor, embedding, linear, lm_head, norm
from kvtax.architectures.towers import convolution, encoder_layers, hidden_and_heads, patch_grid

CROSS_ATTENTION_LAYERS = (3, 8, 13, 18, 23, 28, 33, 38)
ASPECT_RATIOS = 8
# rows of the embedding beyond the vocabulary, for the image token
EXTRA_TOKENS = 8


def _cross_layers(config: Config, num_hidden_layers: int) -> tuple[int, ...]:
    """Layers with cross-attention; the class default where the key is null."""
    stated = config.integers("cross_attention_layers", maximum=MAXIMUM_LAYERS)
    wanted = set(CROSS_ATTENTION_LAYERS if stated is None else stated)
    return tuple(index for index in range(num_hidden_layers) if index in wanted)


def _vision(config: Config, prefix: str) -> tuple[list[Tensor], int]:
    """The tower (gated positions of tiles, a second encoder of gated layers) and the most image tokens of a request."""
    hidden_size, heads = hidden_and_heads(config)
    patch_size, side = patch_grid(config)
    tiles = config.integer("max_num_tiles", maximum=4096)
    ratios = config.optional_list("supported_aspect_ratios")
    rows = (ASPECT_RATIOS if ratios is None else len(ratios)) + 1
    tokens = side * side + 1
    width = config.integer("intermediate_size")
    found = [
        Tensor(f"{prefix}class_embedding", (hidden_size,), "vision"),
        *convolution(
            f"{prefix}patch_embedding", hidden_size, config.integer("num_channels"), patch_size, patch_size, bias=False
        ),
        Tensor(f"{prefix}gated_positional_embedding.gate", (1,), "vision"),
        Tensor(f"{prefix}gated_positional_embedding.embedding", (tokens, hidden_size), "vision"),
        Tensor(
            f"{prefix}gated_positional_embedding.tile_embedding.weight", (rows, tiles * tokens * hidden_size), "vision"
        ),
    ]
    for name in ("pre_tile_positional_embedding", "post_tile_positional_embedding"):
        found.append(Tensor(f"{prefix}{name}.gate", (1,), "vision"))
        found.append(Tensor(f"{prefix}{name}.embedding.weight", (rows, tiles * hidden_size), "vision"))
    for name in ("layernorm_pre", "layernorm_post"):
        found += norm(f"{prefix}{name}", hidden_size, bias=True, component="vision")
    for name, key in (("transformer", "num_hidden_layers"), ("global_transformer", "num_global_layers")):
        count = config.integer(key, minimum=0, maximum=MAXIMUM_LAYERS)
        if not count:
            continue
        layers = encoder_layers(
            f"{prefix}{name}.layers", count, hidden_size, heads, width,
            names=("q_proj", "k_proj", "v_proj", "o_proj"), norm_names=("input_layernorm", "post_attention_layernorm"),
        )  # fmt: skip
        found += [tensor for tensor in layers if not tensor.name.endswith("_proj.bias")]
        if name == "global_transformer":
            for gate in ("gate_attn", "gate_ffn"):
                found.append(Tensor(f"{prefix}{name}.layers.*.{gate}", (1,), "vision", tuple(range(count))))
    return found, tiles * tokens


def _decoder(text: Config, prefix: str, cross: tuple[int, ...], heads: tuple[int, int, int]) -> list[Tensor]:
    """Embedding, layers and final norm."""
    num_attention_heads, num_key_value_heads, head_dim = heads
    hidden_size, vocab_size = text.integer("hidden_size"), text.integer("vocab_size")
    layers = tuple(range(text.integer("num_hidden_layers")))
    own = tuple(index for index in layers if index not in set(cross))
    layer = f"{prefix}model.layers.*"
    tensors = embedding(vocab_size + EXTRA_TOKENS, hidden_size, name=f"{prefix}model.embed_tokens")
    if own:
        tensors += attention(f"{layer}.self_attn", own, hidden_size, num_attention_heads, num_key_value_heads, head_dim)
    if cross:
        tensors += attention(
            f"{layer}.cross_attn",
            cross,
            hidden_size,
            num_attention_heads,
            num_key_value_heads,
            head_dim,
            qk_norm="head",
        )
        for gate in ("cross_attn_attn_gate", "cross_attn_mlp_gate"):
            tensors.append(Tensor(f"{layer}.{gate}", (1,), "attention", cross))
    tensors += gated_mlp(f"{layer}.mlp", layers, hidden_size, text.integer("intermediate_size"))
    tensors += norm(f"{layer}.input_layernorm", hidden_size, layers)
    tensors += norm(f"{layer}.post_attention_layernorm", hidden_size, layers)
    tensors += norm(f"{prefix}model.norm", hidden_size)
    if has_head(text):
        tensors += lm_head(vocab_size, hidden_size, False, name=f"{prefix}lm_head")
    return tensors


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Self-attention layers with a cache that grows, cross-attention layers with the keys and values of the image only.

    lm_head is never the embedding, which has eight rows more.

    Source: transformers 5.24.0 models/mllama/modeling_mllama.py.
    """
    text = config if config.model_type == "mllama_text_model" else config.sub("text_config")
    if text is not config:
        prefix = f"{prefix}language_model."
    hidden_size = text.integer("hidden_size")
    num_attention_heads = text.integer("num_attention_heads")
    num_key_value_heads = text.num_key_value_heads(num_attention_heads)
    if hidden_size % num_attention_heads:
        text.fail("num_attention_heads", f"{num_attention_heads} does not divide hidden_size {hidden_size}")
    head_dim = hidden_size // num_attention_heads
    layers = text.integer("num_hidden_layers")
    cross = _cross_layers(text, layers)
    tensors = _decoder(text, prefix, cross, (num_attention_heads, num_key_value_heads, head_dim))
    source_len = 0
    if text is not config:
        vision = config.sub("vision_config")
        outer = prefix.removesuffix("language_model.")
        tower, source_len = _vision(vision, f"{outer}vision_model.")
        tensors += tower
        tensors += linear(
            f"{outer}multi_modal_projector", hidden_size, vision.integer("vision_output_dim"), "vision", bias=True
        )
    own: LayerCache = FullAttention(num_key_value_heads, head_dim, head_dim)
    image: LayerCache = CrossAttention(num_key_value_heads, head_dim, head_dim, source_len)
    return Architecture(
        model_type=config.model_type,
        name=config.architecture or config.model_type,
        tensors=tensors,
        caches=[image if index in set(cross) else own for index in range(layers)],
        num_hidden_layers=layers,
        hidden_size=hidden_size,
        vocab_size=text.integer("vocab_size"),
        intermediate_size=text.integer("intermediate_size"),
        num_attention_heads=num_attention_heads,
        num_key_value_heads=num_key_value_heads,
        head_dim=head_dim,
        rotary_dim=head_dim,
        max_position_embeddings=context_limit(text),
        dtype=text.dtype() or "bfloat16",
        dtype_stated=bool(text.dtype()),
        defaults_used=config.defaults_used,
    )
