"""Nomic BERT, Alibaba's GTE (`new`) and Jina embeddings V3: BERT's order of norms with rope instead of a table of positions."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, Config, describe
from kvtax.architectures.decoder import plain_mlp
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
    question_head,
    task_of,
)
from kvtax.architectures.tensors import COLUMN, HEADS, ROW, Tensor, embedding, linear, norm


class Names(NamedTuple):
    """Names of the modules in a family's files."""

    base: str
    layer: str
    qkv: str
    output: str
    norms: tuple[str, str]
    embedding_norm: str


NAMES: dict[str, Names] = {
    "nomic_bert": Names("bert", "encoder.layers.*", "attn.Wqkv", "attn.out_proj", ("norm1", "norm2"), "emb_ln"),
    "gte": Names(
        "new", "encoder.layer.*", "attention.qkv_proj", "attention.o_proj", ("attn_ln", "mlp_ln"),
        "embeddings.LayerNorm",
    ),
    "jina_embeddings_v3": Names(
        "roberta", "encoder.layers.*", "mixer.Wqkv", "mixer.out_proj", ("norm1", "norm2"), "emb_ln"
    ),
}  # fmt: skip
NAMES["new"] = NAMES["gte"]


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Attention with fused projections and rope, an MLP with or without a gate, a LayerNorm after each.

    Source: transformers 5.24.0 models/nomic_bert, models/gte, models/jina_embeddings_v3 and the names that conversion_mapping.py gives their files;
    nomic-ai/nomic-bert-2048 and Alibaba-NLP/new-impl for the keys of older configs.
    """
    names, shape = NAMES[config.model_type], EncoderShape(config)
    task = task_of(config)
    kind = config.string("position_embedding_type", default="rope")
    if config.model_type == "new" and kind != "rope":
        config.unsupported("position_embedding_type", f"positions of the kind {describe(kind)} are not understood")
    hidden, layers, heads = shape.hidden_size, shape.layers, shape.num_attention_heads
    nomic = config.model_type == "nomic_bert"
    bias = config.boolean("qkv_proj_bias") if nomic else True
    body = embedding(shape.vocab_size, hidden, name="embeddings.word_embeddings")
    types = config.integer("type_vocab_size", minimum=0)
    if types:
        body += embedding(types, hidden, name="embeddings.token_type_embeddings")
    body += norm(names.embedding_norm, hidden, bias=True)
    body += linear(
        f"{names.layer}.{names.qkv}", 3 * hidden, hidden, "attention", layers, bias=bias, shard=HEADS,
        heads=(heads, heads),
    )  # fmt: skip
    body += linear(f"{names.layer}.{names.output}", hidden, hidden, "attention", layers, bias=bias, shard=ROW)
    for name in names.norms:
        body += norm(f"{names.layer}.{name}", hidden, layers, bias=True)
    width = config.optional_integer("n_inner", "intermediate_size") or 4 * hidden
    facts: dict[str, int] = {}
    if nomic:
        mlp, facts = _nomic_mlp(config, shape, width)
        body += mlp
    elif config.model_type == "jina_embeddings_v3":
        body += plain_mlp(f"{names.layer}.mlp", layers, hidden, width, bias=True)
    else:
        body += linear(f"{names.layer}.mlp.up_gate_proj", 2 * width, hidden, "mlp", layers, shard=COLUMN)
        body += linear(f"{names.layer}.mlp.down_proj", hidden, width, "mlp", layers, bias=True, shard=ROW)
    jina = config.model_type == "jina_embeddings_v3"
    if (jina and task == MODEL) or (not jina and task == SEQUENCE):
        body += pooler(hidden)
    head = _head(config, shape, task)
    return encoder(
        config, shape, body, head, task=task, base=names.base, prefix=prefix, intermediate_size=width,
        rotary_dim=int(shape.head_dim * _rotary_share(config)), **facts,
    )  # fmt: skip


def _rotary_share(config: Config) -> float:
    """Share of a head that rope turns."""
    share = config.number("rotary_emb_fraction", default=1.0)
    if not 0 <= share <= 1:
        config.fail("rotary_emb_fraction", "must be between 0 and 1")
    return share


def _nomic_mlp(config: Config, shape: EncoderShape, width: int) -> tuple[list[Tensor], dict[str, int]]:
    """The MLPs: gated (swiglu, silu) or plain; every n-th may be experts that share one bias.

    Source: nomic-ai/nomic-bert-2048 modeling_hf_nomic_bert.py; vllm 0.33.0 model_executor/models/bert_with_rope.py NomicMoE.
    """
    hidden, prefix = shape.hidden_size, "encoder.layers.*.mlp"
    up_bias, down_bias = config.boolean("mlp_fc1_bias"), config.boolean("mlp_fc2_bias")
    kind = config.string("activation_function", "hidden_act", default="silu")
    gated = kind in ("swiglu", "silu", "glu", "geglu")
    every = config.optional_integer("moe_every_n_layers", minimum=0, maximum=MAXIMUM_LAYERS) or 0
    sparse = tuple(layer for layer in shape.layers if every and layer % every == 1 % every)
    dense = tuple(layer for layer in shape.layers if layer not in set(sparse))
    found: list[Tensor] = []
    if dense and gated:
        for name in ("fc11", "fc12"):
            found += linear(f"{prefix}.{name}", width, hidden, "mlp", dense, bias=up_bias, shard=COLUMN)
    elif dense:
        found += linear(f"{prefix}.fc1", width, hidden, "mlp", dense, bias=up_bias, shard=COLUMN)
    if dense:
        found += linear(f"{prefix}.fc2", hidden, width, "mlp", dense, bias=down_bias, shard=ROW)
    if not sparse:
        return found, {}
    experts = config.integer("num_experts", maximum=MAXIMUM_EXPERTS)
    found += linear(f"{prefix}.router.layer", experts, hidden, "router", sparse)
    found += [
        Tensor(f"{prefix}.experts.mlp.{name}", (experts * width, hidden), "routed_experts", sparse)
        for name in ("w1", "w2")
    ]
    found.append(Tensor(f"{prefix}.experts.bias", (hidden,), "routed_experts", sparse))
    chosen = config.integer("moe_top_k", default=2, maximum=MAXIMUM_EXPERTS)
    return found, {"num_experts": experts, "num_experts_per_tok": chosen, "moe_intermediate_size": width}


def _head(config: Config, shape: EncoderShape, task: str) -> list[Tensor]:
    """The head of a class."""
    hidden, kind = shape.hidden_size, config.model_type
    if task == QUESTION:
        return question_head(hidden)
    if task == TOKENS:
        return classifier(config, hidden)
    if task == SEQUENCE:
        return classifier(config, hidden, dense=kind == "jina_embeddings_v3")
    if task != MASKED:
        return []
    if kind == "nomic_bert":
        return masked_head(
            config, shape.vocab_size, hidden, transform="cls.predictions.transform.dense",
            layer_norm="cls.predictions.transform.layer_norm", bias="cls.predictions.bias",
            decoder="cls.predictions.decoder",
        )  # fmt: skip
    bias = "lm_head.bias" if kind == "jina_embeddings_v3" else "lm_head.decoder.bias"
    layer_norm = "lm_head.layer_norm" if kind == "jina_embeddings_v3" else "lm_head.norm"
    return masked_head(
        config, shape.vocab_size, hidden, transform="lm_head.dense", layer_norm=layer_norm, bias=bias,
        decoder="lm_head.decoder",
    )  # fmt: skip
