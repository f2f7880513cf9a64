"""Muse Glimmer and Muse Spark: gated attention in windows; Spark has experts on a narrower stream and hears too."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_EXPERTS, Config, describe
from kvtax.architectures.decoder import Shape, assemble, attention, attention_caches, gated_mlp, layers_where
from kvtax.architectures.tensors import COLUMN, EXPERT, ROW, Tensor, linear, norm
from kvtax.architectures.towers import (
    build_text,
    encoder_layers,
    hidden_and_heads,
    in_language_model,
    with_towers,
)

_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


def _layer_kinds(config: Config, num_hidden_layers: int) -> list[str]:
    """layer_types, else every fourth layer counted back from the last is a full one."""
    kinds = config.layer_types(num_hidden_layers)
    if kinds is not None:
        return kinds
    last = num_hidden_layers - 1
    return ["full_attention" if (last - index) % 4 == 0 else "sliding_attention" for index in range(num_hidden_layers)]


def _moe(config: Config, layers: tuple[int, ...], hidden_size: int) -> tuple[list[Tensor], dict[str, Any]]:
    """A router on the whole stream, experts on a projection of it."""
    num_experts = config.integer("num_local_experts", maximum=MAXIMUM_EXPERTS)
    inner, width = config.integer("moe_hidden_size"), config.integer("moe_intermediate_size")
    name = "model.layers.*.mlp"
    found = [
        Tensor(f"{name}.gate.weight", (num_experts, hidden_size), "router", layers, dtype="float32"),
        Tensor(
            f"{name}.gate.e_score_correction_bias", (num_experts,), "router", layers, parameter=False, dtype="float32"
        ),
        *linear(f"{name}.pre_expert_proj", inner, hidden_size, "mlp", layers),
        *norm(f"{name}.pre_expert_norm", inner, layers),
        *linear(f"{name}.post_expert_proj", hidden_size, inner, "mlp", layers),
        *norm(f"{name}.experts.post_expert_norm", inner, layers),
    ]
    for key, sizes in (("gate_up_proj", (2 * width, inner)), ("down_proj", (inner, width))):
        found.append(
            Tensor(f"{name}.experts.{key}", (num_experts, *sizes), "routed_experts", layers, shard=EXPERT, linear=True)
        )
    per_token = config.integer("num_experts_per_tok", maximum=num_experts)
    return found, {"num_experts": num_experts, "num_experts_per_tok": per_token, "moe_intermediate_size": width}


def _feed_forward(config: Config, shape: Shape) -> tuple[list[Tensor], dict[str, Any]]:
    """The MLPs, experts where mlp_layer_types says sparse."""
    spark = config.model_type == "muse_spark_text"
    kinds = ["dense"] * shape.num_hidden_layers
    if spark:
        kinds = config.layer_types(shape.num_hidden_layers, "mlp_layer_types") or ["sparse"] * shape.num_hidden_layers
    width = config.integer("intermediate_size")
    found: list[Tensor] = []
    facts: dict[str, Any] = {}
    sparse = layers_where(kinds, "sparse")
    # every other name is a dense layer
    dense = tuple(index for index in shape.layers if index not in set(sparse))
    if sparse:
        found, facts = _moe(config, sparse, shape.hidden_size)
    if dense:
        found += gated_mlp("model.layers.*.mlp", dense, shape.hidden_size, width)
    return found, {"intermediate_size": width, **facts}


def _text(config: Config, prefix: str) -> Architecture:
    """The decoder."""
    shape = Shape(config)
    bias = config.boolean("attention_bias")
    layer = "model.layers.*"
    body = attention(
        f"{layer}.self_attn", shape.layers, shape.hidden_size, shape.num_attention_heads, shape.num_key_value_heads,
        shape.head_dim, qkv_bias=bias, o_bias=bias,
    )  # fmt: skip
    queries = shape.num_attention_heads * shape.head_dim
    body += linear(f"{layer}.self_attn.gate_proj", queries, shape.hidden_size, "attention", shape.layers, shard=COLUMN)
    spark = config.model_type == "muse_spark_text"
    for name in _NORMS:
        # Spark's norm after attention has no weight
        if not (spark and name == "post_attention_layernorm"):
            body += norm(f"{layer}.{name}", shape.hidden_size, shape.layers)
    if spark:
        for name in ("post_attention_residual_gate", "post_feedforward_residual_gate"):
            body.append(Tensor(f"{layer}.{name}.gate", (shape.hidden_size,), "other", shape.layers, dtype="float32"))
    found, facts = _feed_forward(config, shape)
    kinds = _layer_kinds(config, shape.num_hidden_layers)
    window = config.optional_integer("sliding_window")
    caches = attention_caches(config, kinds, shape.num_key_value_heads, shape.head_dim, sliding_window=window)
    # the text class that stands alone has no head
    head = config.parent is not None or bool(config.architecture)
    return assemble(config, shape, [*body, *found], caches, prefix=prefix, head=head, **facts)


def _vision(config: Config, prefix: str) -> list[Tensor]:
    """Patches of patch_temporal frames as one matrix, a table of positions, encoder layers between two norms."""
    hidden_size, heads = hidden_and_heads(config)
    patches = config.integer("patch_temporal", maximum=4096) * 3 * config.integer("patch_size") ** 2
    positions = config.integer("pos_emb_height") * config.integer("pos_emb_width")
    return [
        *linear(f"{prefix}patch_embedder.patch_embedding", hidden_size, patches, "vision"),
        Tensor(f"{prefix}patch_embedder.position_embedding_table.weight", (positions, hidden_size), "vision"),
        *norm(f"{prefix}ln_pre", hidden_size, bias=True, component="vision"),
        *norm(f"{prefix}ln_post", hidden_size, bias=True, component="vision"),
        *encoder_layers(
            f"{prefix}layers", config.integer("num_hidden_layers"), hidden_size, heads,
            config.integer("intermediate_size"), attention_name="attn", names=("q_proj", "k_proj", "v_proj", "proj"),
            norm_names=("norm1", "norm2"),
        ),
    ]  # fmt: skip


def _audio_stage(config: Config, prefix: str, sizes: tuple[int, int, int, int], kernel: int) -> list[Tensor]:
    """Patches of the stage before, then blocks of a depthwise convolution and an MLP."""
    inner, outer, patch_size, depth = sizes
    blocks = tuple(range(depth))
    block = f"{prefix}.conv_blocks.*"
    width = int(outer * config.number("mlp_ratio"))
    if width < 1:
        config.fail("mlp_ratio", "leaves no MLP")
    found = [
        *linear(f"{prefix}.patch_embedder.proj", outer, inner * patch_size, "audio", bias=True),
        *norm(f"{prefix}.patch_embedder.norm", outer, component="audio"),
    ]
    if blocks:
        found += [
            Tensor(f"{block}.conv.weight", (outer, 1, kernel), "audio", blocks),
            Tensor(f"{block}.conv.bias", (outer,), "audio", blocks),
            *norm(f"{block}.norm", outer, blocks, component="audio"),
            *linear(f"{block}.mlp.fc1", width, outer, "audio", blocks, bias=True, shard=COLUMN),
            *linear(f"{block}.mlp.fc2", outer, width, "audio", blocks, bias=True, shard=ROW),
        ]
    return found


def _audio(config: Config, prefix: str) -> list[Tensor]:
    """A pyramid of convolutions on the waveform."""
    count = config.integer("num_hidden_layers", maximum=64)
    lists: list[list[int]] = []
    for key, least in (("hidden_sizes", 1), ("patch_sizes", 1), ("depths", 0)):
        values = config.integers(key, length=count, minimum=least, maximum=4096 if least == 0 else 2**24)
        if values is None:
            config.fail(key, f"must be {count} whole numbers")
        lists.append(values)
    widths, patch_sizes, depths = lists
    kernel = config.integer("conv_kernel_size", maximum=4096)
    out = config.integer("out_hidden_size")
    found: list[Tensor] = []
    for index in range(count):
        inner = widths[index - 1] if index else 1
        sizes = (inner, widths[index], patch_sizes[index], depths[index])
        found += _audio_stage(config, f"{prefix}layers.{index}", sizes, kernel)
    return [
        *found,
        *norm(f"{prefix}norm", widths[-1], component="audio"),
        *linear(f"{prefix}proj", out, widths[-1], "audio", bias=True),
        *norm(f"{prefix}post_proj_norm", out, component="audio"),
    ]


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Attention with a gated output, three sliding layers to a full one; MLPs (Glimmer) or experts (Spark).

    Source: transformers 5.24.0 models/muse_glimmer/modeling_muse_glimmer.py, models/muse_spark/modeling_muse_spark.py.
    """
    if config.model_type.endswith("_text"):
        return _text(config, prefix)
    spark = config.model_type == "muse_spark"
    tied = False if spark else config.boolean("tie_word_embeddings")
    text = in_language_model(build_text(config, prefix="", tied=tied))
    vision = config.sub("vision_config")
    if vision.model_type not in ("muse_glimmer_vision", "muse_spark_vision"):
        vision.unsupported("model_type", f"vision tower {describe(vision.model_type)} is not understood")
    width = config.integer("projector_hidden_size")
    tensors = [
        *_vision(vision, "model.vision_tower."),
        *linear("model.vision_adapter.fc1", width, config.integer("out_hidden_size"), "vision"),
        *linear("model.vision_adapter.fc2", width, width, "vision"),
        *linear("model.vision_projection", text.hidden_size, width, "vision"),
    ]
    if spark:
        tensors += _audio(config.sub("audio_config"), "model.audio_tower.")
    return with_towers(config, text, tensors)
