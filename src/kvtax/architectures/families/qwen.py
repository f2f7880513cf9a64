"""Qwen 1 to 3 dense, and MiMo, which is Qwen 2 with a layer that predicts further tokens."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import Shape
from kvtax.architectures.layout import Layout, build_layout, layer_tensors
from kvtax.architectures.tensors import Tensor, linear, norm, not_loaded
from kvtax.architectures.windows import switched

_QWEN2 = Layout(windows=switched, qkv_bias=True)
_QWEN3 = Layout(windows=switched, qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="head")
_QWEN1 = Layout(
    root="transformer",
    layers="h",
    embed="wte",
    final_norm="ln_f",
    norms=("ln_1", "ln_2"),
    attention="attn",
    qkv=("c_attn",),
    qkv_bias=True,
    o_proj="c_proj",
    mlp=("w1", "w2", "c_proj"),
)


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grouped-query attention with biases on query, key and value (Qwen 2) or norms on query and key (Qwen 3).

    Source: transformers 5.24.0 models/qwen2, qwen3; for qwen modeling_qwen.py of Qwen/Qwen-7B; for mimo
    modeling_mimo.py of XiaomiMiMo/MiMo-7B-Base and vllm 0.33.0 model_executor/models/mimo_mtp.py.
    """
    kind = config.model_type
    if kind == "qwen":
        return _qwen1(config, prefix)
    layout = _QWEN3 if kind == "qwen3" else _QWEN2
    return build_layout(config, layout, prefix=prefix, extra=lambda shape: _extra(config, layout, shape))


def _qwen1(config: Config, prefix: str) -> Architecture:
    """Full heads of kv_channels each in one projection; intermediate_size is that of gate and up together."""
    shape = Shape(config)
    shape.num_key_value_heads = shape.num_attention_heads
    layout = _QWEN1
    if not config.boolean("no_bias", default=True):
        layout = layout._replace(o_bias=True, mlp_bias=True)
    width = config.integer("intermediate_size", minimum=2) // 2
    return build_layout(config, layout, prefix=prefix, shape=shape, intermediate_size=width)


def _extra(config: Config, layout: Layout, shape: Shape) -> list[Tensor]:
    """MiMo's prediction layers; the two linear layers of a reward model's head."""
    if config.model_type == "mimo":
        return _mtp(config, layout, shape)
    if config.parent is None and config.architecture.endswith(("ForRewardModel", "ForProcessRewardModel")):
        labels = config.integer("num_labels", default=2 if "Process" in config.architecture else 1)
        return [
            *linear("score.0", shape.hidden_size, shape.hidden_size, "other", bias=True),
            *linear("score.2", labels, shape.hidden_size, "other", bias=True),
        ]
    return []


def _mtp(config: Config, layout: Layout, shape: Shape) -> list[Tensor]:
    """One decoder layer each, with a projection of embedding and hidden state to one and three norms."""
    count = config.optional_integer("num_nextn_predict_layers", default=0, minimum=0, maximum=MAXIMUM_LAYERS) or 0
    if not count:
        return []
    layers = tuple(range(count))
    inner = Shape(config)
    inner.layers = layers
    at = layout._replace(layers="mtp_layers")
    tensors = layer_tensors(config, at, inner, config.integer("intermediate_size"))
    tensors += linear(f"{at.layer}.input_proj", shape.hidden_size, 2 * shape.hidden_size, "mtp", layers)
    for name in ("token_layernorm", "hidden_layernorm", "final_layernorm"):
        tensors += norm(f"{at.layer}.{name}", shape.hidden_size, layers)
    return not_loaded(tensors)
