"""One table of number formats: how many bits an element takes, and what scales come with a block of them."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.errors import InputError, UnknownNameError


class Dtype(NamedTuple):
    """A number format.

    Args:
        name: canonical name.
        bits: bits of one element [bit].
        block: elements that share one scale, 0 where there is no scale [elements].
        scale_bits: bits of what a block carries beside its elements [bit].
        safetensors: the tag of this format in a safetensors header, empty where it has none.
    """

    name: str
    bits: int
    block: int = 0
    scale_bits: int = 0
    safetensors: str = ""

    def bytes(self, elements: int) -> int:
        """Bytes of a row of elements, its scales included: ceil(elements x bits / 8) + ceil(elements / block) x scale_bits / 8."""
        size = -(-elements * self.bits // 8)
        if self.block:
            size += -(-elements // self.block) * self.scale_bits // 8
        return size


_TABLE = (
    # safetensors tags and their bits: safetensors 0.8.0 src/tensor.rs (Dtype, bitsize)
    Dtype("float32", 32, safetensors="F32"),
    Dtype("float16", 16, safetensors="F16"),
    Dtype("bfloat16", 16, safetensors="BF16"),
    Dtype("float64", 64, safetensors="F64"),
    Dtype("fp8_e4m3", 8, safetensors="F8_E4M3"),
    Dtype("fp8_e5m2", 8, safetensors="F8_E5M2"),
    Dtype("fp8_e8m0", 8, safetensors="F8_E8M0"),
    Dtype("fp8_e4m3fnuz", 8, safetensors="F8_E4M3FNUZ"),
    Dtype("fp8_e5m2fnuz", 8, safetensors="F8_E5M2FNUZ"),
    Dtype("fp6_e2m3", 6, safetensors="F6_E2M3"),
    Dtype("fp6_e3m2", 6, safetensors="F6_E3M2"),
    Dtype("fp4_e2m1", 4, safetensors="F4"),
    Dtype("complex64", 64, safetensors="C64"),
    Dtype("int64", 64, safetensors="I64"),
    Dtype("int32", 32, safetensors="I32"),
    Dtype("int16", 16, safetensors="I16"),
    Dtype("int8", 8, safetensors="I8"),
    Dtype("uint64", 64, safetensors="U64"),
    Dtype("uint32", 32, safetensors="U32"),
    Dtype("uint16", 16, safetensors="U16"),
    Dtype("uint8", 8, safetensors="U8"),
    Dtype("bool", 8, safetensors="BOOL"),
    Dtype("int4", 4),
    Dtype("nf4", 4),
    Dtype("nvfp4", 4, block=16, scale_bits=8),
    Dtype("mxfp4", 4, block=32, scale_bits=8),
    Dtype("mxfp8", 8, block=32, scale_bits=8),
    # llama.cpp's cache and weight blocks (ggml-common.h: block sizes and bytes per block)
    Dtype("q4_0", 4, block=32, scale_bits=16),
    Dtype("q4_1", 4, block=32, scale_bits=32),
    Dtype("q5_0", 5, block=32, scale_bits=16),
    Dtype("q5_1", 5, block=32, scale_bits=32),
    Dtype("q8_0", 8, block=32, scale_bits=16),
    Dtype("iq4_nl", 4, block=32, scale_bits=16),
    Dtype("q2_k", 2, block=256, scale_bits=160),
    Dtype("q3_k", 3, block=256, scale_bits=112),
    Dtype("q4_k", 4, block=256, scale_bits=128),
    Dtype("q5_k", 5, block=256, scale_bits=128),
    Dtype("q6_k", 6, block=256, scale_bits=144),
    Dtype("iq1_s", 1, block=256, scale_bits=144),
    Dtype("iq1_m", 1, block=256, scale_bits=192),
    Dtype("iq2_xxs", 2, block=256, scale_bits=16),
    Dtype("iq2_xs", 2, block=256, scale_bits=80),
    Dtype("iq2_s", 2, block=256, scale_bits=144),
    Dtype("iq3_xxs", 3, block=256, scale_bits=16),
    Dtype("iq3_s", 3, block=256, scale_bits=112),
    Dtype("iq4_xs", 4, block=256, scale_bits=64),
    Dtype("tq1_0", 1, block=256, scale_bits=176),
    Dtype("tq2_0", 2, block=256, scale_bits=16),
    Dtype("q1_0", 1, block=128, scale_bits=16),
    Dtype("q2_0", 2, block=64, scale_bits=16),
)
DTYPES = {dtype.name: dtype for dtype in _TABLE}
_ALIASES = {
    "bf16": "bfloat16", "fp16": "float16", "f16": "float16", "half": "float16", "fp32": "float32", "f32": "float32",
    "float": "float32", "double": "float64", "fp8": "fp8_e4m3", "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2",
    "fp8_e4m3fn": "fp8_e4m3", "torch.bfloat16": "bfloat16", "torch.float16": "float16", "torch.float32": "float32",
}  # fmt: skip
_ALIASES.update({dtype.safetensors.lower(): dtype.name for dtype in _TABLE if dtype.safetensors})


def _word(name: object) -> str:
    if not isinstance(name, str):
        raise InputError(f"a dtype is named by a word, not {name!r:.64}", code="invalid-dtype")
    return name.lower()


def find_dtype(name: str) -> Dtype:
    """The format of a name or one of its usual spellings (`bf16`, `torch.bfloat16`, `BF16`).

    Raises:
        UnknownNameError: code `unknown-dtype`.
    """
    if isinstance(name, str) and (known := DTYPES.get(name)) is not None:
        return known
    key = _word(name)
    dtype = DTYPES.get(_ALIASES.get(key, key))
    if dtype is None:
        raise UnknownNameError(
            f"dtype {name[:64]!r} is not known", code="unknown-dtype", hint="known: " + ", ".join(sorted(DTYPES))
        )
    return dtype


# ---- what one token's keys and values take in the cache of an attention layer ----

_PLAIN_KV = {
    "bfloat16": 16, "float16": 16, "float32": 32, "fp8_e4m3": 8, "fp8_e5m2": 8, "fp8_inc": 8, "int8": 8,
}  # fmt: skip
TURBOQUANT_BITS = {
    "turboquant_k8v4": (8, 4), "turboquant_4bit_nc": (4, 4), "turboquant_k3v4_nc": (3, 4), "turboquant_3bit_nc": (3, 3),
}  # fmt: skip
"""Bits of keys and values (vllm model_executor/layers/quantization/turboquant/config.py)."""
KV_DTYPES = (
    *TURBOQUANT_BITS, "nvfp4_4over6",
    *_PLAIN_KV, "fp8", "fp8_ds_mla", "nvfp4", "nvfp4_ds_mla", "int8_per_token_head", "fp8_per_token_head",
    "int4_per_token_head", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl",
)  # fmt: skip


def resolve_kv_dtype(name: str) -> str:
    """The canonical name of a KV cache format.

    Raises:
        UnknownNameError: code `unknown-kv-dtype`.
    """
    key = _word(name)
    key = _ALIASES.get(key, key)
    if key not in KV_DTYPES:
        raise UnknownNameError(
            f"KV cache dtype {name[:64]!r} is not known",
            code="unknown-kv-dtype",
            hint="known: auto, " + ", ".join(KV_DTYPES),
        )
    return key


def head_bytes(dtype: str, head_dim: int, v_head_dim: int) -> int:
    """Bytes of one head's key and value of one token.

    (head_dim + v_head_dim) x bits / 8, + 8 B of float32 scales for the per-token-head formats; nvfp4: a byte of scale for 16 elements;
    turboquant: ceil(head_dim x bits / 8) + 2 B and ceil(v_head_dim x bits / 8) + 4 B in an even slot.

    Args:
        dtype: canonical KV format.
        head_dim: width of a key [elements].
        v_head_dim: width of a value [elements].

    Returns:
        Size [bytes].

    Source: vllm 0.33.0 v1/kv_cache_interface.py; ggml block sizes for the q formats.
    """
    bits = _PLAIN_KV.get(dtype)
    if bits is not None:
        return (head_dim + v_head_dim) * bits // 8
    if dtype in ("int8_per_token_head", "fp8_per_token_head"):
        return head_dim + v_head_dim + 8
    if dtype == "int4_per_token_head":
        return (head_dim + v_head_dim) // 2 + 8
    if dtype == "fp8_ds_mla":
        return head_dim + v_head_dim
    if dtype in TURBOQUANT_BITS:
        return _turboquant_slot_bytes(dtype, head_dim, v_head_dim)
    block = DTYPES["nvfp4" if dtype in ("nvfp4_ds_mla", "nvfp4_4over6") else dtype]
    return block.bytes(head_dim) + block.bytes(v_head_dim)


def _turboquant_slot_bytes(dtype: str, head_dim: int, v_head_dim: int) -> int:
    """A key and a value in one slot of an even size: 8-bit keys as they are, others with 2 B of norm, values with 4 B of scale and zero."""
    key_bits, value_bits = TURBOQUANT_BITS[dtype]
    key = head_dim if key_bits == 8 else -(-head_dim * key_bits // 8) + 2
    value = -(-v_head_dim * value_bits // 8) + 4 if v_head_dim else 0
    return -(-(key + value) // 2) * 2


def latent_bytes(dtype: str, kv_lora_rank: int, qk_rope_head_dim: int) -> int:
    """Bytes of one token's latent of a multi-head latent attention layer.

    (kv_lora_rank + qk_rope_head_dim) x bits / 8; fp8_ds_mla: kv_lora_rank fp8 + 4 B of scale for 128 + rope in 16 bit;
    nvfp4_ds_mla: kv_lora_rank / 2 + kv_lora_rank / 16 + rope in 8 bit.

    Args:
        dtype: canonical KV format.
        kv_lora_rank: width of the compressed latent [elements].
        qk_rope_head_dim: width of the shared rotary key [elements].

    Returns:
        Size [bytes].

    Source: vllm 0.33.0 v1/kv_cache_interface.py (656 B and 352 B for 512 + 64).
    """
    if dtype == "fp8_ds_mla":
        return kv_lora_rank + -(-kv_lora_rank // 128) * 4 + 2 * qk_rope_head_dim
    if dtype == "nvfp4_ds_mla":
        return DTYPES["nvfp4"].bytes(kv_lora_rank) + qk_rope_head_dim
    bits = _PLAIN_KV.get(dtype)
    if bits is not None:
        return (kv_lora_rank + qk_rope_head_dim) * bits // 8
    return head_bytes(dtype, kv_lora_rank + qk_rope_head_dim, 0)
