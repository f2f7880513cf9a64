"""T5Gemma: a Gemma 2 encoder and a Gemma 2 decoder that attends to it."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CrossAttention, LayerCache
from kvtax.architectures.config import Config, describe
from kvtax.architectures.context import context_limit
from kvtax.architectures.decoder import attention, attention_caches, gated_mlp
from kvtax.architectures.tensors import HEADS, Tensor, embedding, linear, lm_head, norm

_MODULE = "t5_gemma_module"


class _Side:
    """The numbers of the encoder or decoder."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.num_hidden_layers = config.integer("num_hidden_layers")
        self.layers = tuple(range(self.num_hidden_layers))
        self.hidden_size = config.integer("hidden_size")
        self.heads = config.integer("num_attention_heads")
        self.kv_heads = config.num_key_value_heads(self.heads)
        self.head_dim = config.head_dim(self.hidden_size, self.heads)
        self.vocab_size = config.integer("vocab_size")
        self.intermediate_size = config.integer("intermediate_size")
        self.bias = config.boolean("attention_bias")
        self.kinds = config.layer_types(self.num_hidden_layers) or [
            "full_attention" if index % 2 else "sliding_attention" for index in self.layers
        ]


def _tensors(side: _Side, name: str, source_width: int | None) -> list[Tensor]:
    """Embedding, layers with a norm before and after each part, and a final norm."""
    width, layer = side.hidden_size, f"{name}.layers.*"
    found = embedding(side.vocab_size, width, name=f"{name}.embed_tokens")
    found += attention(
        f"{layer}.self_attn", side.layers, width, side.heads, side.kv_heads, side.head_dim,
        qkv_bias=side.bias, o_bias=side.bias,
    )  # fmt: skip
    parts = ["self_attn", "feedforward"]
    if source_width is not None:
        parts.append("cross_attn")
        cross = attention(
            f"{layer}.cross_attn", side.layers, width, side.heads, side.kv_heads, side.head_dim,
            qkv_bias=side.bias, o_bias=side.bias,
        )  # fmt: skip
        found += [tensor for tensor in cross if not tensor.name.endswith((".k_proj.weight", ".v_proj.weight"))]
        for key in ("k_proj", "v_proj"):
            # keys and values are made from the encoder's stream
            found += linear(
                f"{layer}.cross_attn.{key}", side.kv_heads * side.head_dim, source_width, "attention", side.layers,
                shard=HEADS, heads=(0, side.kv_heads),
            )  # fmt: skip
    found += gated_mlp(f"{layer}.mlp", side.layers, width, side.intermediate_size)
    for part in parts:
        for when in ("pre", "post"):
            found += norm(f"{layer}.{when}_{part}_layernorm", width, side.layers)
    return [*found, *norm(f"{name}.norm", width)]


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Sliding and full layers in turn on either side; lm_head is the decoder's embedding unless the config says otherwise.

    Source: transformers 5.24.0 models/t5gemma/modeling_t5gemma.py.
    """
    name = config.architecture
    if name and not name.endswith(("ForConditionalGeneration", "T5GemmaModel")):
        config.unsupported("architectures", f"the class {describe(name)} is not understood")
    encoder = _Side(config.sub("encoder", model_type=_MODULE))
    decoder = _Side(config.sub("decoder", model_type=_MODULE))
    tensors = [
        *_tensors(encoder, "model.encoder", None),
        *_tensors(decoder, "model.decoder", encoder.hidden_size),
    ]
    if not name.endswith("T5GemmaModel"):
        tied = config.boolean("tie_word_embeddings", default=True)
        tensors += lm_head(decoder.vocab_size, decoder.hidden_size, tied, name="lm_head.out_proj")
    window = decoder.config.optional_integer("sliding_window")
    own = attention_caches(decoder.config, decoder.kinds, decoder.kv_heads, decoder.head_dim, sliding_window=window)
    longest = encoder.config.integer("max_position_embeddings")
    source = CrossAttention(decoder.kv_heads, decoder.head_dim, decoder.head_dim, longest)
    caches: list[LayerCache] = [cache for layer in own for cache in (layer, source)]
    return Architecture(
        model_type=config.model_type,
        name=name or config.model_type,
        tensors=[tensor._replace(name=prefix + tensor.name) for tensor in tensors],
        caches=caches,
        cache_layers=[index for index in decoder.layers for _ in range(2)],
        num_hidden_layers=decoder.num_hidden_layers,
        hidden_size=decoder.hidden_size,
        vocab_size=decoder.vocab_size,
        intermediate_size=decoder.intermediate_size,
        num_attention_heads=decoder.heads,
        num_key_value_heads=decoder.kv_heads,
        head_dim=decoder.head_dim,
        rotary_dim=decoder.head_dim,
        max_position_embeddings=context_limit(decoder.config),
        dtype=config.dtype() or decoder.config.dtype() or "bfloat16",
        dtype_stated=bool(config.dtype() or decoder.config.dtype()),
        kind="encoder-decoder",
        defaults_used=config.defaults_used,
    )
