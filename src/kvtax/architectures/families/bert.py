"""BERT, RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA, MPNet and DistilBERT: encoders with a table of positions and LayerNorms after each block."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_HEADS, Config, describe
from kvtax.architectures.decoder import attention, plain_mlp
from kvtax.architectures.encoder import (
    MASKED,
    MODEL,
    QUESTION,
    SEQUENCE,
    TOKENS,
    EncoderShape,
    classifier,
    encoder,
    masked_head,
    pooler,
    position_ids,
    question_head,
    task_of,
)
from kvtax.architectures.tensors import Tensor, embedding, linear, norm

_PRETRAINING = "ForPreTraining"


class Names(NamedTuple):
    """Names of the modules of one family, and what it has.

    Args:
        base: module of the model in classes with a head.
        qkvo: query, key, value and output projection in a layer.
        attention_norm: after the attention.
        mlp: up and down projection.
        mlp_norm: after the MLP.
        layer: module of a layer.
        token_types: whether tokens have a type.
        pooled: whether the bare model has a pooler.
        classes_pooled: whether the class for sequences has one.
        dense_classifier: whether its head has a dense layer.
        offset: whether the table of positions begins after the padding token.
    """

    base: str
    qkvo: tuple[str, str, str, str] = (
        "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
    )  # fmt: skip
    attention_norm: str = "attention.output.LayerNorm"
    mlp: tuple[str, str] = ("intermediate.dense", "output.dense")
    mlp_norm: str = "output.LayerNorm"
    layer: str = "encoder.layer.*"
    token_types: bool = True
    pooled: bool = True
    classes_pooled: bool = False
    dense_classifier: bool = True
    offset: bool = True


_ROBERTA = Names("roberta")
NAMES: dict[str, Names] = {
    "bert": Names("bert", classes_pooled=True, dense_classifier=False, offset=False),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "electra": Names("electra", pooled=False, offset=False),
    "mpnet": Names(
        "mpnet",
        qkvo=("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o"),
        attention_norm="attention.LayerNorm",
        token_types=False,
    ),
    "distilbert": Names(
        "distilbert",
        qkvo=("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"),
        attention_norm="sa_layer_norm",
        mlp=("ffn.lin1", "ffn.lin2"),
        mlp_norm="output_layer_norm",
        layer="transformer.layer.*",
        token_types=False,
        pooled=False,
        offset=False,
    ),
}


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Attention in both directions and a plain MLP, every linear layer with a bias, a LayerNorm after each.

    Source: transformers 5.24.0 models/bert/modeling_bert.py, models/roberta, models/xlm_roberta, models/camembert, models/electra, models/mpnet,
    models/distilbert.
    """
    names = NAMES[config.model_type]
    kind = config.string("position_embedding_type", default="absolute")
    if kind != "absolute":
        config.unsupported("position_embedding_type", f"positions of the kind {describe(kind)} are not understood")
    task = task_of(config, (_PRETRAINING,) if config.model_type in ("bert", "electra") else ())
    shape = EncoderShape(config)
    width = config.integer("hidden_dim") if config.model_type == "distilbert" else config.integer("intermediate_size")
    hidden, layers = shape.hidden_size, shape.layers
    positions = config.integer("max_position_embeddings")
    body = _embeddings(config, names, shape, positions)
    body += attention(
        names.layer, layers, hidden, shape.num_attention_heads, shape.num_attention_heads, shape.head_dim,
        qkv_bias=True, o_bias=True, names=names.qkvo,
    )  # fmt: skip
    body += norm(f"{names.layer}.{names.attention_norm}", hidden, layers, bias=True)
    body += plain_mlp(names.layer, layers, hidden, width, bias=True, names=names.mlp)
    body += norm(f"{names.layer}.{names.mlp_norm}", hidden, layers, bias=True)
    if config.model_type == "mpnet":
        table = (
            config.integer("relative_attention_num_buckets"),
            config.integer("num_attention_heads", maximum=MAXIMUM_HEADS),
        )
        body.append(Tensor("encoder.relative_attention_bias.weight", table, "attention"))
    pools = task == MODEL or (config.model_type == "bert" and task == _PRETRAINING)
    if (pools and names.pooled) or (task == SEQUENCE and names.classes_pooled):
        body += pooler(hidden)
    # the first positions stand for padding
    padding = config.optional_integer("pad_token_id", default=1, minimum=0) or 0
    limit = max(1, positions - padding - 1) if names.offset else positions
    return encoder(
        config, shape, body, _head(config, names, shape, task), task=task, base=names.base, prefix=prefix,
        intermediate_size=width, limit=limit,
    )  # fmt: skip


def _embedding_size(config: Config, shape: EncoderShape) -> int:
    """Width of the embedding: ELECTRA's may be smaller than the layers' [elements]."""
    return config.integer("embedding_size") if config.model_type == "electra" else shape.hidden_size


def _embeddings(config: Config, names: Names, shape: EncoderShape, positions: int) -> list[Tensor]:
    """Words, positions, types and the norm over their sum."""
    width = _embedding_size(config, shape)
    found = embedding(shape.vocab_size, width, name="embeddings.word_embeddings")
    found += embedding(positions, width, name="embeddings.position_embeddings")
    if names.token_types:
        found += embedding(config.integer("type_vocab_size"), width, name="embeddings.token_type_embeddings")
    found += norm("embeddings.LayerNorm", width, bias=True)
    found += position_ids(config, "embeddings.position_ids", positions)
    if width != shape.hidden_size:
        found += linear("embeddings_project", shape.hidden_size, width, "embedding", bias=True)
    return found


def _head(config: Config, names: Names, shape: EncoderShape, task: str) -> list[Tensor]:
    """The head of a class."""
    hidden, kind = shape.hidden_size, config.model_type
    if task in (MASKED, _PRETRAINING):
        return _vocabulary_head(config, shape, task)
    if task == QUESTION:
        return question_head(hidden)
    if task == TOKENS:
        return classifier(config, hidden)
    if task != SEQUENCE:
        return []
    if kind == "distilbert":
        return [*linear("pre_classifier", hidden, hidden, "other", bias=True), *classifier(config, hidden)]
    return classifier(config, hidden, dense=names.dense_classifier)


def _vocabulary_head(config: Config, shape: EncoderShape, task: str) -> list[Tensor]:
    """The head over the vocabulary, under each family's names; ELECTRA's discriminator has one over yes and no."""
    hidden, kind, vocab_size = shape.hidden_size, config.model_type, shape.vocab_size
    if kind == "bert":
        found = masked_head(
            config, vocab_size, hidden, transform="cls.predictions.transform.dense",
            layer_norm="cls.predictions.transform.LayerNorm", bias="cls.predictions.bias", decoder="cls.predictions.decoder",
        )  # fmt: skip
        return found + (linear("cls.seq_relationship", 2, hidden, "lm_head", bias=True) if task == _PRETRAINING else [])
    if kind == "distilbert":
        return masked_head(
            config, vocab_size, hidden, transform="vocab_transform", layer_norm="vocab_layer_norm",
            bias="vocab_projector.bias", decoder="vocab_projector",
        )  # fmt: skip
    if kind != "electra":
        return masked_head(
            config, vocab_size, hidden, transform="lm_head.dense", layer_norm="lm_head.layer_norm", bias="lm_head.bias",
            decoder="lm_head.decoder",
        )  # fmt: skip
    if task == _PRETRAINING:
        return [
            *linear("discriminator_predictions.dense", hidden, hidden, "lm_head", bias=True),
            *linear("discriminator_predictions.dense_prediction", 1, hidden, "lm_head", bias=True),
        ]
    return masked_head(
        config, vocab_size, hidden, transform="generator_predictions.dense",
        layer_norm="generator_predictions.LayerNorm", bias="generator_lm_head.bias", decoder="generator_lm_head",
        width=_embedding_size(config, shape),
    )  # fmt: skip
