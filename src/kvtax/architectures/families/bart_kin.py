"""Encoder-decoders with BART's layers and other tables around them: M2M100 (NLLB), PLBart, MVP, Blenderbot."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config, describe
from kvtax.architectures.context import context_limit
from kvtax.architectures.families.bart import encoder_decoder, layers_of
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
    width, vocab_size = config.integer("d_model"), config.integer("vocab_size")
    tied = config.boolean("tie_word_embeddings", default=True)
    tensors = embedding(vocab_size, width, name="model.shared")
    if not tied:
        for side in ("encoder", "decoder"):
            tensors += embedding(vocab_size, width, name=f"model.{side}.embed_tokens")
    tensors += [*_side(config, traits, "encoder"), *_side(config, traits, "decoder"), *lm_head(vocab_size, width, tied)]
    if traits.logits_bias:
        tensors.append(Tensor("final_logits_bias", (1, vocab_size), "lm_head", parameter=False))
    return encoder_decoder(config, prefix, tensors, config.integer("max_position_embeddings"), context_limit(config))
