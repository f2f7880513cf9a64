"""The tensors of a GGUF file from the inventory of a checkpoint: what the converter renames, stacks, splits and keeps in float32."""

from __future__ import annotations

from collections.abc import Iterator

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.gguf.families import FUSED_KV_B, FUSED_QKV, FUSED_UP, TRANSPOSED
from kvtax.architectures.gguf.shape import Shape
from kvtax.architectures.gguf.tensor import GgufTensor
from kvtax.architectures.tensors import Tensor

_ATTENTION = {
    **dict.fromkeys(("q_proj", "wq", "query", "q"), "attn_q"), **dict.fromkeys(("k_proj", "wk", "key", "k"), "attn_k"),
    **dict.fromkeys(("v_proj", "wv", "value", "v"), "attn_v"),
    **dict.fromkeys(("o_proj", "wo", "out_proj", "dense", "c_proj"), "attn_output"),
    "q_a_proj": "attn_q_a", "q_b_proj": "attn_q_b", "kv_a_proj_with_mqa": "attn_kv_a_mqa", "kv_a_proj": "attn_kv_a_mqa",
    "index_q_proj": "indexer.q_proj", "index_k_proj": "indexer.k_proj",
}  # fmt: skip
_FUSED_QKV = ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "W_pack", "wqkv", "qkv")
_FUSED_UP = ("gate_up_proj", "dense_h_to_4h_fused", "input_linear", "up_gate_proj", "w1_w3")
_GATE = ("gate_proj", "w1", "gate", "c_fc_0", "linear")
_DOWN = ("down_proj", "w2", "fc2", "c_proj", "dense_4h_to_h", "fc_out", "output_linear", "out_proj", "linear_2")
_STATE = {
    "in_proj": "ssm_in", "x_proj": "ssm_x", "dt_proj": "ssm_dt", "out_proj": "ssm_out", "in_proj_qkv": "attn_qkv", "in_proj_z": "attn_gate",
    "in_proj_ba": "ssm_ba", "in_proj_b": "ssm_beta", "in_proj_a": "ssm_alpha", "q_proj": "attn_q", "k_proj": "attn_k",
    "v_proj": "attn_v", "o_proj": "attn_output",
}  # fmt: skip


def converted(architecture: Architecture, shape: Shape) -> list[GgufTensor]:
    """Every tensor of the file that the converter would write; towers are a file of their own, MTP layers are not loaded.

    Args:
        architecture: of the model.
        shape: its hyper-parameters.

    Returns:
        The tensors.

    Source: ggml-org/llama.cpp b11434 convert_hf_to_gguf.py, gguf-py/gguf/tensor_mapping.py.
    """
    found: list[GgufTensor] = []
    for tensor in architecture.tensors:
        if not tensor.loaded or tensor.component in ("vision", "audio", "mtp"):
            continue
        parts = list(_parts(shape, tensor))
        for layer in tensor.layers or (-1,):
            found += [part._replace(layer=layer) for part in parts]
    if architecture.rope_factors:
        found.append(GgufTensor("rope_freqs", (architecture.rope_factors,)))
    if shape.arch == "gemma4":
        stored = any(tensor.kind == "layer_output_scale" for tensor in found)
        found += [] if stored else [GgufTensor("layer_output_scale", (1,), index) for index in range(len(shape.layers))]
    return found


def _module(tensor: Tensor) -> str:
    """The module that a weight belongs to."""
    name = tensor.name
    for suffix in (".weight", ".bias", "_bias"):
        name = name.removesuffix(suffix)
    return name.rpartition(".")[2]


def _parts(shape: Shape, tensor: Tensor) -> Iterator[GgufTensor]:
    """What one tensor of a layer becomes."""
    if tensor.name.endswith(("bias", "_bias")) or len([size for size in tensor.shape if size > 1]) < 2:
        yield from _vector(tensor)
        return
    module, sizes = _module(tensor), tensor.shape
    if shape.arch in TRANSPOSED and tensor.component in ("attention", "mlp"):
        sizes = sizes[::-1]
    columns, rows = sizes[-1], sizes[-2]
    if tensor.component == "embedding":
        kind = "per_layer_token_embd" if "per_layer" in tensor.name else "token_embd"
        yield GgufTensor("position_embd" if module in ("wpe", "embed_positions") else kind, (columns, rows))
    elif tensor.component == "lm_head":
        yield GgufTensor("output", (columns, rows))
    elif tensor.component == "norms":
        yield GgufTensor("attn_q_norm", (columns, rows), kept="float32")
    elif tensor.component == "router":
        yield GgufTensor("ffn_gate_inp", (columns, rows))
    elif tensor.component == "routed_experts":
        yield from _experts(tensor, module, columns, rows)
    elif tensor.component == "attention":
        yield from _attention(shape, tensor, module, columns, rows)
    elif tensor.component in ("mlp", "shared_experts"):
        suffix = "_shexp" if tensor.component == "shared_experts" else ""
        yield from _feed_forward(shape, module, columns, rows, suffix)
    elif tensor.component == "linear_or_ssm":
        yield from _state(shape, tensor, module, columns, rows)
    else:
        yield GgufTensor(_other(tensor.name, module), (columns, rows))


def _vector(tensor: Tensor) -> Iterator[GgufTensor]:
    """Biases, norms and other vectors stay float32; biases of experts are stacked."""
    if tensor.component == "linear_or_ssm" and tensor.name.endswith("dt_bias"):
        yield GgufTensor("ssm_dt.bias", tensor.shape)
    elif tensor.per_layer > 1:
        yield GgufTensor("stacked.bias", (*tensor.shape[::-1], tensor.per_layer), kept="float32")
    else:
        yield GgufTensor("vector", (max(1, tensor.elements // tensor.copies),), kept="float32")


def _experts(tensor: Tensor, module: str, columns: int, rows: int) -> Iterator[GgufTensor]:
    """One matrix for all experts of a layer; gate and up apart."""
    count = tensor.per_layer if tensor.per_layer > 1 else tensor.elements // (tensor.copies * columns * rows)
    if module in _FUSED_UP:
        for name in ("gate", "up"):
            yield GgufTensor(f"ffn_{name}_exps", (columns, rows // 2, count))
    else:
        name = "down" if module in _DOWN else "gate" if module in _GATE else "up"
        yield GgufTensor(f"ffn_{name}_exps", (columns, rows, count))


def _attention(shape: Shape, tensor: Tensor, module: str, columns: int, rows: int) -> Iterator[GgufTensor]:
    """Projections; the up-projection of a latent in two parts, fused ones apart where the converter splits them."""
    layer = shape.layers[tensor.layers[0]] if tensor.layers else shape.layers[0]
    if module == "kv_b_proj" and shape.arch not in FUSED_KV_B and shape.value_length_mla:
        heads, nope = layer.head_count, rows // max(layer.head_count, 1) - shape.value_length_mla
        yield GgufTensor("attn_k_b", (nope, columns, heads))
        yield GgufTensor("attn_v_b", (columns, shape.value_length_mla, heads))
    elif module in _FUSED_QKV and shape.arch not in FUSED_QKV:
        yield GgufTensor("attn_q", (columns, rows - layer.key_width - layer.value_width))
        yield GgufTensor("attn_k", (columns, layer.key_width))
        yield GgufTensor("attn_v", (columns, layer.value_width))
    elif module in _FUSED_QKV:
        yield GgufTensor("attn_qkv", (columns, rows))
    else:
        yield GgufTensor("attn_kv_b" if module == "kv_b_proj" else _ATTENTION.get(module, module), (columns, rows))


def _feed_forward(shape: Shape, module: str, columns: int, rows: int, suffix: str) -> Iterator[GgufTensor]:
    if module in _FUSED_UP and (suffix or shape.arch not in FUSED_UP):
        for name in ("gate", "up"):
            yield GgufTensor(f"ffn_{name}{suffix}", (columns, rows // 2))
    else:
        name = "down" if module in _DOWN else "gate" if module in _GATE and shape.gated else "up"
        yield GgufTensor(f"ffn_{name}{suffix}", (columns, rows))


def _state(shape: Shape, tensor: Tensor, module: str, columns: int, rows: int) -> Iterator[GgufTensor]:
    """Tensors of recurrent layers: convolutions, decay rates and the like stay float32."""
    if "conv1d" in module or module in ("A_log", "D") or tensor.name.endswith(".conv.conv.weight"):
        size = tensor.elements // tensor.copies
        kernel = columns if "conv" in module else 1
        yield GgufTensor("ssm_conv1d" if kernel > 1 else "ssm_a", (kernel, size // kernel), kept="float32")
    elif module == "in_proj_qkvz":
        yield GgufTensor("attn_qkv", (columns, rows - shape.ssm_inner_size))
        yield GgufTensor("attn_gate", (columns, shape.ssm_inner_size))
    elif shape.shortconv_l_cache and module in ("in_proj", "out_proj"):
        yield GgufTensor(f"shortconv.{module}", (columns, rows))
    else:
        yield GgufTensor(_STATE.get(module, _other(tensor.name, module)), (columns, rows))


def _other(name: str, module: str) -> str:
    """A name for what no rule looks at, with the parts that keep it in float32."""
    if "per_layer_model_projection" in name:
        return "per_layer_model_proj"
    return next((part for part in ("altup", "laurel", "indexer.k_proj", "indexer.q_proj") if part in name), module)
