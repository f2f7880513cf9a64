"""ModernBERT and EuroBERT: encoders with the layers of newer decoders."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.decoder import attention, gated_mlp
from kvtax.architectures.encoder import (
    MASKED,
    MODEL,
    QUESTION,
    SEQUENCE,
    TOKENS,
    EncoderShape,
    classifier,
    encoder,
    question_head,
    task_of,
)
from kvtax.architectures.tensors import COLUMN, HEADS, ROW, Tensor, embedding, linear, lm_head, norm

_LAYER = "layers.*"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """One of the two.

    Source: transformers 5.24.0 models/modernbert/modeling_modernbert.py, models/eurobert/modeling_eurobert.py.
    """
    return _eurobert(config, prefix) if config.model_type == "eurobert" else _modernbert(config, prefix)


def _modernbert(config: Config, prefix: str) -> Architecture:
    """Rope, a gated MLP in one projection, no norm before the first attention; every head begins with a dense layer and a norm.

    Source: transformers 5.24.0 models/modernbert/modeling_modernbert.py.
    """
    task, shape = task_of(config), EncoderShape(config)
    hidden, layers, width = shape.hidden_size, shape.layers, config.integer("intermediate_size")
    heads = shape.num_attention_heads
    bias, mlp_bias, norm_bias = (config.boolean(key) for key in ("attention_bias", "mlp_bias", "norm_bias"))
    body = [
        *embedding(shape.vocab_size, hidden, name="embeddings.tok_embeddings"),
        *norm("embeddings.norm", hidden, bias=norm_bias),
        *linear(
            f"{_LAYER}.attn.Wqkv", 3 * hidden, hidden, "attention", layers, bias=bias, shard=HEADS, heads=(heads, heads)
        ),
        *linear(f"{_LAYER}.attn.Wo", hidden, hidden, "attention", layers, bias=bias, shard=ROW),
        *norm(f"{_LAYER}.mlp_norm", hidden, layers, bias=norm_bias),
        *linear(f"{_LAYER}.mlp.Wi", 2 * width, hidden, "mlp", layers, bias=mlp_bias, shard=COLUMN),
        *linear(f"{_LAYER}.mlp.Wo", hidden, width, "mlp", layers, bias=mlp_bias, shard=ROW),
        *norm("final_norm", hidden, bias=norm_bias),
    ]
    if len(layers) > 1:
        body += norm(f"{_LAYER}.attn_norm", hidden, layers[1:], bias=norm_bias)
    head: list[Tensor] = []
    if task != MODEL:
        component = "lm_head" if task == MASKED else "other"
        head += linear("head.dense", hidden, hidden, component, bias=config.boolean("classifier_bias"))
        head += norm("head.norm", hidden, bias=norm_bias, component=component)
    if task == MASKED:
        tied = config.tie_word_embeddings(True)
        head += lm_head(shape.vocab_size, hidden, tied, name="decoder", bias=config.boolean("decoder_bias"))
    elif task in (SEQUENCE, TOKENS):
        head += classifier(config, hidden)
    elif task == QUESTION:
        head += linear("classifier", 2, hidden, "other", bias=True)
    return encoder(
        config, shape, body, head, task=task, base="model", prefix=prefix, intermediate_size=width,
        rotary_dim=shape.head_dim,
    )  # fmt: skip


def _eurobert(config: Config, prefix: str) -> Architecture:
    """Llama's layers, attending in both directions.

    Source: transformers 5.24.0 models/eurobert/modeling_eurobert.py.
    """
    task, shape = task_of(config), EncoderShape(config, any_head_dim=True)
    hidden, layers, width = shape.hidden_size, shape.layers, config.integer("intermediate_size")
    kv_heads = config.num_key_value_heads(shape.num_attention_heads)
    shape.head_dim = config.head_dim(hidden, shape.num_attention_heads)
    bias = config.boolean("attention_bias")
    body = [
        *embedding(shape.vocab_size, hidden, name="embed_tokens"),
        *attention(
            f"{_LAYER}.self_attn", layers, hidden, shape.num_attention_heads, kv_heads, shape.head_dim, qkv_bias=bias,
            o_bias=bias,
        ),
        *gated_mlp(f"{_LAYER}.mlp", layers, hidden, width, bias=config.boolean("mlp_bias")),
        *norm(f"{_LAYER}.input_layernorm", hidden, layers),
        *norm(f"{_LAYER}.post_attention_layernorm", hidden, layers),
        *norm("norm", hidden),
    ]  # fmt: skip
    head: list[Tensor] = []
    if task == MASKED:
        head = lm_head(shape.vocab_size, hidden, config.tie_word_embeddings())
    elif task == SEQUENCE:
        head = [*linear("dense", hidden, hidden, "other", bias=True), *classifier(config, hidden)]
    elif task == TOKENS:
        head = classifier(config, hidden)
    elif task == QUESTION:
        head = question_head(hidden)
    return encoder(
        config, shape, body, head, task=task, base="model", prefix=prefix, intermediate_size=width,
        num_key_value_heads=kv_heads, rotary_dim=shape.head_dim,
    )  # fmt: skip
