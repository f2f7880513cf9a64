"""What a server holds once a model is loaded, beside its parameters: rope tables, blocks of the allocator, copies made after loading."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.engines.allocator import Allocation, allocate
from kvtax.formulas.activation import rope_cache_bytes
from kvtax.formulas.weights import RankTensor, element_bytes
from kvtax.values import Limits

TOWERS = frozenset(("vision", "audio"))
_KINDS = {"image": "vision", "video": "vision", "vision_chunk": "vision", "audio": "audio"}
_FUSED = {
    "q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj", "query": "qkv_proj", "key": "qkv_proj", "value": "qkv_proj",
    "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj", "w1": "w13", "w3": "w13",
    "q_a_proj": "fused_qkv_a_proj", "kv_a_proj_with_mqa": "fused_qkv_a_proj",
    "in_proj_qkv": "in_proj_qkvz", "in_proj_z": "in_proj_qkvz", "in_proj_b": "in_proj_ba", "in_proj_a": "in_proj_ba",
}  # fmt: skip
"""Linear layers of a checkpoint that the engines hold as one tensor."""


class Load(NamedTuple):
    """What is held beside the parameters [bytes]."""

    rope_bytes: int = 0
    """cos and sin of every position, one table for each rope that differs."""
    padding_bytes: int = 0
    """What a kernel's layout adds to the parameters."""
    rounding_bytes: int = 0
    """What blocks of the allocator hold over the tensors in them."""
    absorbed_bytes: int = 0
    """16-bit copies of what latent attention multiplies into queries and outputs; keys that are loaded as values too."""
    buffer_bytes: int = 0
    """Buffers for the tokens of a step that models make when they are built."""
    released_bytes: int = 0
    """What is thrown away after repacking: zero points and orders (subtracted)."""
    runtime_bytes: int = 0
    """What a server that reads its figure off the driver counts as weights: kernels, handles."""

    @property
    def total_bytes(self) -> int:
        """rope + padding + rounding + absorbed + buffer + runtime - released."""
        added = self.rope_bytes + self.padding_bytes + self.rounding_bytes + self.absorbed_bytes
        return added + self.buffer_bytes + self.runtime_bytes - self.released_bytes


def load_off_driver(
    architecture: Architecture, tensors: Sequence[RankTensor], element_bytes: int, *, cuda: bool = True
) -> Load:
    """What SGLang counts as weights beside the parameters: free memory before and after loading, its cache emptied.

    Segments that the driver gave, rope tables in float32 on CUDA, and copies of latent attention's projections.

    Args:
        architecture: of the model.
        tensors: of the rank.
        element_bytes: of the model's dtype [bytes].
        cuda: False on ROCm, where tables are in the model's dtype.

    Returns:
        By cause [bytes].

    Source: sglang 0.5 srt/model_executor/model_runner.py load_model, srt/layers/rotary_embedding.py; starts of Qwen3-8B, Qwen3-14B,
    Qwen2.5-32B, Qwen3.5-9B and Llama-3.1-8B print this to 0.01 GiB.
    """
    taken = allocation(tensors)
    return Load(
        rope_bytes=rope_table_bytes(architecture, 4 if cuda else element_bytes),
        rounding_bytes=taken.reserved_bytes - taken.requested_bytes,
        absorbed_bytes=latent_copies_bytes(tensors, element_bytes, always=True) + doubled_values_bytes(tensors),
    )


def components_left_out(
    runner: str | None = None, language_model_only: bool = False, limit_mm_per_prompt: Limits | None = None
) -> frozenset[str]:
    """The components of a model that a server with these flags does not load.

    A pooling runner: lm_head. Language model only: every tower. A tower whose kinds of item (image and video, or audio) are limited
    to zero, the kinds that are named all being zero, is not loaded either.

    Args:
        runner: `pooling`, `generate` or None for the usual.
        language_model_only: no tower is loaded.
        limit_mm_per_prompt: items of a kind that one prompt may have.

    Returns:
        Names of components.

    Source: vllm 0.33.0 model_executor/models/interfaces.py (towers), adapters.py (pooling models drop lm_head). Starts: Qwen3.6-35B-A3B
    (0.19, language model only), Qwen3-VL-Embedding-2B (0.11, images and videos limited to 0), Qwen3-Embedding-8B (0.12).

    >>> sorted(components_left_out("pooling", limit_mm_per_prompt=Limits((("image", 0), ("video", 0)))))
    ['lm_head', 'vision']
    """
    found: set[str] = set()
    if runner == "pooling":
        found.add("lm_head")
    if language_model_only:
        found |= TOWERS
    elif limit_mm_per_prompt is not None:
        counts: dict[str, int] = {}
        for kind, count in limit_mm_per_prompt.items:
            tower = _KINDS.get(kind)
            if tower:
                counts[tower] = counts.get(tower, 0) + count
        found |= {tower for tower, count in counts.items() if count == 0}
    return frozenset(found)


def rope_table_bytes(architecture: Architecture, element_bytes: int, multimodal_rows: int = 1) -> int:
    """Rope tables of the whole context, one for each rope that differs, shared by all layers of it.

    sum of rope_dims * max_position_embeddings * element_bytes, times multimodal_rows where positions have three axes

    Args:
        architecture: of the model.
        element_bytes: of the table: the model's dtype (vllm, SGLang on ROCm) or float32 (SGLang on CUDA) [bytes].
        multimodal_rows: how many times the context a multimodal rope has rows for: 4 in vllm, 1 in SGLang.

    Returns:
        Size [bytes].

    Source: vllm 0.33.0 model_executor/layers/rotary_embedding (mrope.py: four times the positions, since videos have larger ones);
    sglang 0.5 srt/layers/rotary_embedding.py.
    """
    rows = architecture.max_position_embeddings or 0
    if architecture.multimodal_rope:
        rows *= multimodal_rows
    return sum(rope_cache_bytes(rows, width, element_bytes) for width in architecture.rope_dims)


def allocation(tensors: Sequence[RankTensor]) -> Allocation:
    """What a rank's tensors take of the allocator, as the engines hold them.

    q, k and v are one tensor, gate and up another, the experts of a layer two.

    Args:
        tensors: of the rank.

    Returns:
        Requested, allocated and reserved bytes.

    Source: vllm 0.33.0 model_executor/layers/linear.py (merged layers), fused_moe/layer.py (w13, w2).
    """
    return _allocation(tuple(tensors))


@lru_cache(maxsize=1024)
def _allocation(tensors: tuple[RankTensor, ...]) -> Allocation:
    # the same rank is asked for again and again where lengths and limits are compared
    return allocate(_sizes(tensors))


class _Module(NamedTuple):
    """What one group of tensors adds to each layer that it is in: the module it is part of, and the sizes of its copies [bytes]."""

    name: tuple[str, str]
    sizes: tuple[int, ...]
    merged: bool


def _sizes(tensors: Sequence[RankTensor]) -> list[int]:
    """Sizes in the order in which modules are made: layer by layer, stack by stack.

    Most layers of a stack hold the same groups: their sizes are worked out once.
    """
    stacks: dict[str, list[tuple[tuple[int, ...], _Module]]] = {}
    for tensor in tensors:
        stack = tensor.name.partition("*")[0] if tensor.layers else tensor.component
        stacks.setdefault(stack, []).append((tensor.layers or (0,), _module(tensor)))
    found: list[int] = []
    for groups in stacks.values():
        bits = {layers: 1 << place for place, layers in enumerate(dict.fromkeys(layers for layers, _ in groups))}
        held: dict[int, int] = {}
        for layers, bit in bits.items():
            for layer in layers:
                held[layer] = held.get(layer, 0) | bit
        marked = [(bits[layers], module) for layers, module in groups]
        alike: dict[int, list[int]] = {}
        for _, mask in sorted(held.items()):
            if mask not in alike:
                alike[mask] = _layer_sizes(module for bit, module in marked if mask & bit)
            found += alike[mask]
    return found


def _module(tensor: RankTensor) -> _Module:
    names = tensor.name.split(".")
    fused = [_FUSED.get(name, name) for name in names]
    layers = len(tensor.layers or (0,))
    size = element_bytes(tensor.elements, tensor.dtype) // layers
    if tensor.component == "routed_experts" or fused != names:
        return _Module((".".join(fused), tensor.dtype), (size,), merged=True)
    copies = tensor.copies // layers or 1
    return _Module((".".join(fused), tensor.dtype), (size // copies,) * copies, merged=False)


def _layer_sizes(modules: Iterable[_Module]) -> list[int]:
    """Sizes of one layer's tensors: those of a merged module are one."""
    held: dict[tuple[str, str], list[int]] = {}
    for module in modules:
        sizes = held.setdefault(module.name, [])
        if module.merged and sizes:
            sizes[0] += module.sizes[0]
        else:
            sizes += module.sizes
    return [size for sizes in held.values() for size in sizes]


def latent_copies_bytes(tensors: Iterable[RankTensor], element_bytes: int, *, always: bool = False) -> int:
    """Copies of kv_b_proj that latent attention absorbs into queries and outputs, in the model's dtype.

    elements of kv_b_proj * element_bytes where it is quantised; where it is not, they are views, unless the engine copies `always`

    Args:
        tensors: of the rank.
        element_bytes: of the model's dtype [bytes].
        always: SGLang copies unquantised ones too (made contiguous).

    Returns:
        Size [bytes].

    Source: vllm 0.33.0 model_executor/layers/attention/mla_attention.py process_weights_after_loading; sglang 0.5
    srt/models/deepseek_v2.py post_load_weights (on some cards the copies of an fp8 model stay in 8 bit: not told apart here).
    """
    return element_bytes * sum(
        tensor.elements
        for tensor in tensors
        if "kv_b_proj." in tensor.name and not tensor.scale and (always or not tensor.dtype.endswith("16"))
    )


def doubled_values_bytes(tensors: Sequence[RankTensor]) -> int:
    """Keys that are loaded as values too, in layers that have keys only (Gemma 4): the merged layer has room for both.

    Source: vllm 0.33.0 model_executor/models/gemma4.py, by reading.
    """
    held: dict[str, set[int]] = {"k_proj": set(), "v_proj": set()}
    sizes: dict[int, int] = {}
    for tensor in tensors:
        module = tensor.name.split(".")[-2] if "." in tensor.name else ""
        if module in held and tensor.component == "attention" and tensor.layers:
            held[module].update(tensor.layers)
            if module == "k_proj":
                size = element_bytes(tensor.elements, tensor.dtype) // len(tensor.layers)
                for layer in tensor.layers:
                    sizes[layer] = sizes.get(layer, 0) + size
    return sum(sizes[layer] for layer in held["k_proj"] - held["v_proj"]) if held["v_proj"] else 0


def released_bytes(tensors: Iterable[RankTensor], method: str) -> int:
    """What GPTQ's Marlin kernel throws away: orders of all layers, zero points of linear layers; stacks of experts keep theirs.

    Args:
        tensors: of the rank.
        method: quant_method of the checkpoint.

    Returns:
        Size [bytes].

    Source: vllm 0.33.0 model_executor/layers/quantization/gptq_marlin.py (symmetric, without desc_act), by reading.
    """
    if method != "gptq":
        return 0
    found = 0
    for tensor in tensors:
        _, _, part = tensor.name.rpartition(".")
        if part == "g_idx" or (part == "qzeros" and tensor.component != "routed_experts"):
            found += element_bytes(tensor.elements, tensor.dtype)
    return found
