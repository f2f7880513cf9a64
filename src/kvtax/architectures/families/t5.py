"""T5, mT5 and UMT5: encoder-decoders with relative positions."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CrossAttention, FullAttention, LayerCache
from kvtax.architectures.config import MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.context import context_limit
from kvtax.architectures.decoder import attention, gated_mlp, plain_mlp
from kvtax.architectures.tensors import Tensor, embedding, lm_head, norm

# the length that the checkpoints were trained with, where the config states none
SOURCE_TOKENS = 512
_CLASSES = ("", "ForConditionalGeneration", "WithLMHeadModel", "EncoderModel", "Model")


def paired(own: LayerCache, source: LayerCache, layers: int) -> tuple[list[LayerCache], list[int]]:
    """The caches of decoder layers that attend to their own tokens and to a source, and the layer of each."""
    return [own, source] * layers, [index for index in range(layers) for _ in range(2)]


def _stack(config: Config, name: str, layers: tuple[int, ...], *, decoder: bool) -> list[Tensor]:
    """Encoder or decoder: attention, in the decoder attention to the encoder, and an MLP; T5 norms without bias."""
    width, heads, head_dim = config.integer("d_model"), config.integer("num_heads"), config.integer("d_kv")
    buckets, inner = config.integer("relative_attention_num_buckets"), config.integer("d_ff")
    block = f"{name}.block.*.layer"
    parts = ["SelfAttention", "EncDecAttention"] if decoder else ["SelfAttention"]
    found: list[Tensor] = []
    for index, part in enumerate(parts):
        found += attention(f"{block}.{index}.{part}", layers, width, heads, heads, head_dim, names=("q", "k", "v", "o"))
        found += norm(f"{block}.{index}.layer_norm", width, layers)
    # UMT5 has the table of relative positions in every layer, the others in the first
    with_table = layers if config.model_type == "umt5" else layers[:1]
    table = f"{block}.0.SelfAttention.relative_attention_bias.weight"
    found.append(Tensor(table, (buckets, heads), "attention", with_table))
    last = f"{block}.{len(parts)}"
    activation = config.string("feed_forward_proj").split("-")
    if len(activation) > 2 or (len(activation) == 2 and activation[0] != "gated"):
        config.unsupported("feed_forward_proj", f"{describe(config.get('feed_forward_proj'))} is not understood")
    if activation[0] == "gated":
        found += gated_mlp(f"{last}.DenseReluDense", layers, width, inner, names=("wi_0", "wi_1", "wo"))
    else:
        found += plain_mlp(f"{last}.DenseReluDense", layers, width, inner, names=("wi", "wo"))
    found += norm(f"{last}.layer_norm", width, layers)
    return [*found, *norm(f"{name}.final_layer_norm", width)]


def _tied(config: Config) -> bool:
    """Whether lm_head is the embedding.

    The classes of transformers 5 say yes whatever the file says, but keep both where the checkpoint has two that differ; that is so
    for the files that say false (T5 1.1, Flan-T5, mT5).
    """
    return config.boolean("tie_word_embeddings", default=True)


def build(config: Config, *, prefix: str = "") -> Architecture:
    """An encoder and a decoder that share the embedding; every head has keys and values of its own.

    Source: transformers 5.24.0 models/t5/modeling_t5.py, models/mt5/modeling_mt5.py, models/umt5/modeling_umt5.py.
    """
    name = config.architecture
    if name and not any(name.endswith(ending) for ending in _CLASSES[1:]):
        config.unsupported("architectures", f"the class {describe(name)} is not understood")
    encoder_only = name.endswith("EncoderModel")
    layers = config.integer("num_layers", maximum=MAXIMUM_LAYERS)
    decoder_layers = config.optional_integer("num_decoder_layers", maximum=MAXIMUM_LAYERS) or layers
    width, vocab_size = config.integer("d_model"), config.integer("vocab_size")
    heads, head_dim = config.integer("num_heads"), config.integer("d_kv")
    tensors = [
        *embedding(vocab_size, width, name="shared"),
        *_stack(config, "encoder", tuple(range(layers)), decoder=False),
    ]
    caches: list[LayerCache] = []
    cache_layers: list[int] = []
    limit = context_limit(config)
    if not encoder_only:
        tensors += _stack(config, "decoder", tuple(range(decoder_layers)), decoder=True)
        if name == "" or name.endswith(("ForConditionalGeneration", "WithLMHeadModel")):
            tensors += lm_head(vocab_size, width, _tied(config))
        own = FullAttention(heads, head_dim, head_dim)
        source = CrossAttention(heads, head_dim, head_dim, limit or SOURCE_TOKENS)
        caches, cache_layers = paired(own, source, decoder_layers)
    return Architecture(
        model_type=config.model_type,
        name=name or config.model_type,
        tensors=[tensor._replace(name=prefix + tensor.name) for tensor in tensors],
        caches=caches,
        cache_layers=cache_layers,
        num_hidden_layers=layers if encoder_only else decoder_layers,
        hidden_size=width,
        vocab_size=vocab_size,
        intermediate_size=config.integer("d_ff"),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=head_dim,
        max_position_embeddings=limit,
        dtype=config.dtype() or "bfloat16",
        dtype_stated=bool(config.dtype()),
        kind="encoder" if encoder_only else "encoder-decoder",
        defaults_used=config.defaults_used,
    )
