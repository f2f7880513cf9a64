"""InternLM 1, 2 and 3."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config
from kvtax.architectures.layout import Layout, build_layout
from kvtax.architectures.tensors import linear

LAYOUTS: dict[str, Layout] = {
    "internlm": Layout(qkv_bias="bias", o_bias="bias", any_head_dim=False),
    "internlm2": Layout(
        embed="tok_embeddings",
        head="output",
        attention="attention",
        qkv=("wqkv",),
        o_proj="wo",
        qkv_bias="bias",
        o_bias="bias",
        norms=("attention_norm", "ffn_norm"),
        mlp_module="feed_forward",
        mlp=("w1", "w3", "w2"),
        any_head_dim=False,
    ),
    "internlm3": Layout(qkv_bias="qkv_bias", o_bias="bias", mlp_bias="bias"),
}


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Llama with biases that the config switches; InternLM 2 fuses query, key and value and has names of its own.

    Source: modeling_internlm.py, modeling_internlm2.py and modeling_internlm3.py of the internlm repositories.
    """
    layout = LAYOUTS[config.model_type]
    if config.parent is None and config.architecture == "InternLM2ForRewardModel":
        return build_layout(
            config, layout, prefix=prefix, extra=lambda shape: linear("v_head", 1, shape.hidden_size, "other")
        )
    return build_layout(config, layout, prefix=prefix)
