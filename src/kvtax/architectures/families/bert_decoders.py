"""Decoders with the layers of older encoders: ModernBERT's decoder and CTRL."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention
from kvtax.architectures.config import MAXIMUM_HEADS, MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape, assemble, attention, attention_caches, plain_mlp
from kvtax.architectures.layout import square_head_dim
from kvtax.architectures.tensors import COLUMN, ROW, Tensor, linear, norm

_LAYER = "model.layers.*"
_CTRL = "transformer.h.*"


def build(config: Config, *, prefix: str = "") -> Architecture:
    """One of the two.

    Source: transformers 5.24.0 models/modernbert_decoder/modeling_modernbert_decoder.py, models/ctrl/modeling_ctrl.py.
    """
    return _ctrl(config, prefix) if config.model_type == "ctrl" else _modernbert(config, prefix)


def _modernbert(config: Config, prefix: str) -> Architecture:
    """Windows in all but every third layer, no norm before the first attention, a head of a dense layer, a norm and the embedding.

    Source: transformers 5.24.0 models/modernbert_decoder/modeling_modernbert_decoder.py.
    """
    shape = Shape(config)
    shape.num_key_value_heads, shape.head_dim = shape.num_attention_heads, square_head_dim(shape)
    hidden, layers, width = shape.hidden_size, shape.layers, config.integer("intermediate_size")
    bias, mlp_bias, norm_bias = (config.boolean(key) for key in ("attention_bias", "mlp_bias", "norm_bias"))
    body = [
        *norm("model.embeddings.norm", hidden, bias=norm_bias),
        *attention(
            f"{_LAYER}.attn", layers, hidden, shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim,
            qkv_bias=bias, o_bias=bias, names=("q_proj", "k_proj", "v_proj", "Wo"),
        ),
        *norm(f"{_LAYER}.mlp_norm", hidden, layers, bias=norm_bias),
        *linear(f"{_LAYER}.mlp.Wi", 2 * width, hidden, "mlp", layers, bias=mlp_bias, shard=COLUMN),
        *linear(f"{_LAYER}.mlp.Wo", hidden, width, "mlp", layers, bias=mlp_bias, shard=ROW),
    ]  # fmt: skip
    if len(layers) > 1:
        body += norm(f"{_LAYER}.attn_norm", hidden, layers[1:], bias=norm_bias)
    if not config.architecture or config.architecture.endswith("ForCausalLM"):
        body += linear("lm_head.dense", hidden, hidden, "lm_head", bias=config.boolean("classifier_bias"))
        body += norm("lm_head.norm", hidden, bias=norm_bias)
    kinds = config.layer_types(shape.num_hidden_layers)
    if kinds is None:
        step = config.integer("global_attn_every_n_layers", default=3, maximum=MAXIMUM_LAYERS)
        kinds = ["sliding_attention" if index % step else "full_attention" for index in layers]
    window = config.optional_integer("local_attention", minimum=0) or 0
    caches = attention_caches(
        config, kinds, shape.num_key_value_heads, shape.head_dim, sliding_window=window // 2 or None
    )
    return assemble(
        config, shape, body, caches, prefix=prefix, embed_name="model.embeddings.tok_embeddings", head_name="decoder",
        head_bias=config.boolean("decoder_bias"), final_norm=norm("model.final_norm", hidden, bias=norm_bias),
        intermediate_size=width,
    )  # fmt: skip


def _ctrl(config: Config, prefix: str) -> Architecture:
    """Attention and a plain MLP with biases, positions that are computed, a head tied to the embedding with a bias of its own.

    Source: transformers 5.24.0 models/ctrl/modeling_ctrl.py.
    """
    shape = _Ctrl(config)
    hidden, layers, width, heads = shape.hidden_size, shape.layers, config.integer("dff"), shape.num_attention_heads
    body: list[Tensor] = [
        *attention(
            f"{_CTRL}.multi_head_attention", layers, hidden, heads, heads, shape.head_dim, qkv_bias=True, o_bias=True,
            names=("Wq", "Wk", "Wv", "dense"),
        ),
        *plain_mlp(f"{_CTRL}.ffn", layers, hidden, width, bias=True, names=("0", "2")),
        *norm(f"{_CTRL}.layernorm1", hidden, layers, bias=True),
        *norm(f"{_CTRL}.layernorm2", hidden, layers, bias=True),
    ]  # fmt: skip
    cache = FullAttention(heads, shape.head_dim, shape.head_dim)
    return assemble(
        config, shape, body, [cache] * shape.num_hidden_layers, prefix=prefix, embed_name="transformer.w",
        head_bias=True, final_norm=norm("transformer.layernorm", hidden, bias=True), intermediate_size=width, rotary_dim=0,
    )  # fmt: skip


class _Ctrl(Shape):
    """The sizes under CTRL's own names."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.num_hidden_layers = config.integer("n_layer", "num_hidden_layers", maximum=MAXIMUM_LAYERS)
        self.hidden_size = config.integer("n_embd", "hidden_size")
        self.num_attention_heads = config.integer("n_head", "num_attention_heads", maximum=MAXIMUM_HEADS)
        self.num_key_value_heads = self.num_attention_heads
        self.head_dim = square_head_dim(self)
        self.vocab_size = config.integer("vocab_size")
        self.layers = tuple(range(self.num_hidden_layers))
        self.tied = config.tie_word_embeddings(True)
