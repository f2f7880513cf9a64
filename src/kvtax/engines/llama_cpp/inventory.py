"""The tensors of a GGUF file from its hyper-parameters alone, for the architectures whose files were compared tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kvtax.architectures.gguf.shape import Layer, Shape
from kvtax.architectures.gguf.tensor import GgufTensor
from kvtax.engines.llama_cpp.presets import Facts
from kvtax.errors import UnsupportedArchitectureError


class Traits(NamedTuple):
    """What an architecture's files have besides the usual matrices."""

    qkv_bias: bool = False
    o_bias: bool = False
    norms: tuple[str, ...] = ("attn_norm", "ffn_norm")
    qk_norm: str = ""
    """`head` for one weight of a head, `full` for one over all heads."""
    fused: bool = False
    """attn_qkv, and gate with up in ffn_up."""
    gated_query: bool = False
    """A gate of the same width beside the query."""
    expert_bias: bool = False
    correction_bias: bool = False
    sinks: bool = False


_TRAITS = {
    "llama": Traits(), "smollm3": Traits(), "qwen2": Traits(qkv_bias=True), "qwen3": Traits(qk_norm="head"),
    "qwen3moe": Traits(qk_norm="head"), "phi3": Traits(fused=True), "cohere2": Traits(norms=("attn_norm",)),
    "gemma2": Traits(norms=("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")),
    "gemma3": Traits(norms=("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"), qk_norm="head"),
    "gemma4": Traits(norms=("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"), qk_norm="head"),
    "gpt-oss": Traits(qkv_bias=True, o_bias=True, norms=("attn_norm", "post_attention_norm"), expert_bias=True, sinks=True),
    "olmo2": Traits(norms=("post_attention_norm", "post_ffw_norm"), qk_norm="full"),
    "glm4moe": Traits(qkv_bias=True, norms=("attn_norm", "post_attention_norm"), qk_norm="head", correction_bias=True),
    "deepseek2": Traits(), "kimi-linear": Traits(correction_bias=True),
    "qwen3next": Traits(qk_norm="head", norms=("attn_norm", "post_attention_norm"), gated_query=True),
    "qwen35": Traits(qk_norm="head", norms=("attn_norm", "post_attention_norm"), gated_query=True),
    "qwen35moe": Traits(qk_norm="head", norms=("attn_norm", "post_attention_norm"), gated_query=True),
    "nemotron_h_moe": Traits(norms=("attn_norm",), correction_bias=True), "nemotron_h": Traits(norms=("attn_norm",)),
    "granitehybrid": Traits(), "jamba": Traits(), "mamba": Traits(norms=("attn_norm",)), "falcon-h1": Traits(),
    "lfm2": Traits(qk_norm="head"),
}  # fmt: skip
COVERED = tuple(_TRAITS)


def tensors(
    shape: Shape, *, tied: bool, rope_factors: int = 0, sparse_layers: Iterable[int] | None = None
) -> list[GgufTensor]:
    """Every tensor of the file.

    Args:
        shape: of the model.
        tied: whether the output matrix is the embedding.
        rope_factors: entries of rope_freqs, 0 without it [elements].
        sparse_layers: layers with experts; None: all after leading_dense_block_count.

    Returns:
        The tensors, block by block.

    Raises:
        UnsupportedArchitectureError: an architecture whose files are not known.

    Source: ggml-org/llama.cpp b11434 src/models/*.cpp load_arch_tensors; counts of tensors and parameters of 39 files.
    """
    traits = _TRAITS.get(shape.arch)
    if traits is None:
        raise UnsupportedArchitectureError(
            f"the tensors of {shape.arch!r:.64} are not known",
            where="general.architecture",
            hint="known: " + ", ".join(COVERED),
        )
    width, rows = shape.embedding_length, shape.vocab_size
    found = [GgufTensor("token_embd", (width, rows)), GgufTensor("output_norm", (width,))]
    if not tied:
        found.append(GgufTensor("output", (width, rows)))
    if rope_factors:
        found.append(GgufTensor("rope_freqs", (rope_factors,)))
    sparse = set(range(shape.leading_dense_block_count, len(shape.layers)) if sparse_layers is None else sparse_layers)
    for index, layer in enumerate(shape.layers):
        body = list(_block(shape, traits, layer, shape.expert_count > 0 and index in sparse))
        found += [tensor._replace(layer=index) for tensor in body]
    return found + _per_layer_inputs(shape)


def facts(shape: Shape) -> Facts:
    """What the preset rules look at."""
    first = shape.layers[0]
    dense_70b = shape.arch == "llama" and len(shape.layers) == 80 and first.head_count != first.head_count_kv
    return Facts(
        arch=shape.arch,
        block_count=len(shape.layers) + shape.next_layers,
        query_per_kv_head=first.head_count // first.head_count_kv if first.head_count_kv else 0,
        expert_count=shape.expert_count,
        is_70b=dense_70b,
    )


def _block(shape: Shape, traits: Traits, layer: Layer, sparse: bool) -> Iterator[GgufTensor]:
    """One block: norms, attention, state, MLP or experts."""
    for name in traits.norms:
        if name != "ffn_norm" or not shape.arch.startswith("nemotron_h"):
            yield GgufTensor(name, (shape.embedding_length,))
    one_kind = shape.arch.startswith("nemotron_h")
    if layer.recurrent:
        yield from _state(shape)
    if (
        (layer.head_count_kv or layer.attends)
        and not (one_kind and layer.feed_forward_length)
        and not (layer.recurrent and shape.arch != "falcon-h1")
    ):
        yield from _latent(shape, layer) if shape.latent else _attention(shape, traits, layer)
    if shape.arch == "mamba" or (one_kind and not layer.feed_forward_length):
        return
    yield from _experts(shape, traits) if sparse else _mlp(shape, traits, layer)
    if shape.arch == "gemma4":
        yield GgufTensor("layer_output_scale", (1,))


def _attention(shape: Shape, traits: Traits, layer: Layer) -> Iterator[GgufTensor]:
    width, query = shape.embedding_length, layer.head_count * layer.key_length
    value = layer.value_length * layer.head_count_kv
    if traits.fused:
        yield GgufTensor("attn_qkv", (width, query + layer.key_width + value))
    else:
        yield GgufTensor("attn_q", (width, query * (2 if traits.gated_query else 1)))
        yield GgufTensor("attn_k", (width, layer.key_width))
        yield GgufTensor("attn_v", (width, value))
    yield GgufTensor("attn_output", (layer.head_count * layer.value_length, width))
    if traits.qkv_bias:
        for name, size in (("q", query), ("k", layer.key_width), ("v", value)):
            yield GgufTensor(f"attn_{name}.bias", (size,))
    if traits.o_bias:
        yield GgufTensor("attn_output.bias", (width,))
    if traits.qk_norm:
        full = traits.qk_norm == "full"
        yield GgufTensor("attn_q_norm", (query if full else layer.key_length,))
        yield GgufTensor("attn_k_norm", (layer.key_width if full else layer.key_length,))
    if traits.sinks:
        yield GgufTensor("attn_sinks", (layer.head_count,))


def _latent(shape: Shape, layer: Layer) -> Iterator[GgufTensor]:
    """Latent attention with the up-projection kept in two parts, one of them transposed."""
    width, heads, rank = shape.embedding_length, layer.head_count, shape.kv_lora_rank
    rope = layer.key_length - rank
    query = heads * shape.key_length_mla
    if shape.q_lora_rank:
        yield GgufTensor("attn_q_a", (width, shape.q_lora_rank))
        yield GgufTensor("attn_q_a_norm", (shape.q_lora_rank,))
        yield GgufTensor("attn_q_b", (shape.q_lora_rank, query))
    else:
        yield GgufTensor("attn_q", (width, query))
    yield GgufTensor("attn_kv_a_mqa", (width, rank + rope))
    yield GgufTensor("attn_kv_a_norm", (rank,))
    yield GgufTensor("attn_k_b", (shape.key_length_mla - rope, rank, heads))
    yield GgufTensor("attn_v_b", (rank, shape.value_length_mla, heads))
    yield GgufTensor("attn_output", (heads * shape.value_length_mla, width))


def _mlp(shape: Shape, traits: Traits, layer: Layer) -> Iterator[GgufTensor]:
    width, inner = shape.embedding_length, layer.feed_forward_length
    if not traits.fused and shape.gated:
        yield GgufTensor("ffn_gate", (width, inner))
    yield GgufTensor("ffn_up", (width, inner * (2 if traits.fused else 1)))
    yield GgufTensor("ffn_down", (inner, width))


def _experts(shape: Shape, traits: Traits) -> Iterator[GgufTensor]:
    """Router, stacked experts and shared experts."""
    width, inner, count = shape.embedding_length, shape.expert_feed_forward_length, shape.expert_count
    yield GgufTensor("ffn_gate_inp", (width, count))
    if traits.correction_bias or (shape.arch == "deepseek2" and shape.q_lora_rank):
        yield GgufTensor("exp_probs_b.bias", (count,))
    names = ("gate", "up") if shape.gated else ("up",)
    for name in names:
        yield GgufTensor(f"ffn_{name}_exps", (width, inner, count))
    yield GgufTensor("ffn_down_exps", (inner, width, count))
    if traits.expert_bias:
        yield GgufTensor("ffn_gate_inp.bias", (count,))
        for name in names:
            yield GgufTensor(f"ffn_{name}_exps.bias", (inner, count), kept="float32")
        yield GgufTensor("ffn_down_exps.bias", (width, count), kept="float32")
    shared = shape.expert_shared_feed_forward_length
    if shared:
        for name in names:
            yield GgufTensor(f"ffn_{name}_shexp", (width, shared))
        yield GgufTensor("ffn_down_shexp", (shared, width))
        if shape.arch in ("qwen3next", "qwen35moe"):
            yield GgufTensor("ffn_gate_inp_shexp", (width,))


def _state(shape: Shape) -> Iterator[GgufTensor]:
    """The tensors of a recurrent layer."""
    if shape.shortconv_l_cache:
        width = shape.embedding_length
        yield GgufTensor("shortconv.conv", (shape.shortconv_l_cache, width))
        yield GgufTensor("shortconv.in_proj", (width, 3 * width))
        yield GgufTensor("shortconv.out_proj", (width, width))
    elif shape.kda_head_dim:
        yield from _kimi_delta(shape)
    elif shape.arch in ("mamba", "jamba"):
        yield from _mamba(shape)
    elif shape.arch.startswith("qwen3"):
        yield from _delta_net(shape)
    else:
        yield from _mamba2(shape)


def _mamba(shape: Shape) -> Iterator[GgufTensor]:
    inner, state, rank = shape.ssm_inner_size, shape.ssm_state_size, shape.ssm_time_step_rank
    yield GgufTensor("ssm_in", (shape.embedding_length, 2 * inner))
    yield GgufTensor("ssm_conv1d", (shape.ssm_conv_kernel, inner))
    yield GgufTensor("ssm_conv1d.bias", (inner,))
    yield GgufTensor("ssm_x", (inner, rank + 2 * state))
    yield GgufTensor("ssm_dt", (rank, inner))
    yield GgufTensor("ssm_dt.bias", (inner,))
    yield GgufTensor("ssm_a", (state, inner), kept="float32")
    yield GgufTensor("ssm_d", (inner,))
    yield GgufTensor("ssm_out", (inner, shape.embedding_length))
    if shape.arch == "jamba":
        for name, size in (("dt", rank), ("b", state), ("c", state)):
            yield GgufTensor(f"ssm_{name}_norm", (size,))


def _mamba2(shape: Shape) -> Iterator[GgufTensor]:
    inner, groups = shape.ssm_inner_size, shape.ssm_group_count
    channels, heads = inner + 2 * groups * shape.ssm_state_size, shape.ssm_time_step_rank
    yield GgufTensor("ssm_in", (shape.embedding_length, inner + channels + heads))
    yield GgufTensor("ssm_conv1d", (shape.ssm_conv_kernel, channels))
    yield GgufTensor("ssm_conv1d.bias", (channels,))
    yield GgufTensor("ssm_dt.bias", (heads,))
    yield GgufTensor("ssm_a", (1, heads), kept="float32")
    yield GgufTensor("ssm_d", (1, heads), kept="float32")
    yield GgufTensor("ssm_norm", (inner // groups, groups))
    yield GgufTensor("ssm_out", (inner, shape.embedding_length))


def _delta_net(shape: Shape) -> Iterator[GgufTensor]:
    """A gated delta net: query, key and value in one matrix, beta and alpha together (Qwen3-Next) or apart."""
    width, inner, heads = shape.embedding_length, shape.ssm_inner_size, shape.ssm_time_step_rank
    channels = inner + 2 * shape.ssm_group_count * shape.ssm_state_size
    yield GgufTensor("attn_qkv", (width, channels))
    yield GgufTensor("attn_gate", (width, inner))
    yield GgufTensor("ssm_conv1d", (shape.ssm_conv_kernel, channels))
    yield GgufTensor("ssm_dt.bias", (heads,))
    yield GgufTensor("ssm_a", (heads,))
    if shape.arch == "qwen3next":
        yield GgufTensor("ssm_ba", (width, 2 * heads))
    else:
        yield GgufTensor("ssm_beta", (width, heads))
        yield GgufTensor("ssm_alpha", (width, heads))
    yield GgufTensor("ssm_norm", (inner // heads,))
    yield GgufTensor("ssm_out", (inner, width))


def _kimi_delta(shape: Shape) -> Iterator[GgufTensor]:
    width, heads, head_dim = shape.embedding_length, shape.head_count, shape.kda_head_dim
    inner = heads * head_dim
    for name in ("q", "k", "v"):
        yield GgufTensor(f"attn_{name}", (width, inner))
        yield GgufTensor(f"ssm_conv1d_{name}", (shape.ssm_conv_kernel, 1, inner))
    yield GgufTensor("ssm_f_a", (width, head_dim))
    yield GgufTensor("ssm_f_b", (head_dim, inner))
    yield GgufTensor("ssm_beta", (width, heads))
    yield GgufTensor("ssm_a", (1, heads), kept="float32")
    yield GgufTensor("ssm_dt.bias", (inner,))
    yield GgufTensor("ssm_g_a", (width, head_dim))
    yield GgufTensor("ssm_g_b", (head_dim, inner))
    yield GgufTensor("ssm_norm", (head_dim,))
    yield GgufTensor("attn_output", (inner, width))


def _per_layer_inputs(shape: Shape) -> list[GgufTensor]:
    """Gemma's embeddings of each layer, and what brings them in."""
    size = shape.embedding_length_per_layer_input
    if not size:
        return []
    count, width = len(shape.layers), shape.embedding_length
    found = [
        GgufTensor("per_layer_token_embd", (size * count, shape.vocab_size)),
        GgufTensor("per_layer_model_proj", (width, size * count)),
        GgufTensor("per_layer_proj_norm", (size,)),
    ]
    for index in range(count):
        found += [
            GgufTensor("inp_gate", (width, size), index),
            GgufTensor("proj", (size, width), index),
            GgufTensor("post_norm", (width,), index),
        ]
    return found
