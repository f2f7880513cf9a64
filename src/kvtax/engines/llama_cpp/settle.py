"""What a deployment asks of llama.cpp, with the defaults of each program that runs it filled in."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.gguf.shape import Shape
from kvtax.deployment import Deployment
from kvtax.dtypes import find_dtype
from kvtax.engines.llama_cpp.cache import CACHE_TYPES
from kvtax.engines.llama_cpp.compute import is_quantised
from kvtax.errors import InputError
from kvtax.hardware.gpu import Gpu
from kvtax.terms import Notice

SPLIT_MODES = ("layer", "row", "tensor", "none")
_SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


class Asked(NamedTuple):
    """The flags that were given, checked; None where the program decides.

    Args:
        n_parallel: slots [requests].
        n_ubatch: tokens of a step [tokens].
        cache_type_k: format of keys.
        cache_type_v: format of values.
        flash_attn: True where it is on or auto.
        n_gpu_layers: units on cards, None for all [layers].
        fit: whether what is not set is lowered until it fits.
        split_mode: layer, row, tensor or none.
    """

    n_parallel: int | None
    n_ubatch: int | None
    cache_type_k: str
    cache_type_v: str
    flash_attn: bool
    n_gpu_layers: int | None
    fit: bool
    split_mode: str


def read_asked(deployment: Deployment) -> Asked:
    """The flags of a deployment.

    Raises:
        InputError: a word that llama.cpp does not know, or one thing said twice in different ways.
    """
    layers, fit = _layers(deployment.n_gpu_layers)
    common = deployment.kv_cache_dtype
    both = None if common is None or common.lower() == "auto" else common
    mode = (deployment.split_mode or "layer").lower()
    if mode not in SPLIT_MODES:
        raise InputError(
            f"split mode {mode!r:.64} is not known",
            code="unknown-name",
            hint=", ".join(SPLIT_MODES),
            where="split_mode",
        )
    return Asked(
        n_parallel=_one_of(deployment, "n_parallel", "max_num_seqs"),
        n_ubatch=_one_of(deployment, "n_ubatch", "max_num_batched_tokens"),
        cache_type_k=_cache_type("cache_type_k", deployment.cache_type_k or both or "f16"),
        cache_type_v=_cache_type("cache_type_v", deployment.cache_type_v or both or "f16"),
        flash_attn=_flash(deployment.flash_attn),
        n_gpu_layers=layers,
        fit=bool(deployment.fit) or (fit and deployment.fit is None),
        split_mode=mode,
    )


def _one_of(deployment: Deployment, own: str, common: str) -> int | None:
    """A field under llama.cpp's own name or the common one."""
    first, second = getattr(deployment, own), getattr(deployment, common)
    if first is not None and second is not None and first != second:
        raise InputError(f"{own} is {first}, {common} {second}", code="field-given-twice", where=own)
    value = second if first is None else first
    return None if value is None else int(value)


def _cache_type(field: str, name: str) -> str:
    found = _SHORT.get(name.lower(), name.lower())
    if found not in CACHE_TYPES:
        dtype = find_dtype(name).name
        found = _SHORT.get(dtype, dtype)
    if found not in CACHE_TYPES:
        raise InputError(
            f"cache type {name!r:.64} is not one of llama.cpp's",
            code="unknown-kv-dtype",
            hint=", ".join(CACHE_TYPES),
            where=field,
        )
    return found


def _flash(word: str | None) -> bool:
    if word is None or word in ("on", "auto", "1", "enabled", "true"):
        return True
    if word in ("off", "0", "disabled", "false"):
        return False
    raise InputError(f"flash attention is on, off or auto, not {word!r:.64}", code="invalid-input", where="flash_attn")


def _layers(word: str | None) -> tuple[int | None, bool]:
    """Units on cards, None for all; and whether they are to be fitted."""
    if word is None or word in ("all", "-1", "on"):
        return None, False
    if word == "auto":
        return None, True
    if not word.isascii() or not word.isdecimal() or len(word) > 6:
        raise InputError(f"is a number, all or auto, not {word!r:.64}", code="invalid-quantity", where="n_gpu_layers")
    return int(word), False


BACKENDS = ("NVIDIA", "AMD", "Apple", "Intel", "user")
"""Makers of cards that llama.cpp has a backend for (CUDA, HIP, Metal, SYCL, Vulkan), among those of the catalogue."""


def refusal(gpu: Gpu, shape: Shape, asked: Asked) -> Notice | None:
    """Why llama.cpp would not make the context.

    Source: ggml-org/llama.cpp b11434 src/llama-context.cpp, src/llama-kv-cache.cpp, README.md (backends).
    """
    if gpu.vendor not in BACKENDS:
        return Notice(
            "no-backend",
            f"llama.cpp has no backend for {gpu.name}",
            "choose a card with CUDA, HIP, Metal, SYCL or Vulkan",
        )
    if is_quantised(asked.cache_type_v) and not asked.flash_attn and not shape.latent:
        return Notice(
            "quantised-values-need-flash-attention",
            "V cache quantization requires flash_attn",
            "leave out --flash-attn off, or take --cache-type-v f16",
        )
    if (shape.latent or shape.arch == "deepseek4") and asked.cache_type_k != asked.cache_type_v:
        return Notice(
            "latent-needs-one-type",
            f"{shape.arch} keeps one latent: keys {asked.cache_type_k} and values {asked.cache_type_v} cannot differ",
            f"--cache-type-v {asked.cache_type_k}",
        )
    for layer in shape.layers:
        widths = ((asked.cache_type_k, layer.key_length), (asked.cache_type_v, layer.value_length))
        for cache_type, width in widths if layer.attends else ():
            block = find_dtype(cache_type).block
            if block and width % block:
                return Notice(
                    "cache-type-does-not-fit",
                    f"heads of {width} elements are not a whole number of {cache_type} blocks of {block}",
                    "take f16",
                )
    if asked.split_mode in ("row", "tensor") and asked.fit:
        return Notice("fit-needs-layers", f"--fit does not support split mode {asked.split_mode}", "--split-mode layer")
    return None
