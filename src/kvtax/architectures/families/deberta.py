"""DeBERTa and DeBERTa V2 and V3: encoders whose attention looks at contents and relative positions apart."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import attention, plain_mlp
from kvtax.architectures.encoder import (
    MASKED,
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
from kvtax.architectures.tensors import COLUMN, HEADS, ROW, Tensor, embedding, linear, norm

_LAYER = "encoder.layer.*"
_SELF = f"{_LAYER}.attention.self"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Layers as BERT's, a table of relative positions, and projections of it where they are not those of the contents.

    Source: transformers 5.24.0 models/deberta/modeling_deberta.py, models/deberta_v2/modeling_deberta_v2.py.
    """
    task, shape = task_of(config), EncoderShape(config)
    hidden, layers, width = shape.hidden_size, shape.layers, config.integer("intermediate_size")
    if config.model_type == "deberta-v2":
        stated = config.optional_integer("attention_head_size")
        shape.head_dim = stated or shape.head_dim
    body = [*_embeddings(config, shape), *_attention(config, shape)]
    body += norm(f"{_LAYER}.attention.output.LayerNorm", hidden, layers, bias=True)
    body += plain_mlp(_LAYER, layers, hidden, width, bias=True, names=("intermediate.dense", "output.dense"))
    body += norm(f"{_LAYER}.output.LayerNorm", hidden, layers, bias=True)
    body += _relative(config, shape)
    head: list[Tensor] = []
    if task == MASKED:
        head = _masked(config, shape)
    elif task == SEQUENCE:
        head = [*pooler(config.integer("pooler_hidden_size", default=hidden)), *classifier(config, hidden)]
    elif task == TOKENS:
        head = classifier(config, hidden)
    elif task == QUESTION:
        head = question_head(hidden)
    return encoder(
        config, shape, body, head, task=task, base="deberta", prefix=prefix, intermediate_size=width
    )  # fmt: skip


def _kinds(config: Config) -> list[str]:
    """Which pairs the attention looks at: `c2p`, `p2c`; a string joins them by bars."""
    stated = config.get("pos_att_type")
    if stated is None:
        return []
    parts = stated.lower().split("|") if isinstance(stated, str) else config.optional_list("pos_att_type") or []
    return [part.strip() for part in parts if isinstance(part, str)]


def _embedding_size(config: Config, shape: EncoderShape) -> int:
    return config.optional_integer("embedding_size") or shape.hidden_size


def _embeddings(config: Config, shape: EncoderShape) -> list[Tensor]:
    """Words; positions and types where the config asks for them; a norm over the layers' width."""
    width, positions = _embedding_size(config, shape), config.integer("max_position_embeddings")
    found = embedding(shape.vocab_size, width, name="embeddings.word_embeddings")
    if config.boolean("position_biased_input", default=True):
        found += embedding(positions, width, name="embeddings.position_embeddings")
    types = config.optional_integer("type_vocab_size", minimum=0) or 0
    if types:
        found += embedding(types, width, name="embeddings.token_type_embeddings")
    if width != shape.hidden_size:
        found += linear("embeddings.embed_proj", shape.hidden_size, width, "embedding")
    found += position_ids(config, "embeddings.position_ids", positions)
    return [*found, *norm("embeddings.LayerNorm", shape.hidden_size, bias=True)]


def _attention(config: Config, shape: EncoderShape) -> list[Tensor]:
    """The projections of contents, then those of positions."""
    hidden, layers, heads = shape.hidden_size, shape.layers, shape.num_attention_heads
    relative, kinds = config.boolean("relative_attention"), _kinds(config)
    inner = heads * shape.head_dim
    if config.model_type == "deberta-v2":
        found = attention(
            _LAYER, layers, hidden, heads, heads, shape.head_dim, qkv_bias=True, o_bias=True,
            names=("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj", "attention.output.dense"),
        )  # fmt: skip
        if relative and not config.boolean("share_att_key"):
            if "c2p" in kinds:
                found += linear(f"{_SELF}.pos_key_proj", inner, hidden, "attention", layers, bias=True, shard=COLUMN)
            if "p2c" in kinds:
                found += linear(f"{_SELF}.pos_query_proj", inner, hidden, "attention", layers, bias=True, shard=COLUMN)
        return found
    found = linear(f"{_SELF}.in_proj", 3 * inner, hidden, "attention", layers, shard=HEADS, heads=(heads, heads))
    found += [Tensor(f"{_SELF}.{name}", (inner,), "attention", layers) for name in ("q_bias", "v_bias")]
    found += linear(f"{_LAYER}.attention.output.dense", hidden, inner, "attention", layers, bias=True, shard=ROW)
    if config.boolean("talking_head"):
        for name in ("head_logits_proj", "head_weights_proj"):
            found += linear(f"{_SELF}.{name}", heads, heads, "attention", layers)
    if relative and "c2p" in kinds:
        found += linear(f"{_SELF}.pos_proj", inner, hidden, "attention", layers, shard=COLUMN)
    if relative and "p2c" in kinds:
        found += linear(f"{_SELF}.pos_q_proj", inner, hidden, "attention", layers, bias=True, shard=COLUMN)
    return found


def _relative(config: Config, shape: EncoderShape) -> list[Tensor]:
    """The table of relative positions: two rows for each distance or bucket; V2 may have a norm over it and a convolution beside the first layer."""
    hidden, second = shape.hidden_size, config.model_type == "deberta-v2"
    found: list[Tensor] = []
    if config.boolean("relative_attention"):
        reach = config.optional_integer("max_relative_positions", minimum=-(2**24)) or 0
        reach = reach if reach >= 1 else config.integer("max_position_embeddings")
        if second:
            buckets = config.optional_integer("position_buckets", minimum=-(2**24)) or 0
            reach = buckets if buckets > 0 else reach
        found += embedding(2 * reach, hidden, name="encoder.rel_embeddings", component="attention")
    if not second:
        return found
    if "layer_norm" in [part.strip() for part in config.string("norm_rel_ebd", default="none").lower().split("|")]:
        found += norm("encoder.LayerNorm", hidden, bias=True)
    kernel = config.optional_integer("conv_kernel_size", minimum=0, maximum=4096) or 0
    if kernel:
        groups = config.integer("conv_groups", default=1)
        if hidden % groups:
            config.fail("conv_groups", f"{groups} does not divide hidden_size {hidden}")
        found.append(Tensor("encoder.conv.conv.weight", (hidden, hidden // groups, kernel), "other"))
        found.append(Tensor("encoder.conv.conv.bias", (hidden,), "other"))
        found += norm("encoder.conv.LayerNorm", hidden, bias=True)
    return found


def _masked(config: Config, shape: EncoderShape) -> list[Tensor]:
    """The head over the vocabulary, as BERT's or (`legacy` false) with a layer of its own names."""
    if config.boolean("legacy", default=True):
        return masked_head(
            config, shape.vocab_size, shape.hidden_size, transform="cls.predictions.transform.dense",
            layer_norm="cls.predictions.transform.LayerNorm", bias="cls.predictions.bias",
            decoder="cls.predictions.decoder", width=_embedding_size(config, shape),
        )  # fmt: skip
    found = linear("lm_predictions.lm_head.dense", shape.hidden_size, shape.hidden_size, "lm_head", bias=True)
    found += norm("lm_predictions.lm_head.LayerNorm", shape.hidden_size, bias=True, component="lm_head")
    return [*found, Tensor("lm_predictions.lm_head.bias", (shape.vocab_size,), "lm_head")]
