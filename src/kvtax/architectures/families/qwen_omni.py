"""The thinkers of Qwen2.5-Omni and Qwen3-Omni: an audio and a vision tower before a text model; no talkers."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import gated_mlp
from kvtax.architectures.multimodal import outer_tied
from kvtax.architectures.tensors import HEADS, ROW, Tensor, linear, norm
from kvtax.architectures.towers import convolution, encoder_layers, with_towers
from kvtax.architectures.towers_qwen import (
    block_norms,
    depth_layers,
    merged_width,
    patch_convolution,
    qwen3_vl_tower,
    sequential_merger,
)
from kvtax.terms import Notice


def build(config: Config, *, prefix: str = "") -> Architecture:
    """The thinker, which is what engines serve: of the whole model's config, or by itself.

    Source: transformers 5.24.0 models/qwen2_5_omni/modeling_qwen2_5_omni.py and
    models/qwen3_omni_moe/modeling_qwen3_omni_moe.py.
    """
    kind = config.model_type.removesuffix("_thinker")
    if config.model_type != kind:
        return _thinker(config, kind, prefix)
    thinker = config.sub("thinker_config").retyped(f"{kind}_thinker")
    # the class of the whole is called ...Model, yet the thinker has a head
    thinker.parent = None
    if not thinker.dtype() and config.dtype():
        thinker = thinker.retyped(dtype=config.dtype())
    notice = Notice(
        "talker-not-counted",
        "only the thinker is counted: the talker and what turns its codes into sound are not loaded for text output",
    )
    text = _thinker(thinker, kind, f"{prefix}thinker.")
    return with_towers(config, text, [], notices=(*text.notices, notice))


def _thinker(config: Config, kind: str, prefix: str) -> Architecture:
    """Text model and towers below `prefix`."""
    from kvtax.architectures.families.qwen_vl import build_text

    text_config = config.sub("text_config").retyped(f"{kind}_text")
    text = build_text(text_config.retyped(tie_word_embeddings=outer_tied(config, text_config)), prefix=prefix)
    vision = config.sub("vision_config").retyped(f"{kind}_vision_encoder")
    audio = config.sub("audio_config").retyped(f"{kind}_audio_encoder")
    tower = _vision_2_5(vision, f"{prefix}visual") if kind == "qwen2_5_omni" else _vision_3(vision, f"{prefix}visual")
    return with_towers(config, text, [*tower, *_audio(audio, f"{prefix}audio_tower.", kind == "qwen2_5_omni")])


def _vision_2_5(config: Config, prefix: str) -> list[Tensor]:
    """Qwen2.5-VL's tower with query, key and value apart."""
    width, out_width = config.integer("hidden_size"), config.integer("out_hidden_size")
    heads = config.integer("num_heads")
    if width % heads:
        config.fail("num_heads", f"{heads} heads do not divide the width {width}")
    layers = depth_layers(config)
    block = f"{prefix}.blocks.*"
    found = [*patch_convolution(config, prefix, width, bias=False), *block_norms(block, layers, width, bias=False)]
    for name in "qkv":
        found += linear(
            f"{block}.attn.{name}", width, width, "vision", layers, bias=True, shard=HEADS, heads=(0, heads)
        )
    return [
        *found,
        *linear(f"{block}.attn.proj", width, width, "vision", layers, bias=True, shard=ROW),
        *gated_mlp(f"{block}.mlp", layers, width, config.integer("intermediate_size"), bias=True, component="vision"),
        *sequential_merger(f"{prefix}.merger", merged_width(config, width), width, out_width, norm_bias=False),
    ]


def _vision_3(config: Config, prefix: str) -> list[Tensor]:
    """Qwen3-VL's tower, its mergers named as in Qwen2.5-VL."""
    names = {
        ".deepstack_merger_list.": ".merger_list.",
        ".norm.": ".ln_q.",
        ".linear_fc1.": ".mlp.0.",
        ".linear_fc2.": ".mlp.2.",
    }
    found = []
    for tensor in qwen3_vl_tower(config, prefix):
        name = tensor.name
        if "merger" in name:
            for old, new in names.items():
                name = name.replace(old, new)
        found.append(tensor._replace(name=name))
    return found


def _audio(config: Config, prefix: str, second: bool) -> list[Tensor]:
    """Whisper's layers without learned positions; Qwen3-Omni convolves in two dimensions and has biases everywhere."""
    width, out_width = config.integer("d_model"), config.integer("output_dim")
    heads, inner = config.integer("encoder_attention_heads"), config.integer("encoder_ffn_dim")
    if width % heads:
        config.fail("encoder_attention_heads", f"{heads} does not divide d_model {width}")
    mel = config.integer("num_mel_bins")
    count = config.integer("encoder_layers", maximum=MAXIMUM_LAYERS)
    found = encoder_layers(
        f"{prefix}layers", count, width, heads, inner, component="audio", mlp_names=("fc1", "fc2"),
        norm_names=("self_attn_layer_norm", "final_layer_norm"), key_bias=not second,
    )  # fmt: skip
    found += norm(f"{prefix}ln_post", width, bias=True, component="audio")
    if second:
        return [
            *found,
            *convolution(f"{prefix}conv1", width, mel, 3, component="audio"),
            *convolution(f"{prefix}conv2", width, width, 3, component="audio"),
            Tensor(f"{prefix}audio_bos_eos_token.weight", (2, out_width), "audio"),
            *linear(f"{prefix}proj", out_width, width, "audio", bias=True),
        ]
    channels = config.integer("downsample_hidden_size")
    for _ in range(3):
        mel = (mel + 1) // 2
    return [
        *found,
        *convolution(f"{prefix}conv2d1", channels, 1, 3, 3, component="audio"),
        *convolution(f"{prefix}conv2d2", channels, channels, 3, 3, component="audio"),
        *convolution(f"{prefix}conv2d3", channels, channels, 3, 3, component="audio"),
        *linear(f"{prefix}conv_out", width, channels * mel, "audio"),
        *linear(f"{prefix}proj1", width, width, "audio", bias=True),
        *linear(f"{prefix}proj2", out_width, width, "audio", bias=True),
    ]
