"""GLM 4 dense models: glm, glm4 and the older chatglm files of the same shape."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape
from kvtax.architectures.layout import Layout, build_layout
from kvtax.architectures.tensors import Tensor, lm_head

_GLM = Layout(qkv_bias="attention_bias", mlp=("gate_up_proj", "down_proj"), fused_gate=True, rotary=0.5)
_CHATGLM = Layout(
    root="transformer",
    embed="embedding.word_embeddings",
    layers="encoder.layers",
    final_norm="encoder.final_layernorm",
    attention="self_attention",
    qkv=("query_key_value",),
    o_proj="dense",
    o_bias="add_bias_linear",
    mlp=("dense_h_to_4h", "dense_4h_to_h"),
    mlp_bias="add_bias_linear",
    fused_gate=True,
    rotary=0.5,
)


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention, gate and up in one matrix; glm4 has norms after attention and MLP too.

    Source: transformers 5.24.0 models/glm, glm4; for chatglm modeling_chatglm.py of zai-org/glm-4-9b-chat.
    """
    if config.model_type == "chatglm":
        return _chatglm(config, prefix)
    layout = _GLM
    if config.model_type == "glm4":
        layout = layout._replace(norms=(*layout.norms, "post_self_attn_layernorm", "post_mlp_layernorm"))
    return build_layout(config, layout, prefix=prefix)


class _ChatGlmShape(Shape):
    """The sizes under ChatGLM's own names; the embedding has padded_vocab_size rows."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.num_hidden_layers = config.integer("num_layers", "num_hidden_layers", maximum=MAXIMUM_LAYERS)
        self.hidden_size = config.integer("hidden_size")
        self.num_attention_heads = config.integer("num_attention_heads")
        self.head_dim = config.integer("kv_channels")
        self.vocab_size = config.integer("padded_vocab_size")
        self.layers = tuple(range(self.num_hidden_layers))
        self.tied = config.tie_word_embeddings()
        self.num_key_value_heads = self.num_attention_heads
        if config.boolean("multi_query_attention"):
            self.num_key_value_heads = config.integer("multi_query_group_num")
            if self.num_attention_heads % self.num_key_value_heads:
                config.fail("multi_query_group_num", f"does not divide num_attention_heads {self.num_attention_heads}")


def _chatglm(config: Config, prefix: str) -> Architecture:
    """ChatGLM 2, 3 and GLM-4 under the old names: one fused projection, whose bias the config switches apart.

    Its class may be named ...Model and has an output layer all the same.
    """
    for key in ("rmsnorm", "post_layer_norm"):
        if not config.boolean(key, default=True):
            config.unsupported(key, "only the form with RMS norms and a final norm is understood")
    qkv_bias = config.boolean("add_qkv_bias") or config.boolean("add_bias_linear")

    def head(shape: Shape) -> list[Tensor]:
        if config.architecture.endswith("ForSequenceClassification"):
            return []
        return lm_head(shape.vocab_size, shape.hidden_size, shape.tied, name="transformer.output_layer")

    return build_layout(
        config, _CHATGLM._replace(qkv_bias=qkv_bias), prefix=prefix, shape=_ChatGlmShape(config),
        intermediate_size=config.integer("ffn_hidden_size"), extra=head, head=False,
    )  # fmt: skip
