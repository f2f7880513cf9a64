"""How a multimodal config reaches its text model: its type, whether its head is tied, what its tensors are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config

if TYPE_CHECKING:
    from kvtax.architectures.tensors import Tensor

NESTED = "model.language_model."


def outer_tied(config: Config, text: Config, *, forward: bool = False) -> bool:
    """Whether lm_head is the embedding as the outer config decides; `forward`: a text config that ties is heard too."""
    return config.boolean("tie_word_embeddings") or (forward and text.boolean("tie_word_embeddings"))


def nested(text: Architecture, module: str = NESTED) -> Architecture:
    """The text model with its `model.` tensors below another module; lm_head and MTP stay where they are."""

    def moved(tensor: Tensor) -> Tensor:
        return (
            tensor._replace(name=module + tensor.name[len("model.") :]) if tensor.name.startswith("model.") else tensor
        )

    return text.replace(tensors=[moved(tensor) for tensor in text.tensors])


def text_model(
    config: Config,
    key: str = "text_config",
    *,
    model_type: str = "",
    forward: bool = False,
    module: str = NESTED,
    prefix: str = "",
) -> Architecture:
    """The text model of a config whose outer level decides whether lm_head is tied, built by its own family.

    Args:
        config: of the whole model.
        key: of the nested config.
        model_type: the type that the text model has whatever the nested config says; empty where it is free.
        forward: whether tie_word_embeddings of the nested config counts when the outer level does not tie.
        module: that replaces `model.` in the names, unless a prefix is given.
        prefix: before all names, lm_head too.

    Returns:
        The text model.
    """
    from kvtax.architectures.registry import build

    text = config.sub(key)
    text = text.retyped(model_type, tie_word_embeddings=outer_tied(config, text.retyped(model_type), forward=forward))
    return build(text, prefix=prefix) if prefix else nested(build(text), module)
