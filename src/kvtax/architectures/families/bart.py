"""BART, mBART, Marian and Pegasus: encoder-decoders with LayerNorms and a table of positions."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CrossAttention, FullAttention
from kvtax.architectures.config import MAXIMUM_HEADS, MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.context import context_limit
from kvtax.architectures.decoder import attention, plain_mlp
from kvtax.architectures.families.t5 import paired
from kvtax.architectures.tensors import Tensor, embedding, lm_head, norm

_NAMES = ("q_proj", "k_proj", "v_proj", "out_proj")
# rows of the table of positions before the first position
_POSITION_OFFSET = 2


def heads_of(config: Config, side: str) -> int:
    """Attention heads of the encoder or decoder.

    Raises:
        ConfigError: they do not divide d_model.
    """
    width = config.integer("d_model")
    heads = config.integer(f"{side}_attention_heads", maximum=MAXIMUM_HEADS)
    if width % heads:
        config.fail(f"{side}_attention_heads", f"{heads} does not divide d_model {width}")
    return heads


def layers_of(config: Config, name: str, side: str, *, key_bias: bool = True) -> list[Tensor]:
    """Layers of the encoder or decoder below `name`: attention (in the decoder also to the encoder), a plain MLP, norms."""
    width, heads = config.integer("d_model"), heads_of(config, side)
    layers = tuple(range(config.integer(f"{side}_layers", maximum=MAXIMUM_LAYERS)))
    layer = f"{name}.layers.*"
    found: list[Tensor] = []
    for part in ("self_attn", "encoder_attn") if side == "decoder" else ("self_attn",):
        found += attention(
            f"{layer}.{part}", layers, width, heads, heads, width // heads, qkv_bias=True, o_bias=True, names=_NAMES
        )
        found += norm(f"{layer}.{part}_layer_norm", width, layers, bias=True)
    found += plain_mlp(layer, layers, width, config.integer(f"{side}_ffn_dim"), bias=True)
    found += norm(f"{layer}.final_layer_norm", width, layers, bias=True)
    return found if key_bias else [tensor for tensor in found if not tensor.name.endswith(".k_proj.bias")]


def encoder_decoder(
    config: Config, prefix: str, tensors: list[Tensor], source_tokens: int, limit: int | None
) -> Architecture:
    """A model with BART's names of the sizes: each decoder layer holds its own tokens and `source_tokens` of the encoder."""
    layers = config.integer("decoder_layers", maximum=MAXIMUM_LAYERS)
    width, heads = config.integer("d_model"), heads_of(config, "decoder")
    head_dim = width // heads
    caches, cache_layers = paired(
        FullAttention(heads, head_dim, head_dim), CrossAttention(heads, head_dim, head_dim, source_tokens), layers
    )
    return Architecture(
        model_type=config.model_type,
        name=config.architecture or config.model_type,
        tensors=[tensor._replace(name=prefix + tensor.name) for tensor in tensors],
        caches=caches,
        cache_layers=cache_layers,
        num_hidden_layers=layers,
        hidden_size=width,
        vocab_size=config.integer("vocab_size"),
        intermediate_size=max(config.integer("encoder_ffn_dim"), config.integer("decoder_ffn_dim")),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=head_dim,
        max_position_embeddings=limit,
        dtype=config.dtype() or "bfloat16",
        dtype_stated=bool(config.dtype()),
        kind="encoder-decoder",
        defaults_used=config.defaults_used,
    )


def _side(config: Config, side: str) -> list[Tensor]:
    """Positions, layers and the norms around them."""
    width, positions = config.integer("d_model"), config.integer("max_position_embeddings")
    name = f"model.{side}"
    learned = config.model_type in ("bart", "mbart")
    rows = positions + _POSITION_OFFSET if learned else positions
    # sines are computed, not read
    table = Tensor(f"{name}.embed_positions.weight", (rows, width), "embedding", stored=learned)
    found = [table, *layers_of(config, name, side)]
    if learned:
        found += norm(f"{name}.layernorm_embedding", width, bias=True)
    if config.model_type in ("mbart", "pegasus"):
        found += norm(f"{name}.layer_norm", width, bias=True)
    return found


def _embeddings(config: Config, *, head: bool) -> list[Tensor]:
    """The embedding that encoder, decoder and lm_head share; each its own where nothing is tied."""
    width, vocab_size = config.integer("d_model"), config.integer("vocab_size")
    decoder_vocab = vocab_size
    shared = True
    if config.model_type == "marian":
        shared = config.boolean("share_encoder_decoder_embeddings", default=True)
        decoder_vocab = config.optional_integer("decoder_vocab_size") or vocab_size
    tied = config.boolean("tie_word_embeddings", default=True)
    found: list[Tensor] = []
    if shared:
        found += embedding(vocab_size, width, name="model.shared")
    if not shared or not tied:
        found += embedding(vocab_size, width, name="model.encoder.embed_tokens")
        found += embedding(decoder_vocab, width, name="model.decoder.embed_tokens")
    if head:
        rows = vocab_size if shared else decoder_vocab
        found += lm_head(rows, width, tied)
        found.append(Tensor("final_logits_bias", (1, rows), "lm_head", parameter=False))
    return found


def build(config: Config, *, prefix: str = "") -> Architecture:
    """An encoder and a decoder whose heads have keys and values of their own; every linear layer has a bias.

    Source: transformers 5.24.0 models/bart/modeling_bart.py, models/mbart, models/marian, models/pegasus.
    """
    name = config.architecture
    if name and not name.endswith(("ForConditionalGeneration", "MTModel", "Model")):
        config.unsupported("architectures", f"the class {describe(name)} is not understood")
    head = name == "" or name.endswith(("ForConditionalGeneration", "MTModel"))
    tensors = [*_embeddings(config, head=head), *_side(config, "encoder"), *_side(config, "decoder")]
    positions = config.integer("max_position_embeddings")
    return encoder_decoder(config, prefix, tensors, positions, context_limit(config))
