"""Encoder-decoders with BART's layers and other tables around them: M2M100 (NLLB), PLBart, MVP, Blenderbot."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CrossAttention, FullAttention
from kvtax.architectures.config import MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.context import context_limit
from kvtax.architectures.families.bart import heads_of, layers_of
from kvtax.architectures.families.t5 import paired
from kvtax.architectures.tensors import Tensor, embedding, lm_head, norm


class _Traits(NamedTuple):
    """Where the types differ: rows before the first position (None: positions are computed), norms, a bias of the logits."""

    offset: int | None
    first_norm: bool
    last_norm: bool
    logits_bias: bool = True


_TRAITS = {
    "m2m_100": _Traits(None, False, True, logits_bias=False),
    "plbart": _Traits(2, True, False),
    "mvp": _Traits(2, True, False),
    "blenderbot": _Traits(0, False, True),
    "blenderbot-small": _Traits(0, True, False),
}


def _side(config: Config, traits: _Traits, side: str) -> list[Tensor]:
    """Positions, layers and the norms around them."""
    width, name = config.integer("d_model"), f"model.{side}"
    found = layers_of(config, name, side)
    if traits.offset is not None:
        rows = config.integer("max_position_embeddings") + traits.offset
        found.append(Tensor(f"{name}.embed_positions.weight", (rows, width), "embedding"))
    if traits.first_norm:
        found += norm(f"{name}.layernorm_embedding", width, bias=True)
    if traits.last_norm:
        found += norm(f"{name}.layer_norm", width, bias=True)
    return found


def build(config: Config, *, prefix: str = "") -> Architecture:
    """An encoder and a decoder that share the embedding; every linear layer of a layer has a bias.

    Source: transformers 5.24.0 models/m2m_100/modeling_m2m_100.py, models/plbart, models/mvp, models/blenderbot,
    models/blenderbot_small.
    """
    name, traits = config.architecture, _TRAITS[config.model_type]
    if name and not name.endswith("ForConditionalGeneration"):
        config.unsupported("architectures", f"the class {describe(name)} is not understood")
    if config.model_type == "mvp" and config.boolean("use_prompt"):
        config.unsupported("use_prompt", "prompts before the layers are not understood")
    width, heads, vocab_size = config.integer("d_model"), heads_of(config, "decoder"), config.integer("vocab_size")
    layers, positions = (
        config.integer("decoder_layers", maximum=MAXIMUM_LAYERS),
        config.integer("max_position_embeddings"),
    )
    heads_of(config, "encoder")
    tied = config.boolean("tie_word_embeddings", default=True)
    tensors = embedding(vocab_size, width, name="model.shared")
    if not tied:
        for side in ("encoder", "decoder"):
            tensors += embedding(vocab_size, width, name=f"model.{side}.embed_tokens")
    tensors += [*_side(config, traits, "encoder"), *_side(config, traits, "decoder"), *lm_head(vocab_size, width, tied)]
    if traits.logits_bias:
        tensors.append(Tensor("final_logits_bias", (1, vocab_size), "lm_head", parameter=False))
    head_dim = width // heads
    caches, cache_layers = paired(
        FullAttention(heads, head_dim, head_dim), CrossAttention(heads, head_dim, head_dim, positions), layers
    )
    return Architecture(
        model_type=config.model_type,
        name=name or config.model_type,
        tensors=[tensor._replace(name=prefix + tensor.name) for tensor in tensors],
        caches=caches,
        cache_layers=cache_layers,
        num_hidden_layers=layers,
        hidden_size=width,
        vocab_size=vocab_size,
        intermediate_size=max(config.integer("encoder_ffn_dim"), config.integer("decoder_ffn_dim")),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=head_dim,
        max_position_embeddings=context_limit(config),
        dtype=config.dtype() or "bfloat16",
        dtype_stated=bool(config.dtype()),
        kind="encoder-decoder",
        defaults_used=config.defaults_used,
    )
