"""EXAONE 4.5: a Qwen2.5-VL-like tower with grouped heads and an EXAONE 4 decoder, with MTP layers in the checkpoint."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.multimodal import nested, outer_tied
from kvtax.architectures.tensors import Tensor, linear, norm, not_loaded, prefixed
from kvtax.architectures.towers import with_towers
from kvtax.architectures.towers_qwen import exaone4_5_tower


def build(config: Config, *, prefix: str = "") -> Architecture:
    """A tower, a decoder of the family exaone4 and, not loaded, num_nextn_predict_layers layers that look ahead.

    Source: transformers 5.24.0 models/exaone4_5/modeling_exaone4_5.py.
    """
    from kvtax.architectures.registry import build as build_any

    text_config = config.sub("text_config")
    kind = "exaone4" if text_config.model_type == "exaone4_5_text" else ""
    text_config = text_config.retyped(kind)
    text = build_any(text_config.retyped(tie_word_embeddings=outer_tied(config, text_config)))
    vision = config.sub("vision_config").retyped("exaone4_5_vision")
    added = [*exaone4_5_tower(vision), *_mtp(text_config, text)]
    return with_towers(config, nested(text, f"{prefix}model.language_model."), prefixed(added, prefix))


def _mtp(config: Config, text: Architecture) -> list[Tensor]:
    """A matrix that joins embedding and hidden state, three norms and whole decoder layers."""
    count = config.integer("num_nextn_predict_layers", default=0, minimum=0, maximum=64)
    if not count or "num_nextn_predict_layers" not in config.values:
        return []
    if config.boolean("mtp_share_layers"):
        count = 1
    layers, last, width = tuple(range(count)), text.num_hidden_layers - 1, text.hidden_size
    start = "model.layers.*."
    found = [
        tensor._replace(name=f"mtp.layers.*.{tensor.name[len(start) :]}", layers=layers)
        for tensor in text.tensors
        if tensor.name.startswith(start) and last in tensor.layers
    ]
    found += linear("mtp.fc", width, 2 * width, "mtp")
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        found += norm(f"mtp.{name}", width)
    return not_loaded(found)
