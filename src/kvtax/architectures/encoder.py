"""Encoders that give vectors, scores or labels: what their families have in common. Nothing is kept from token to token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import NoCache
from kvtax.architectures.config import Config, describe
from kvtax.architectures.context import context_limit
from kvtax.architectures.decoder import label_count
from kvtax.architectures.tensors import Tensor, linear, norm, prefixed

MODEL, MASKED, SEQUENCE, TOKENS, QUESTION = (
    "Model",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)
TASKS = (MASKED, SEQUENCE, TOKENS, QUESTION, MODEL)
"""Endings of the classes that an encoder's checkpoint may be of."""
_GIVE_VECTORS = (MODEL, SEQUENCE, TOKENS)
_POSITION_IDS_UNTIL = (4, 31)
"""Releases of transformers that write `position_ids` into the file."""


class EncoderShape:
    """The sizes of an encoder under their usual names, read and checked once."""

    def __init__(self, config: Config, *, any_head_dim: bool = False) -> None:
        self.config = config
        self.num_hidden_layers = config.integer("num_hidden_layers", "n_layer")
        self.hidden_size = config.integer("hidden_size", "n_embd")
        self.num_attention_heads = config.integer("num_attention_heads", "n_head")
        self.vocab_size = config.integer("vocab_size")
        self.layers = tuple(range(self.num_hidden_layers))
        if self.hidden_size % self.num_attention_heads and not any_head_dim:
            config.fail("num_attention_heads", f"{self.num_attention_heads} does not divide {self.hidden_size}")
        self.head_dim = max(1, self.hidden_size // self.num_attention_heads)


def task_of(config: Config, further: Iterable[str] = ()) -> str:
    """What the class in `architectures` is for: one of TASKS or `further`; a config that names none is the bare model.

    Raises:
        UnsupportedArchitectureError: another class, or an encoder that is to be run as a decoder.
    """
    name = config.architecture
    if config.boolean("is_decoder") or name.endswith("LMHeadModel"):
        config.unsupported("is_decoder", "as a decoder this family is not understood")
    if not name:
        return MODEL
    found = next((ending for ending in (*further, *TASKS) if name.endswith(ending)), "")
    if not found:
        config.unsupported("architectures", f"the class {describe(name)} is not understood")
    return found


def pooler(hidden_size: int, name: str = "pooler") -> list[Tensor]:
    """The dense layer over the first token: `pooler.dense` [hidden_size, hidden_size]."""
    return linear(f"{name}.dense", hidden_size, hidden_size, "other", bias=True)


def classifier(config: Config, hidden_size: int, *, dense: bool = False) -> list[Tensor]:
    """The head over labels: `classifier`, or `classifier.dense` and `classifier.out_proj` where a dense layer stands before it."""
    labels = label_count(config)
    if not dense:
        return linear("classifier", labels, hidden_size, "other", bias=True)
    return [
        *linear("classifier.dense", hidden_size, hidden_size, "other", bias=True),
        *linear("classifier.out_proj", labels, hidden_size, "other", bias=True),
    ]


def question_head(hidden_size: int) -> list[Tensor]:
    """Begin and end of an answer: `qa_outputs` [2, hidden_size]."""
    return linear("qa_outputs", 2, hidden_size, "other", bias=True)


def masked_head(
    config: Config, vocab_size: int, hidden_size: int, *, transform: str, layer_norm: str, bias: str, decoder: str,
    width: int | None = None,
) -> list[Tensor]:  # fmt: skip
    """A dense layer, a norm, and the embedding once more with a bias of its own.

    Args:
        config: says whether the embedding is tied.
        vocab_size: [tokens].
        hidden_size: what comes in [elements].
        transform: name of the dense layer.
        layer_norm: name of the norm.
        bias: name of the bias over the vocabulary, empty for none.
        decoder: name of the projection where it is not the embedding.
        width: of the embedding, None for hidden_size [elements].

    Returns:
        The tensors.
    """
    inner = width or hidden_size
    found = linear(transform, inner, hidden_size, "lm_head", bias=True)
    found += norm(layer_norm, inner, bias=True, component="lm_head")
    if bias:
        found.append(Tensor(bias, (vocab_size,), "lm_head"))
    if not config.tie_word_embeddings(True):
        # an own projection has its own bias beside the shared one
        found += linear(decoder, vocab_size, inner, "lm_head", bias=bool(bias) and bias != f"{decoder}.bias")
    return found


def position_ids(config: Config, name: str, positions: int) -> list[Tensor]:
    """The buffer of positions that old files hold: 8 bytes each; engines count for themselves.

    Source: transformers 4.31 makes it non-persistent (models/bert/modeling_bert.py); which release wrote a file stands in
    `transformers_version`. A few files that were converted by hand have none all the same.
    """
    stated = config.root.values.get("transformers_version")
    parts = stated.split(".")[:2] if isinstance(stated, str) else []
    if len(parts) < 2 or not all(part.isdecimal() and len(part) < 6 for part in parts):
        return []
    if (int(parts[0]), int(parts[1])) >= _POSITION_IDS_UNTIL:
        return []
    return [Tensor(name, (1, positions), "embedding", parameter=False, loaded=False, dtype="int64")]


def one_pass(architecture: Architecture, config: Config) -> Architecture:
    """A decoder's layers as an encoder, where the config says that they attend in both directions: then nothing is kept.

    `is_causal` false, `use_bidirectional_attention` true or `all`; a model that generates ignores them.

    Source: vllm 0.33.0 model_executor/models/qwen2.py, qwen3.py, llama.py (`is_causal`: ENCODER_ONLY attention), config.py
    Gemma3TextModelConfig (`use_bidirectional_attention`).
    """
    both = config.get("use_bidirectional_attention") in (True, "all") and config.architecture.endswith(_GIVE_VECTORS)
    if architecture.kind != "decoder" or not (both or config.values.get("is_causal") is False):
        return architecture
    return architecture.replace(kind="encoder", caches=[NoCache()] * architecture.num_hidden_layers)


def encoder(
    config: Config, shape: EncoderShape, body: Iterable[Tensor], head: Iterable[Tensor], *, task: str, base: str,
    prefix: str, intermediate_size: int, limit: int | None = None, **facts: Any,
) -> Architecture:  # fmt: skip
    """An Architecture without caches: `body` below `base`, which a bare model's file leaves out, and a head beside it.

    Args:
        config: of the model.
        shape: its sizes.
        body: embeddings, layers and pooler, named as in the bare model.
        head: of the task.
        task: see `task_of`.
        base: the module that classes with a head keep the model in.
        prefix: module that everything stands below.
        intermediate_size: width of the MLP [elements].
        limit: the longest text, None for what the config says [tokens].
        facts: further fields of Architecture.

    Returns:
        The Architecture.
    """
    inner = prefix if task == MODEL else f"{prefix}{base}."
    fields: dict[str, Any] = {"num_key_value_heads": shape.num_attention_heads, "head_dim": shape.head_dim, **facts}
    return Architecture(
        model_type=config.model_type,
        name=config.architecture or config.model_type,
        tensors=[*prefixed(body, inner), *prefixed(head, prefix)],
        caches=[NoCache()] * shape.num_hidden_layers,
        num_hidden_layers=shape.num_hidden_layers,
        hidden_size=shape.hidden_size,
        vocab_size=shape.vocab_size,
        intermediate_size=intermediate_size,
        num_attention_heads=shape.num_attention_heads,
        max_position_embeddings=limit or context_limit(config),
        dtype=config.dtype() or "float32",
        dtype_stated=bool(config.dtype()),
        kind="encoder",
        defaults_used=config.defaults_used,
        **fields,
    )
