"""DiffusionGemma: Gemma 4 with experts, whose encoder and decoder are the same weights, and what conditions a block on itself."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import gated_mlp
from kvtax.architectures.families.gemma4 import build as build_gemma4
from kvtax.architectures.tensors import norm

# keys of the text model whose class default is not that of Gemma 4
_KEYS = (
    "attention_bias", "head_dim", "hidden_size", "intermediate_size", "layer_types", "moe_intermediate_size",
    "num_attention_heads", "num_experts", "num_hidden_layers", "num_key_value_heads", "sliding_window",
    "top_k_experts", "use_bidirectional_attention", "vocab_size",
)  # fmt: skip


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Gemma 4 without per-layer embeddings and shared caches; full layers take their values from the keys.

    The decoder reads the cache that the encoder writes, and keeps none of its own.
    Source: transformers 5.24.0 models/diffusion_gemma/modeling_diffusion_gemma.py.
    """
    if not config.boolean("tie_word_embeddings"):
        config.unsupported("tie_word_embeddings", "an encoder and a decoder of different weights are not understood")
    text = config.sub("text_config").retyped("diffusion_gemma_text")
    if text.boolean("attention_bias"):
        text.unsupported("attention_bias", "whether encoder and decoder share their biases is not known")
    values = {
        **text.values,
        **{key: text.get(key) for key in _KEYS},
        "model_type": "gemma4_text",
        "attention_k_eq_v": True,
        "enable_moe_block": True,
        "hidden_size_per_layer_input": 0,
        "num_kv_shared_layers": 0,
        "use_double_wide_mlp": False,
    }
    vision = config.values.get("vision_config")
    whole = config.retyped(
        "gemma4", text_config=values, vision_config={} if vision is None else vision, audio_config=None,
    )  # fmt: skip
    found = build_gemma4(whole)
    name, hidden, width = "model.decoder.self_conditioning", found.hidden_size, text.integer("intermediate_size")
    tensors = [
        tensor._replace(name=tensor.name.replace("model.", "model.encoder.", 1))
        if tensor.name.startswith("model.")
        else tensor
        for tensor in found.tensors
    ]
    tensors += [*norm(f"{name}.pre_norm", hidden), *gated_mlp(name, (), hidden, width)]
    return found.replace(
        tensors=[tensor._replace(name=prefix + tensor.name) for tensor in tensors],
        model_type=config.model_type,
        name=config.architecture or config.model_type,
    )
